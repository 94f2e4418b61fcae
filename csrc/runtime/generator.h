// The device's random numbers: Philox 4x32-10 with torch.cuda's 16-byte state (seed, offset).
//
// A random call reserves one Key from (seed, offset) at enqueue and moves the offset by
// kOffsetPerCall. Element i of the call is a function of (key, i) alone, the one that Triton's
// tl.rand(key, i) and tl.randn(key, i) define, so that draws do not depend on timing, threads,
// strides or instruction set, and compiled code can draw the same. With ACCEL_RNG=cpu a generator
// wraps at::CPUGeneratorImpl instead and draws the CPU's own numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "device.h"

namespace accel {

// The 64-bit Philox key of one random call.
using Key = uint64_t;
constexpr uint64_t kOffsetPerCall = 4;

// Where the numbers of one launch of a graph begin: see graph_rng.h.
struct RngCell {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// What a random call draws with, as its record keeps it: its key, or, captured, where to find it.
class CallKey {
 public:
  explicit CallKey(Key key) : value_(key) {}
  CallKey(const RngCell* cell, uint64_t offset) : cell_(cell), value_(offset) {}

  // On the worker.
  Key resolve() const;

  // Both as numbers, for a backward that draws again what its forward drew.
  std::pair<int64_t, int64_t> pack() const;
  static CallKey unpack(int64_t first, int64_t second);

 private:
  const RngCell* cell_ = nullptr; // null: not captured
  uint64_t value_; // the key, or the offset within the graph
};

// What torch calls a graph-safe state: generators may share it, graphs refer to it.
struct GeneratorState {
  std::mutex mutex; // a leaf
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;
};

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  // With a state of its own, or a shared one.
  explicit GeneratorImpl(
      c10::DeviceIndex index,
      std::shared_ptr<GeneratorState> state = std::make_shared<GeneratorState>());
  ~GeneratorImpl() override = default;

  static c10::DeviceType device_type() {
    return kDeviceType;
  }

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  const std::shared_ptr<GeneratorState>& state() const {
    return state_;
  }

  // Philox: what the next call draws with. Requires !cpu(). Caller holds mutex_ (as for every
  // generator of torch).
  CallKey reserve_key();
  // ACCEL_RNG=cpu: the generator that CPU kernels draw from; none in Philox mode.
  const std::optional<at::Generator>& cpu() const {
    return cpu_;
  }

 private:
  GeneratorImpl* clone_impl() const override;
  // Throws if the current stream captures.
  void check_not_captured(const char* call) const;
  // As set_offset, and within a graph while the current stream captures.
  void move_to(uint64_t offset);

  std::shared_ptr<GeneratorState> state_;
  std::optional<at::Generator> cpu_;
};

// The device's default generator (index -1: current device).
const at::Generator& default_generator(c10::DeviceIndex index = -1);
at::Generator make_generator(c10::DeviceIndex index = -1);
// Throws, in torch's words, unless the generator is of a device of that type.
void check_generator_type(const at::Generator& generator, c10::DeviceType type);
// `generator` if defined (checked to be of this device type and index), else the default one of
// `device`.
GeneratorImpl* generator_or_default(
    const std::optional<at::Generator>& generator,
    c10::Device device);
// What a CPU kernel that stands in for one of ours draws from: a fresh CPU generator seeded with
// the next key, or with ACCEL_RNG=cpu the wrapped one. Takes mutex_ itself.
at::Generator cpu_generator_for_call(GeneratorImpl* generator);

// One key for one call, reserved under the generator's lock.
inline CallKey reserve_key(GeneratorImpl* generator) {
  std::lock_guard<std::mutex> lock(generator->mutex_);
  return generator->reserve_key();
}

} // namespace accel
