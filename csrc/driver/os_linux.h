// Every system call of the chip. Nothing here allocates unless it says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace accel::driver::os {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kForever = UINT64_MAX;

// ---- Memory ----
// Address space that faults on access; null on failure.
void* reserve(size_t bytes) noexcept;
// Zeroed memory whose pages come with their first use; null on failure.
void* reserve_lazily_backed(size_t bytes) noexcept;
void unreserve(void* address, size_t bytes) noexcept;
// An anonymous memory file of that size; -1 on failure.
int open_memory(const char* name, size_t bytes) noexcept;
void close_memory(int file) noexcept;
// Places a memory file in reserved space; forked children do not inherit it.
bool map_memory(void* address, size_t bytes, int file) noexcept;
// Gives the pages of a mapped memory file back; it reads as zero afterwards.
void drop_pages(void* address, size_t bytes) noexcept;
// Makes reserved space ordinary private memory, and back.
bool map_private(void* address, size_t bytes) noexcept;
bool unmap_private(void* address, size_t bytes) noexcept;
// The smaller of the machine's memory and the control group's limit.
uint64_t memory_limit();

// ---- Time and waiting ----
uint64_t now() noexcept; // CLOCK_MONOTONIC, nanoseconds
void yield() noexcept;
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
// Returns when `word` differs from `expected`, is woken, after the timeout, or spuriously.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout) noexcept;
void futex_wake_all(const std::atomic<uint32_t>& word) noexcept;

// ---- Threads and processes ----
// A detached thread that takes no asynchronous signals. False if the system has none left.
bool start_thread(void (*body)(void*), void* argument) noexcept;
bool at_fork_in_child(void (*handler)()) noexcept;

// ---- Faults ----
void write_error(const char* text, size_t length) noexcept;
// Calls `explain` (async-signal-safe) with the faulting address, then the handler before ours.
bool install_fault_handler(void (*explain)(uintptr_t address)) noexcept;

} // namespace accel::driver::os
