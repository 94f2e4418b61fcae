// accel_grid.h for the driver's tests: kernels, and modules made of them.
#include <pybind11/stl.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accel_grid.h"
#include "binding.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// The arguments of every kernel: the device address of its words, and numbers that it knows the
// meaning of.
struct Arguments {
  uintptr_t words;
  uint32_t numbers[2];
};

class Program {
 public:
  Program(const accelGridContext* context, const void* args)
      : context_(*context), args_(*static_cast<const Arguments*>(args)) {}

  uint32_t number() const {
    const auto* p = context_.program;
    const auto* g = context_.grid;
    return (p[2] * g[1] + p[1]) * g[0] + p[0];
  }
  uint32_t count() const {
    return context_.grid[0] * context_.grid[1] * context_.grid[2];
  }
  uint32_t argument(int i) const {
    return args_.numbers[i];
  }
  std::atomic_ref<uint32_t> word(uint32_t i) const {
    return std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(args_.words + context_.offset)[i]);
  }
  // Waits until the word has at least that value; false if told to give up.
  bool wait(uint32_t i, uint32_t least) const {
    while (word(i).load() < least) {
      if (__atomic_load_n(context_.abort, __ATOMIC_RELAXED) != 0) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }
  int32_t fail(uint32_t kind, uint32_t site, const char* text) const {
    auto* const fault = static_cast<accelGridFault*>(context_.fault);
    fault->kind = kind;
    fault->site = site;
    std::strncpy(fault->text, text, sizeof(fault->text) - 1);
    return 1;
  }
  const accelGridContext& context() const {
    return context_;
  }

 private:
  const accelGridContext& context_;
  const Arguments& args_;
};

// Appends x, y and z to the list in words: a count of programs, then their places.
int32_t record(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  const uint32_t index = p.word(0).fetch_add(1);
  for (uint32_t i = 0; i < 3; ++i) {
    p.word(1 + 3 * index + i).store(context->program[i]);
  }
  return 0;
}

// Returns once numbers[0] programs are in it. words[1]: how many were at the same time, at most.
int32_t meet(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  const uint32_t inside = p.word(0).fetch_add(1) + 1;
  for (uint32_t most = p.word(1).load(); most < inside;) {
    p.word(1).compare_exchange_weak(most, inside);
  }
  p.wait(0, p.argument(0));
  return 0;
}

// Notes in words[1] how many programs are in it at the same time, at most.
int32_t overlap(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  const uint32_t inside = p.word(0).fetch_add(1) + 1;
  for (uint32_t most = p.word(1).load(); most < inside;) {
    p.word(1).compare_exchange_weak(most, inside);
  }
  std::this_thread::yield();
  p.word(0).fetch_sub(1);
  return 0;
}

// Each program waits for the one before it.
int32_t chain(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  p.wait(0, p.number());
  p.word(0).store(p.number() + 1);
  return 0;
}

// words[program] += numbers[0].
int32_t add(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  p.word(p.number()).fetch_add(p.argument(0));
  return 0;
}

// words[0] counts programs; words[1] is set before program numbers[1] fails, and awaited before
// numbers[0] does.
int32_t fail_two(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  p.word(0).fetch_add(1);
  if (p.number() == p.argument(1)) {
    p.word(1).store(1);
    return p.fail(accelGridFaultBounds, 1, "lane 3 of the load");
  }
  if (p.number() == p.argument(0)) {
    while (p.word(1).load() == 0) {
      std::this_thread::yield();
    }
    return p.fail(accelGridFaultAssert, 0, "n > 0");
  }
  return 0;
}

// Program 0 waits for what nobody does, program 1 fails once it has begun.
int32_t fail_beside_a_poll(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  if (p.number() == 0) {
    p.word(0).store(1);
    p.wait(1, 1);
    return 0;
  }
  p.wait(0, 1);
  return p.fail(accelGridFaultOther, 99, "");
}

// words[0]: set; then waits for words[1].
int32_t poll(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  p.word(0).fetch_add(1);
  p.wait(1, 1);
  return 0;
}

// words[0..2]: the size of the scratch memory, its address modulo 64, the sum of its bytes before
// the program fills it.
int32_t scratch(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  p.word(0).store(static_cast<uint32_t>(context->sram_size));
  p.word(1).store(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(context->sram) % 64));
  uint32_t sum = 0;
  for (size_t i = 0; i < context->sram_size; ++i) {
    sum += context->sram[i];
  }
  p.word(2).store(sum);
  std::memset(context->sram, 1, context->sram_size);
  return 0;
}

// words[program]: the bits of a denormal after an addition.
int32_t denormal(const accelGridContext* context, const void* args) {
  const Program p(context, args);
  volatile float value = 1e-40F;
  value = value + value;
  uint32_t bits = 0;
  const float result = value;
  std::memcpy(&bits, &result, sizeof(bits));
  p.word(p.number()).store(bits);
  return 0;
}

const std::map<std::string, accelGridFunction> kKernels = {
    {"add", add},
    {"chain", chain},
    {"denormal", denormal},
    {"fail_beside_a_poll", fail_beside_a_poll},
    {"fail_two", fail_two},
    {"meet", meet},
    {"overlap", overlap},
    {"poll", poll},
    {"record", record},
    {"scratch", scratch},
};

std::atomic<uint64_t> g_released{0};

class Module {
 public:
  Module(const std::string& kernel, size_t sram, size_t args_bytes) {
    const char* sites[] = {"kernel.py:10", "kernel.py:20"};
    auto info = sized<accelModuleInfo>();
    info.name = kernel.c_str();
    info.function = kKernels.at(kernel);
    info.args_bytes = args_bytes;
    info.sram = sram;
    info.sites = sites;
    info.num_sites = 2;
    info.release = [](void* count) { static_cast<std::atomic<uint64_t>*>(count)->fetch_add(1); };
    info.user = &g_released;
    check(accelModuleLoad(&info, &handle_));
  }
  void unload() {
    accelModuleUnload(std::exchange(handle_, nullptr));
  }
  uint64_t launch(
      Stream stream,
      std::array<uint32_t, 3> grid,
      uintptr_t words,
      std::array<uint32_t, 2> numbers,
      uint32_t cores,
      bool cooperative,
      uint32_t order,
      const std::optional<std::string>& name) {
    static std::set<std::string> names; // a name must outlive its launch
    Arguments arguments{words, {numbers[0], numbers[1]}};
    accelAccess access{7, pointer(words), 4096, accelAccessRead | accelAccessWrite, 0, 0};
    accelLaunchInfo info = unknown_info(names.insert(name.value_or("")).first->c_str());
    info.accesses = &access;
    info.num_accesses = 1;
    auto launch = sized<accelGridLaunch>();
    std::copy(grid.begin(), grid.end(), launch.grid);
    launch.cores = cores;
    launch.cooperative = cooperative ? 1 : 0;
    launch.order = order;
    launch.args = &arguments;
    launch.args_bytes = sizeof(arguments);
    launch.info = name ? &info : nullptr;
    uint64_t ticket = 0;
    const accelError_t code = accelLaunchGrid(stream.handle, handle_, &launch, &ticket);
    arguments = {}; // what was launched has a copy
    check(code);
    return ticket;
  }

 private:
  accelModule_t handle_ = nullptr;
};

} // namespace

void bind_grid(py::module_& m) {
  py::class_<Module>(m, "Module")
      .def(
          py::init<const std::string&, size_t, size_t>(),
          py::arg("kernel"),
          py::arg("sram") = 0,
          py::arg("args_bytes") = sizeof(Arguments))
      .def("unload", &Module::unload)
      .def(
          "launch",
          &Module::launch,
          py::arg("stream"),
          py::arg("grid"),
          py::arg("words"),
          py::arg("numbers") = std::array<uint32_t, 2>{},
          py::arg("cores") = 0,
          py::arg("cooperative") = false,
          py::arg("order") = static_cast<uint32_t>(accelGridAscending),
          py::arg("name") = py::none());
  m.def("released", [] { return g_released.load(); });
#if defined(__x86_64__)
  m.def("flush_denormals", [](bool on) { _mm_setcsr(on ? _mm_getcsr() | 0x8040 : 0x1f80); });
#endif
}
