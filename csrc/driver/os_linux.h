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
bool map_memory(void* address, size_t bytes, int file, uint64_t offset = 0) noexcept;
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
// The cores that this process may run on, at least 1.
uint64_t host_cores() noexcept;
// A detached thread that takes no asynchronous signals. False if the system has none left.
bool start_thread(void (*body)(void*), void* argument) noexcept;
bool at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept;

// ---- Between processes ----
// A connected pair of sockets that keep the bounds of messages.
bool open_pair(int ends[2]) noexcept;
void close_file(int file) noexcept;
// Tells the other end that this one is closed, even while a forked child has a copy of it.
void hang_up(int socket) noexcept;
// Sends a message without waiting, with a descriptor unless `file` is -1.
bool send(int socket, const void* data, size_t bytes, int file = -1) noexcept;
// Takes a message that is there; false if it is of another size. `file`: the descriptor that came
// with it, or -1.
bool receive(int socket, void* data, size_t bytes, int* file) noexcept;
enum class Peer { kSilent, kSpeaks, kGone };
// Whether a message is there or the other end is closed, after at most `timeout` nanoseconds. What
// it said before it closed comes first.
Peer listen(int socket, uint64_t timeout) noexcept;
// Whether every copy of the other end is closed, whatever is left to receive.
bool is_gone(int socket) noexcept;
// A whole memory file, shared with whoever else maps it; unreserve ends it.
void* map_shared(int file, size_t bytes) noexcept;
int process_id() noexcept;
// False for a process that ended, also before its parent took note.
bool is_process_alive(int process) noexcept;
// A descriptor of this process for the memory file of that size behind another one's; -1 if there
// is none.
int open_file_of(int process, int file, size_t bytes) noexcept;
uint64_t random_number() noexcept;

// ---- Faults ----
void write_error(const char* text, size_t length) noexcept;
// Calls `explain` (async-signal-safe) with the faulting address, then the handler before ours.
bool install_fault_handler(void (*explain)(uintptr_t address)) noexcept;

} // namespace accel::driver::os
