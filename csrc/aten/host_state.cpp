#include "host_state.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Of the OpenMP and MKL inside libtorch_cpu. Never at::set_num_threads on a worker: it would also
// change what new host threads start with.
extern "C" void omp_set_num_threads(int threads);
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace accel {

namespace {

uint32_t read_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return static_cast<uint32_t>(fpcr);
#endif
}

void write_control(uint32_t control) {
#if defined(__x86_64__)
  _mm_setcsr(control);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(static_cast<uint64_t>(control)));
#endif
}

int threads_from_environment() {
  const char* text = std::getenv("ACCEL_THREADS");
  if (text == nullptr) {
    return 0;
  }
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  TORCH_CHECK(
      *text != '\0' && *end == '\0' && threads >= 1 && threads <= 4096,
      "accel: ACCEL_THREADS='",
      text,
      "' is not a thread count; use a whole number from 1 to 4096, or unset it to follow "
      "torch.set_num_threads");
  return static_cast<int>(threads);
}

// A backward runs on a thread of the autograd engine, which torch.set_num_threads does not reach:
// it takes the count of the thread that last launched anything else.
int32_t requested_threads() {
  static std::atomic<int32_t> last{0};
  if (torch::autograd::get_current_graph_task_id() != -1) {
    if (const auto threads = last.load(std::memory_order_relaxed)) {
      return threads;
    }
    return at::get_num_threads();
  }
  const auto threads = at::get_num_threads();
  last.store(threads, std::memory_order_relaxed);
  return threads;
}

} // namespace

HostState HostState::of_this_thread() {
  static const int override_threads = threads_from_environment();
  return {override_threads != 0 ? override_threads : requested_threads(), read_control()};
}

ApplyHostState::ApplyHostState(const HostState& state) : saved_control_(read_control()) {
  thread_local int32_t applied = 0;
  if (applied == 0) {
    at::get_num_threads(); // torch sets a new thread's count at its first question: have that over
  }
  if (applied != state.threads) {
    omp_set_num_threads(state.threads);
    if (MKL_Set_Num_Threads_Local != nullptr) {
      MKL_Set_Num_Threads_Local(state.threads);
    }
    applied = state.threads;
  }
  if (saved_control_ != state.control) {
    write_control(state.control);
  }
}

ApplyHostState::~ApplyHostState() {
  if (read_control() != saved_control_) {
    write_control(saved_control_);
  }
}

} // namespace accel
