// Events that several processes record and wait for: a page of shared memory with the number of
// the newest recording, and for each of the last ones who made it and whether it is complete.
#pragma once

#include <atomic>
#include <memory>

#include "accel_ipc.h"
#include "error.h"

namespace accel::driver {

class SharedEvent {
 public:
  // Null with the message set.
  static std::shared_ptr<SharedEvent> create();
  static std::shared_ptr<SharedEvent> open(const accelIpcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void write_handle(accelIpcEventHandle* handle) const;
  // The newest recording; 0: none.
  uint64_t newest() const;
  // Begins a recording of this process; 0 with the message set if too many are incomplete.
  uint64_t begin();
  // Makes it what others wait for.
  void publish(uint64_t recording);
  void complete(uint64_t recording);
  bool is_complete(uint64_t recording) const;
  // Whether the process that made the recording lives.
  bool is_alive(uint64_t recording) const;

 private:
  struct Page;
  SharedEvent(int file, Page* page) : file_(file), page_(page) {}

  const int file_;
  Page* const page_;
};

} // namespace accel::driver
