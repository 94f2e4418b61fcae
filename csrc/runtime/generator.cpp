#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "philox.h"

namespace accel {

namespace {

static_assert(
    std::endian::native == std::endian::little,
    "the state is little endian, as torch.cuda's");

constexpr int64_t kSeedBytes = sizeof(uint64_t);
constexpr int64_t kStateBytes = kSeedBytes + static_cast<int64_t>(sizeof(int64_t));

// ACCEL_RNG, read when the first generator is made; an unusable value raises each time one is asked
// for.
bool draws_cpu_numbers() {
  static const bool result = [] {
    const char* value = std::getenv("ACCEL_RNG");
    const std::string_view rng = value == nullptr ? "" : value;
    TORCH_CHECK(
        rng.empty() || rng == "philox" || rng == "cpu",
        "accel: ACCEL_RNG=",
        rng,
        " is not a random number generator. Set it to philox (the default) or cpu, before the "
        "process starts.");
    return rng == "cpu";
  }();
  return result;
}

struct DefaultGenerator {
  std::once_flag once;
  at::Generator generator;
};

} // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index)
    : c10::GeneratorImpl(
          c10::Device(kDeviceType, index),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {
  if (draws_cpu_numbers()) {
    cpu_ = at::detail::createCPUGenerator();
  }
}

// In CPU mode every draw is waited for by the call that makes it (launch_and_wait), so the wrapped
// state is the one that this thread's program order says and nothing has to be drained here. Its
// own mutex, taken below, is held by a worker for the length of one fill at most. Lock order:
// mutex_, then the wrapped generator's.

void GeneratorImpl::set_current_seed(uint64_t seed) {
  if (cpu_) {
    std::lock_guard<std::mutex> lock(cpu_->mutex());
    cpu_->set_current_seed(seed);
  }
  seed_ = seed;
  offset_ = 0;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(
      !cpu_,
      "accel: set_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, "
      "which have no offset. Unset ACCEL_RNG or use set_state.");
  TORCH_CHECK(
      offset % kOffsetPerCall == 0, "accel: offset must be a multiple of 4, but got ", offset);
  offset_ = offset;
}

uint64_t GeneratorImpl::get_offset() const {
  TORCH_CHECK(
      !cpu_,
      "accel: get_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, "
      "which have no offset. Unset ACCEL_RNG or use get_state.");
  return offset_;
}

uint64_t GeneratorImpl::current_seed() const {
  return cpu_ ? cpu_->current_seed() : seed_;
}

uint64_t GeneratorImpl::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  if (cpu_) {
    const at::Generator& cpu = *cpu_;
    std::lock_guard<std::mutex> lock(cpu.unsafeGetGeneratorImpl()->mutex_);
    return cpu.unsafeGetGeneratorImpl()->get_state();
  }
  at::Tensor state(at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, kSeedBytes);
  std::memcpy(bytes + kSeedBytes, &offset_, sizeof(offset_));
  return state.getIntrusivePtr();
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  if (cpu_) {
    std::lock_guard<std::mutex> lock(cpu_->mutex());
    cpu_->unsafeGetGeneratorImpl()->set_state(state);
    return;
  }
  at::detail::check_rng_state(state);
  TORCH_CHECK(
      state.numel() == kStateBytes || state.numel() == kSeedBytes,
      "RNG state is wrong size: an accel generator takes 16 bytes (seed, offset) or 8 (seed), but "
      "got ",
      state.numel(),
      state.numel() > 1024 ? ", the size of a CPU generator's state" : "");
  const auto* bytes = state.data_dtype_initialized<uint8_t>();
  uint64_t seed = 0;
  uint64_t offset = 0;
  std::memcpy(&seed, bytes, kSeedBytes);
  if (state.numel() == kStateBytes) {
    std::memcpy(&offset, bytes + kSeedBytes, sizeof(offset));
  }
  set_offset(offset); // throws first, so that a refused state changes nothing
  seed_ = seed;
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  std::optional<at::Generator> cpu;
  if (cpu_) {
    std::lock_guard<std::mutex> lock(cpu_->unsafeGetGeneratorImpl()->mutex_);
    cpu = cpu_->clone();
  }
  auto* copy = new GeneratorImpl(device().index()); // clone() takes the first reference
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  copy->cpu_ = std::move(cpu);
  return copy;
}

Key GeneratorImpl::reserve_key() {
  TORCH_INTERNAL_ASSERT(!cpu_, "ACCEL_RNG=cpu has no keys");
  const Key key = philox::call_key(seed_, offset_);
  offset_ += kOffsetPerCall;
  return key;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  // Leaked: the objects outlive every static that may still draw or hold one.
  static auto* generators =
      new std::array<DefaultGenerator, std::numeric_limits<c10::DeviceIndex>::max() + 1>();
  index = checked_index(index);
  DefaultGenerator& slot = (*generators)[index];
  std::call_once(slot.once, [&] {
    at::Generator generator = make_generator(index);
    generator.seed();
    slot.generator = std::move(generator);
  });
  return slot.generator;
}

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<GeneratorImpl>(checked_index(index));
}

void check_generator_type(const at::Generator& generator, c10::DeviceType type) {
  TORCH_CHECK(
      generator.device().type() == type,
      "Expected a '",
      type,
      "' device type for generator but found '",
      generator.device().type(),
      "'");
}

GeneratorImpl* generator_or_default(
    const std::optional<at::Generator>& generator,
    c10::Device device) {
  if (!generator.has_value() || !generator->defined()) {
    return default_generator(device.index()).get<GeneratorImpl>();
  }
  check_generator_type(*generator, device.type());
  auto* impl = at::check_generator<GeneratorImpl>(generator);
  TORCH_CHECK(
      device == impl->device(),
      "Expected a generator of device ",
      device,
      " but found one of ",
      impl->device(),
      ". Make it with torch.Generator('",
      device,
      "').");
  return impl;
}

at::Generator cpu_generator_for_call(GeneratorImpl* generator) {
  if (generator->cpu()) {
    return *generator->cpu();
  }
  std::lock_guard<std::mutex> lock(generator->mutex_);
  return at::detail::createCPUGenerator(generator->reserve_key());
}

} // namespace accel
