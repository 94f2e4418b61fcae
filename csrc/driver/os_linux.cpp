#include "os_linux.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#if !defined(__linux__) || !defined(__LP64__)
#error "torch_accel builds on 64-bit Linux only"
#endif

namespace accel::driver::os {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

void* map(
    void* address,
    size_t bytes,
    int protection,
    int flags,
    int file = -1,
    uint64_t offset = 0) noexcept {
  void* result = mmap(address, bytes, protection, flags, file, static_cast<off_t>(offset));
  return result == MAP_FAILED ? nullptr : result;
}

timespec to_timespec(uint64_t nanoseconds) noexcept {
  timespec result;
  result.tv_sec = static_cast<time_t>(nanoseconds / kSecond);
  result.tv_nsec = static_cast<long>(nanoseconds % kSecond);
  return result;
}

// The limit in `directory` or, limits being nested, in any directory above it.
uint64_t lowest_limit(std::string directory, const std::string& root, const char* file) {
  uint64_t lowest = UINT64_MAX;
  while (directory.size() >= root.size()) {
    std::ifstream stream(directory + "/" + file);
    uint64_t limit = 0; // "max" does not parse and means none
    if (stream >> limit && limit != 0) {
      lowest = std::min(lowest, limit);
    }
    const size_t slash = directory.rfind('/');
    if (slash == std::string::npos) {
      break;
    }
    directory.resize(slash);
  }
  return lowest;
}

} // namespace

void* reserve(size_t bytes) noexcept {
  return map(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
}

void* reserve_lazily_backed(size_t bytes) noexcept {
  return map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
}

void unreserve(void* address, size_t bytes) noexcept {
  munmap(address, bytes);
}

int open_memory(const char* name, size_t bytes) noexcept {
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    return -1;
  }
  return file;
}

void close_memory(int file) noexcept {
  close(file);
}

bool map_memory(void* address, size_t bytes, int file, uint64_t offset) noexcept {
  const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  return map(address, bytes, PROT_READ | PROT_WRITE, flags, file, offset) != nullptr &&
      madvise(address, bytes, MADV_DONTFORK) == 0;
}

void drop_pages(void* address, size_t bytes) noexcept {
  madvise(address, bytes, MADV_REMOVE);
}

bool map_private(void* address, size_t bytes) noexcept {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  return map(address, bytes, PROT_READ | PROT_WRITE, flags) != nullptr;
}

bool unmap_private(void* address, size_t bytes) noexcept {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  return map(address, bytes, PROT_NONE, flags) != nullptr;
}

uint64_t memory_limit() {
  struct sysinfo info;
  uint64_t limit = UINT64_MAX;
  if (sysinfo(&info) == 0) {
    limit = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  }
  // Lines are "hierarchy:controllers:path"; version 2 is hierarchy 0 with no controllers.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t path = line.find(':', line.find(':') + 1);
    if (path == std::string::npos) {
      continue;
    }
    const std::string group = line.substr(path + 1);
    if (line.rfind("0::", 0) == 0) {
      const std::string root = "/sys/fs/cgroup";
      limit = std::min(limit, lowest_limit(root + group, root, "memory.max"));
    } else if (line.substr(0, path).find(":memory") != std::string::npos) {
      const std::string root = "/sys/fs/cgroup/memory";
      limit = std::min(limit, lowest_limit(root + group, root, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

uint64_t now() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

void yield() noexcept {
  sched_yield();
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout) noexcept {
  const timespec time = to_timespec(timeout);
  const timespec* limit = timeout == kForever ? nullptr : &time;
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

uint64_t host_cores() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return static_cast<uint64_t>(std::max(CPU_COUNT(&set), 1));
  }
  return static_cast<uint64_t>(
      std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)); // more than the set has
}

bool start_thread(void (*body)(void*), void* argument) noexcept {
  struct Start {
    void (*body)(void*);
    void* argument;
  };
  Start* start = new (std::nothrow) Start{body, argument};
  pthread_attr_t attributes;
  if (start == nullptr || pthread_attr_init(&attributes) != 0) {
    delete start;
    return false;
  }
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // The application's threads handle its signals; ours only those that they cause themselves.
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const int failed = pthread_create(
      &thread,
      &attributes,
      [](void* packed) -> void* {
        const Start unpacked = *static_cast<Start*>(packed);
        delete static_cast<Start*>(packed);
        pthread_setname_np(pthread_self(), "accel-worker");
        unpacked.body(unpacked.argument);
        return nullptr;
      },
      start);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    delete start;
  }
  return failed == 0;
}

bool at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  return pthread_atfork(before, in_parent, in_child) == 0;
}

bool open_pair(int ends[2]) noexcept {
  return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
}

void close_file(int file) noexcept {
  close(file);
}

void hang_up(int socket) noexcept {
  shutdown(socket, SHUT_RDWR);
}

namespace {

// A message of one piece with room for one descriptor.
struct Envelope {
  Envelope(void* data, size_t bytes) noexcept : piece{data, bytes} {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  void add_control() noexcept {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }

  iovec piece;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
};

short poll_one(int socket, uint64_t timeout) noexcept {
  pollfd one = {socket, POLLIN, 0};
  const timespec limit = to_timespec(timeout);
  return ppoll(&one, 1, &limit, nullptr) > 0 ? one.revents : short{0};
}

} // namespace

bool send(int socket, const void* data, size_t bytes, int file) noexcept {
  Envelope envelope(const_cast<void*>(data), bytes);
  if (file >= 0) {
    envelope.add_control();
    cmsghdr* control = CMSG_FIRSTHDR(&envelope.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &file, sizeof(int));
  }
  return sendmsg(socket, &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT) ==
      static_cast<ssize_t>(bytes);
}

bool receive(int socket, void* data, size_t bytes, int* file) noexcept {
  Envelope envelope(data, bytes);
  envelope.add_control();
  *file = -1;
  const ssize_t received = recvmsg(socket, &envelope.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* control = received < 0 ? nullptr : CMSG_FIRSTHDR(&envelope.header);
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS) {
    std::memcpy(file, CMSG_DATA(control), sizeof(int));
  }
  return received == static_cast<ssize_t>(bytes) && (envelope.header.msg_flags & MSG_TRUNC) == 0;
}

Peer listen(int socket, uint64_t timeout) noexcept {
  if (poll_one(socket, timeout) == 0) {
    return Peer::kSilent;
  }
  char byte = 0; // the end of the stream polls as readable too
  ssize_t received = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (received < 0 && errno == ECONNRESET) { // reported once, before what was said
    received = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  }
  return received > 0 ? Peer::kSpeaks : Peer::kGone;
}

bool is_gone(int socket) noexcept {
  return (poll_one(socket, 0) & (POLLHUP | POLLERR)) != 0;
}

void* map_shared(int file, size_t bytes) noexcept {
  return map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file);
}

int process_id() noexcept {
  return getpid();
}

bool is_process_alive(int process) noexcept {
  const int file = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (file < 0) {
    return errno != ESRCH; // a kernel without it cannot tell
  }
  const bool ended = poll_one(file, 0) != 0;
  close(file);
  return !ended;
}

int open_file_of(int process, int file, size_t bytes) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", process, file);
  const int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (opened >= 0 &&
      (fstat(opened, &status) != 0 || !S_ISREG(status.st_mode) ||
       static_cast<size_t>(status.st_size) != bytes)) {
    close(opened);
    return -1;
  }
  return opened;
}

uint64_t random_number() noexcept {
  uint64_t number = 0;
  return getrandom(&number, sizeof(number), 0) == sizeof(number) ? number : now();
}

void write_error(const char* text, size_t length) noexcept {
  while (length > 0) {
    const ssize_t written = write(STDERR_FILENO, text, length);
    if (written <= 0) {
      return;
    }
    text += written;
    length -= static_cast<size_t>(written);
  }
}

// ---- The fault handler's chain ----

namespace {

void (*g_explain)(uintptr_t) = nullptr;
struct sigaction g_previous;
std::atomic<pid_t> g_chaining{0}; // the thread inside the previous handler

pid_t thread_id() noexcept {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

void take_default_action(int signal, bool raised) noexcept {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (raised) {
    raise(signal);
  } // else the faulting instruction runs again, and the process ends there with a useful core
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const bool raised = info->si_code <= 0;
  // Python's faulthandler ends by restoring its predecessor and raising the signal again. If that
  // predecessor is ours, calling it once more would never end.
  if (raised && g_chaining.load() == thread_id()) {
    take_default_action(signal, true);
    return;
  }
  if (!raised) {
    g_explain(reinterpret_cast<uintptr_t>(info->si_addr));
  }
  if ((g_previous.sa_flags & SA_SIGINFO) == 0 &&
      (g_previous.sa_handler == SIG_DFL || g_previous.sa_handler == SIG_IGN)) {
    take_default_action(signal, raised);
    return;
  }
  g_chaining.store(thread_id());
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else {
    g_previous.sa_handler(signal);
  }
  g_chaining.store(0);
}

} // namespace

bool install_fault_handler(void (*explain)(uintptr_t address)) noexcept {
  struct sigaction current;
  if (sigaction(SIGSEGV, nullptr, &current) != 0) {
    return false;
  }
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) {
    return true;
  }
  g_explain = explain;
  g_previous = current;
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  return sigaction(SIGSEGV, &ours, nullptr) == 0;
}

} // namespace accel::driver::os
