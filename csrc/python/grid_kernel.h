// A compiled kernel with the types of its parameters: packs Python's arguments and launches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "../driver/accel_grid.h"
#include "bindings.h"

namespace accel::python {

// Name, Triton's name of the type, and accelAccessRead | accelAccessWrite.
using ParameterNames = std::tuple<std::string, std::string, uint32_t>;

// One parameter of a kernel, as Triton's signature names its type. A tensor descriptor is one here,
// and several arguments of the object.
struct Parameter {
  enum class Kind : uint8_t { kNone, kPointer, kBool, kInteger, kFloat, kDescriptor };

  std::string name;
  std::string type;
  uint32_t access; // of a pointer's memory: accelAccessRead | accelAccessWrite
  Kind kind = Kind::kNone;
  uint8_t bytes = 0;
  uint8_t rank = 0; // of a descriptor
};

class GridKernel {
 public:
  // `owner` is what keeps the functions loaded; the module has it until no launch needs it. `cost`
  // is a CostFunction or 0. With `ranges` the arguments are followed by those of the pointers'
  // memory, a Range each.
  // `order` is accelGridAscending or another one.
  GridKernel(
      std::string name,
      uintptr_t function,
      uintptr_t cost,
      py::object owner,
      size_t sram,
      const std::vector<std::string>& sites,
      const std::vector<ParameterNames>& parameters,
      bool ranges,
      uint32_t order);
  ~GridKernel();
  GridKernel(const GridKernel&) = delete;
  GridKernel& operator=(const GridKernel&) = delete;

  // Called with the GIL; enqueues without it. One argument per parameter; those for constants may
  // be left out, all of them or the last ones.
  void launch(
      const std::array<int64_t, 3>& grid,
      accelStream_t stream,
      bool cooperative,
      PyObject* const* args,
      size_t count) const;

 private:
  // Fills a record, before the kernel runs: bytes read and written in HBM and in SRAM, then
  // operations by accelFlops*; -1 is unknown. See torch_accel/triton/analysis/cost.py.
  using CostFunction = void (*)(const void* args, const uint32_t* grid, int64_t* record);

  // Of a tensor's storage; of any other address: everything.
  struct Range {
    uint64_t begin = 0;
    uint64_t bytes = UINT64_MAX;
  };

  struct Packed {
    c10::SmallVector<char, 256> bytes;
    size_t offset = 0;
    int device = 0;
    c10::SmallVector<accelAccess, 8> accesses;
    c10::SmallVector<at::Storage, 1> pinned; // must not be handed out before the kernel ran
    c10::SmallVector<Range, 8> ranges;

    template <class T>
    void put(T value) {
      offset = (offset + sizeof(T) - 1) / sizeof(T) * sizeof(T);
      std::memcpy(bytes.data() + offset, &value, sizeof(T));
      offset += sizeof(T);
    }
  };

  void pack(const Parameter& parameter, py::handle value, Packed& packed) const;
  void put_integer(const Parameter& parameter, py::handle value, Packed& packed) const;
  void put_float(const Parameter& parameter, py::handle value, Packed& packed) const;
  // A tensor's device address, an address as it is, or what data_ptr() says.
  uintptr_t address(const Parameter& parameter, py::handle value, Packed& packed) const;
  uintptr_t address_of(const Parameter& parameter, const at::Tensor& tensor, Packed& packed) const;
  // Where a core finds the tensor's first element; `pinned` has it until the launch.
  uintptr_t place_of(const Parameter& parameter, const at::Tensor& tensor, Packed& packed) const;
  void put_descriptor(const Parameter& parameter, py::handle value, Packed& packed) const;
  void put_cost(const accelGridLaunch& launch, accelLaunchInfo& info) const;
  void check_count(size_t given) const;
  [[noreturn]] void refuse(const Parameter& parameter, py::handle value, const char* expected)
      const;

  const std::string name_;
  std::vector<Parameter> parameters_;
  size_t passed_ = 0; // parameters that are not constant
  size_t least_ = 0; // parameters up to the last one that is not constant
  size_t args_bytes_ = 0;
  const CostFunction cost_;
  const bool ranges_;
  const uint32_t order_;
  accelModule_t module_ = nullptr;
};

} // namespace accel::python
