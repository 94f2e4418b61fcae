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

#include "graph_rng.h"
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

Key CallKey::resolve() const {
  return cell_ == nullptr ? value_ : philox::call_key(cell_->seed, cell_->offset + value_);
}

std::pair<int64_t, int64_t> CallKey::pack() const {
  return {std::bit_cast<int64_t>(value_), std::bit_cast<int64_t>(cell_)};
}

CallKey CallKey::unpack(int64_t first, int64_t second) {
  return {std::bit_cast<const RngCell*>(second), std::bit_cast<uint64_t>(first)};
}

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index, std::shared_ptr<GeneratorState> state)
    : c10::GeneratorImpl(
          c10::Device(kDeviceType, index),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {
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
  const bool captured = GraphRng::of_current_stream(device().index()) != nullptr;
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (captured) {
    TORCH_CHECK(
        state_->seed == seed,
        "Generator.manual_seed can be called during stream capture only if new seed is the same as "
        "the original seed.");
    return;
  }
  state_->seed = seed;
  state_->offset = 0;
}

void GeneratorImpl::check_not_captured(const char* call) const {
  TORCH_CHECK(
      GraphRng::of_current_stream(device().index()) == nullptr,
      "Cannot call ",
      call,
      " during accel graph capture.");
}

void GeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(
      !cpu_,
      "accel: set_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, "
      "which have no offset. Unset ACCEL_RNG or use set_state.");
  check_not_captured("Generator.set_offset");
  move_to(offset);
}

void GeneratorImpl::move_to(uint64_t offset) {
  TORCH_CHECK(
      offset % kOffsetPerCall == 0, "accel: offset must be a multiple of 4, but got ", offset);
  if (const auto rng = GraphRng::of_current_stream(device().index())) {
    rng->set_offset(state_, offset);
    return;
  }
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->offset = offset;
}

uint64_t GeneratorImpl::get_offset() const {
  TORCH_CHECK(
      !cpu_,
      "accel: get_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, "
      "which have no offset. Unset ACCEL_RNG or use get_state.");
  check_not_captured("Generator.get_offset");
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->offset;
}

uint64_t GeneratorImpl::current_seed() const {
  if (cpu_) {
    return cpu_->current_seed();
  }
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->seed;
}

uint64_t GeneratorImpl::seed() {
  check_not_captured("Generator.seed");
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
  const uint64_t seed = current_seed();
  // In a capture the offset is the graph's: what torch.utils.checkpoint saves and sets again.
  const auto rng = GraphRng::of_current_stream(device().index());
  const uint64_t offset = rng != nullptr ? rng->offset(state_) : get_offset();
  at::Tensor state(at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed, kSeedBytes);
  std::memcpy(bytes + kSeedBytes, &offset, sizeof(offset));
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
  TORCH_CHECK( // first, so that a refused state changes nothing
      offset % kOffsetPerCall == 0,
      "accel: offset must be a multiple of 4, but got ",
      offset);
  set_current_seed(seed);
  move_to(offset);
}

void GeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto* const other = dynamic_cast<GeneratorImpl*>(state.get());
  TORCH_CHECK(
      other != nullptr && other->device() == device() && !cpu_,
      "accel: graphsafe_set_state needs a Philox generator of ",
      device());
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> GeneratorImpl::graphsafe_get_state() const {
  TORCH_CHECK(!cpu_, "accel: graphsafe_get_state needs the Philox generator; unset ACCEL_RNG");
  return c10::make_intrusive<GeneratorImpl>(device().index(), state_);
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  check_not_captured("Generator.clone_state");
  std::optional<at::Generator> cpu;
  if (cpu_) {
    std::lock_guard<std::mutex> lock(cpu_->unsafeGetGeneratorImpl()->mutex_);
    cpu = cpu_->clone();
  }
  auto* copy = new GeneratorImpl(device().index()); // clone() takes the first reference
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    copy->state_->seed = state_->seed;
    copy->state_->offset = state_->offset;
  }
  copy->cpu_ = std::move(cpu);
  return copy;
}

CallKey GeneratorImpl::reserve_key() {
  TORCH_INTERNAL_ASSERT(!cpu_, "ACCEL_RNG=cpu has no keys");
  if (const auto rng = GraphRng::of_current_stream(device().index())) {
    return rng->reserve(state_);
  }
  std::lock_guard<std::mutex> lock(state_->mutex);
  const CallKey key(philox::call_key(state_->seed, state_->offset));
  state_->offset += kOffsetPerCall;
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
  return at::detail::createCPUGenerator(generator->reserve_key().resolve());
}

} // namespace accel
