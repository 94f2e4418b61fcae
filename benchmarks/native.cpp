// What the benchmarks measure against: torch's generic fallback in the place of accel's own add,
// and two threads that hand a futex back and forth.
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

namespace {

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

std::atomic<uint32_t> g_ball{0};

// Sleeps until the ball is on `side`, as a worker and a waiting host do when neither spins.
void await(uint32_t side) {
  while (g_ball.load() != side) {
    syscall(SYS_futex, &g_ball, FUTEX_WAIT_PRIVATE, 1 - side, nullptr, nullptr, 0);
  }
}

void pass_to(uint32_t side) {
  g_ball.store(side);
  syscall(SYS_futex, &g_ball, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

} // namespace

// While on, aten::add.Tensor on accel goes through at::native::cpu_fallback.
extern "C" void use_cpu_fallback(int on) {
  static std::optional<c10::RegistrationHandleRAII> handle;
  handle.reset();
  if (on != 0) {
    handle.emplace(
        c10::Dispatcher::singleton().registerImpl(
            c10::OperatorName("aten::add", "Tensor"),
            c10::DispatchKey::PrivateUse1,
            c10::KernelFunction::makeFromBoxedFunction<&fall_back>(),
            std::nullopt,
            nullptr,
            "benchmarks/native.cpp"));
  }
}

// `count` times to another thread and back.
extern "C" void futex_round_trips(int64_t count) {
  static const bool started = [] {
    std::thread([] {
      while (true) {
        await(1);
        pass_to(0);
      }
    }).detach();
    return true;
  }();
  (void)started;
  for (int64_t i = 0; i < count; ++i) {
    pass_to(1);
    await(0);
  }
}
