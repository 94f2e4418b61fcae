#include "fault_handler.h"

#include <cstring>

#include "os_linux.h"
#include "process.h"

namespace accel::driver {

namespace {

// A line of text, built without the heap or stdio.
class Line {
 public:
  Line& operator<<(const char* text) {
    const size_t room = sizeof(text_) - length_;
    const size_t length = std::strlen(text);
    const size_t taken = length < room ? length : room;
    std::memcpy(text_ + length_, text, taken);
    length_ += taken;
    return *this;
  }
  Line& decimal(uint64_t value) {
    return number(value, 10);
  }
  Line& address(uint64_t value) {
    return (*this << "0x").number(value, 16);
  }
  void print() const {
    os::write_error(text_, length_);
  }

 private:
  Line& number(uint64_t value, unsigned base) {
    char digits[21];
    char* first = digits + sizeof(digits) - 1;
    *first = '\0';
    do {
      *--first = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return *this << first;
  }

  char text_[768];
  size_t length_ = 0;
};

void explain_device_access(Line& line, uintptr_t address, const Located& place) {
  line << "torch_accel: host access to accel:";
  line.decimal(static_cast<uint64_t>(place.device)) << " memory at ";
  line.address(address) << " (";
  const Block block = g_chip->blocks.find(place.offset);
  if (block.bytes == 0) {
    line << "in no block";
  } else {
    line << "byte ";
    line.decimal(place.offset - block.offset) << " of a " << (block.live ? "live " : "free ");
    line.decimal(block.bytes) << "-byte block at ";
    line.address(g_chip->map.device().base + block.offset);
  }
  if (place.imported) {
    line << ", shared by another process";
  } else if (block.bytes != 0) {
    line << (block.live ? ", allocated on stream " : ", last allocated on stream ");
    if (block.owner < 0) {
      line << "-";
    }
    line.decimal(static_cast<uint64_t>(block.owner < 0 ? -block.owner : block.owner));
  }
  line << "). Device memory cannot be touched by the host: copy it with tensor.cpu(), or view it "
          "with torch.accel.memory.numpy(tensor).\n";
}

} // namespace

void explain_fault(uintptr_t address) {
  const Located place = locate(address);
  Line line;
  if (place.kind == accelMemoryDevice && place.device >= 0) {
    explain_device_access(line, address, place);
  } else if (place.kind == accelMemoryDevice) {
    line << "torch_accel: host access to ";
    line.address(address) << ", an address of no accel device.\n";
  } else if (place.kind == accelMemoryArena && g_state.load() == State::kForked) {
    line << "torch_accel: access to accel memory in a forked child process, where it does not "
            "exist: use the 'spawn' start method.\n";
  } else {
    return;
  }
  line.print();
}

} // namespace accel::driver

extern "C" accelError_t accelFaultHandlerInstall(void) {
  using namespace accel::driver;
  return entry([] {
    return os::install_fault_handler(explain_fault)
        ? accelSuccess
        : fail(accelErrorNotSupported, "accel: the system refused a handler for SIGSEGV");
  });
}
