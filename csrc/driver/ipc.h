// Descriptors that a forked child must not keep, and what holds them.
#pragma once

namespace accel::driver {

// A socket of which a forked child closes its copy, so that it holds nothing open in the name of a
// process that ended. Hangs up at the end.
class Socket {
 public:
  // Takes `file`.
  explicit Socket(int file);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  const int file;
};

// Handlers of fork().
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

} // namespace accel::driver
