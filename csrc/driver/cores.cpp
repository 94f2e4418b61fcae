#include "cores.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "mix.h"
#include "os_linux.h"
#include "process.h"
#include "wait.h"

namespace accel::driver {

namespace {

constexpr uint64_t kIdleBeforeEnd = 2'000'000'000;
constexpr uint64_t kSpinBeforePark = 200'000;

// A wait as in wait.h, with the yields bounded by time: on a busy host one may take milliseconds.
class Patience {
 public:
  // Lets some time pass; false when it is time to park.
  bool spin() {
    if (pauses_ < kPauses) {
      ++pauses_;
      os::pause();
      return true;
    }
    os::yield();
    return os::now() < until_;
  }

 private:
  const uint64_t until_ = os::now() + kSpinBeforePark;
  int pauses_ = 0;
};

// The scratch memory of a thread that runs programs.
class Scratch {
 public:
  explicit Scratch(size_t bytes)
      : bytes_(bytes), data_(static_cast<uint8_t*>(os::reserve_lazily_backed(bytes))) {}
  ~Scratch() {
    if (data_ != nullptr) {
      os::unreserve(data_, bytes_);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  uint8_t* data() const {
    return data_;
  }
  size_t bytes() const {
    return bytes_;
  }

 private:
  const size_t bytes_;
  uint8_t* const data_;
};

// Default rounding, no flushing of denormals, no traps, until the end of the scope: a thread starts
// with the settings of the one that made it.
class DefaultFloatControl {
 public:
#if defined(__x86_64__)
  DefaultFloatControl() : before_(_mm_getcsr()) {
    _mm_setcsr(0x1f80);
  }
  ~DefaultFloatControl() {
    _mm_setcsr(before_);
  }

 private:
  const uint32_t before_;
#elif defined(__aarch64__)
  DefaultFloatControl() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
  }
  ~DefaultFloatControl() {
    asm volatile("msr fpcr, %0" ::"r"(before_));
  }

 private:
  uint64_t before_;
#endif
};

// A permutation of the numbers below `count`: four rounds of Feistel's network on the next power of
// four, again until the number is one of them.
uint64_t shuffled(uint64_t number, uint64_t count, uint64_t seed) {
  int half = 1;
  while ((uint64_t{1} << (2 * half)) < count) {
    ++half;
  }
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = number >> half;
    uint64_t right = number & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      left ^= mix(right + (mix(seed + 1) ^ (round << 32))) & mask;
      std::swap(left, right);
    }
    number = left << half | right;
  } while (number >= count);
  return number;
}

// The program of the claim with that number.
uint64_t program_of(const Grid& grid, uint64_t claim) {
  switch (grid.order) {
    case accelGridReverse:
      return grid.programs - 1 - claim;
    case accelGridShuffled:
      return shuffled(claim, grid.programs, grid.seed);
    default:
      return claim;
  }
}

// What a thread runs, with what its waiting loops wait for.
struct Running : accelGridContext {
  Grid* all;
  uint64_t turns = 0; // of the last call of wait_in_loop
  uint64_t claimed = 0; // by all, since
  uint64_t since = 0; // os::now()
};

int32_t wait_in_loop(const accelGridContext* context, uint32_t site, uint64_t turns) {
  auto& running = *static_cast<Running*>(const_cast<accelGridContext*>(context));
  os::yield();
  const uint64_t limit = g_chip->config.watchdog;
  if (limit == 0) {
    return 0;
  }
  const uint64_t now = os::now();
  const uint64_t claimed = running.all->next.load(std::memory_order_relaxed);
  if (turns <= running.turns || claimed != running.claimed) {
    running.since = now;
  }
  running.turns = turns;
  running.claimed = claimed;
  if (now - running.since < limit) {
    return 0;
  }
  auto* const fault = static_cast<accelGridFault*>(context->fault);
  fault->kind = accelGridFaultStuck;
  fault->site = site;
  return 1;
}

// Claims and runs programs until there are none left; true if one wrote `fault`.
bool take_part(Grid& grid, const Scratch& scratch, accelGridFault* fault) {
  const DefaultFloatControl control;
  Running context{};
  context.all = &grid;
  context.size = sizeof(accelGridContext);
  context.wait = wait_in_loop;
  context.offset = static_cast<uintptr_t>(g_chip->map.offset());
  std::copy_n(grid.size, 3, context.grid);
  context.sram = scratch.data();
  context.sram_size = scratch.bytes();
  context.abort = reinterpret_cast<volatile uint32_t*>(&grid.abort);
  context.fault = fault;
  fault->size = sizeof(*fault);
  fault->kind = accelGridFaultOther;
  fault->site = ACCEL_GRID_NO_SITE;
  fault->text[0] = 0;
  const uint64_t row = grid.size[0];
  const uint64_t plane = row * grid.size[1];
  while (grid.abort.load(std::memory_order_relaxed) == 0) {
    const uint64_t claim = grid.next.fetch_add(1, std::memory_order_relaxed);
    if (claim >= grid.programs) {
      break;
    }
    const uint64_t program = program_of(grid, claim);
    context.program[0] = static_cast<uint32_t>(program % row);
    context.program[1] = static_cast<uint32_t>(program % plane / row);
    context.program[2] = static_cast<uint32_t>(program / plane);
    if (grid.function(&context, grid.args) != 0) {
      std::copy_n(context.program, 3, fault->program);
      grid.abort.store(1);
      return true;
    }
  }
  return false;
}

// A thread of the pool is idle, or assigned to a grid that it has not begun, or it runs programs,
// or has run them. Who assigns it takes it back: before it began, or when it is done.
enum CoreState : uint32_t { kIdle = 0, kAssigned = 1, kRuns = 2, kAwaited = 3, kDone = 4 };

struct Core {
  explicit Core(size_t sram) : scratch(sram) {}

  const Scratch scratch;
  std::atomic<uint32_t> state{kIdle};
  std::atomic<bool> parked{false};
  std::atomic<uint32_t> signal{0}; // what a parked thread sleeps on
  Grid* grid = nullptr; // written before the state becomes kAssigned
  bool faulted = false; // of the grid that it has done
  accelGridFault fault;
};

struct Cores {
  std::mutex mutex; // a leaf
  std::vector<Core*> idle;
  uint32_t lent = 0; // to grids that are not cooperative
  bool ending = false;
  std::atomic<uint32_t> threads{0};
};

Cores& cores() {
  static Cores* cores = new Cores();
  return *cores;
}

// Waits for an assignment and begins it; false when the thread is to end.
bool begin_assignment(Core& core) {
  Cores& pool = cores();
  const uint64_t deadline = os::now() + kIdleBeforeEnd;
  Patience patience;
  while (true) {
    uint32_t state = core.state.load();
    if (state == kAssigned) {
      if (core.state.compare_exchange_strong(state, kRuns)) {
        return true;
      }
    } else if (!patience.spin()) {
      // Dekker with assign(): it sees a parked thread, or this one its assignment.
      core.parked.store(true);
      const uint32_t signal = core.signal.load();
      const uint64_t now = os::now();
      {
        std::lock_guard<std::mutex> lock(pool.mutex);
        const auto place = std::find(pool.idle.begin(), pool.idle.end(), &core);
        if (place != pool.idle.end() && (pool.ending || now >= deadline)) {
          pool.idle.erase(place);
          return false;
        }
      }
      if (core.state.load() != kAssigned) {
        os::futex_wait(core.signal, signal, now < deadline ? deadline - now : kIdleBeforeEnd);
      }
      core.parked.store(false);
    }
  }
}

void core_main(void* argument) {
  {
    const std::unique_ptr<Core> core(static_cast<Core*>(argument));
    while (begin_assignment(*core)) {
      core->faulted = take_part(*core->grid, core->scratch, &core->fault);
      if (core->state.exchange(kDone) == kAwaited) {
        os::futex_wake_all(core->state);
      }
    }
  }
  Cores& pool = cores();
  pool.threads.fetch_sub(1);
  os::futex_wake_all(pool.threads);
}

// A new thread, which is not in the list of idle ones; null if the system has none left.
Core* start_core() {
  auto core = std::make_unique<Core>(g_chip->config.sram);
  Cores& pool = cores();
  pool.threads.fetch_add(1);
  if (core->scratch.data() == nullptr || !os::start_thread(core_main, core.get())) {
    pool.threads.fetch_sub(1);
    return nullptr;
  }
  return core.release();
}

// Up to `count` threads; a cooperative grid gets all that it asks for, others share the device's.
std::vector<Core*> borrow(uint32_t count, bool cooperative) {
  Cores& pool = cores();
  std::vector<Core*> borrowed;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (!cooperative) {
      count = std::min(count, g_chip->config.cores - 1 - pool.lent);
      pool.lent += count;
    }
    const size_t idle = std::min<size_t>(count, pool.idle.size());
    borrowed.assign(pool.idle.end() - static_cast<std::ptrdiff_t>(idle), pool.idle.end());
    pool.idle.resize(pool.idle.size() - idle);
  }
  while (borrowed.size() < count) {
    Core* core = start_core();
    if (core == nullptr) {
      break;
    }
    borrowed.push_back(core);
  }
  if (!cooperative && borrowed.size() < count) {
    std::lock_guard<std::mutex> lock(pool.mutex);
    pool.lent -= count - static_cast<uint32_t>(borrowed.size());
  }
  return borrowed;
}

void give_back(const std::vector<Core*>& borrowed, bool cooperative) {
  Cores& pool = cores();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.idle.insert(pool.idle.end(), borrowed.begin(), borrowed.end());
  if (!cooperative) {
    pool.lent -= static_cast<uint32_t>(borrowed.size());
  }
}

void wake(Core& core) {
  core.signal.fetch_add(1);
  os::futex_wake_all(core.signal);
}

void assign(Core& core, Grid& grid) {
  core.grid = &grid;
  core.state.store(kAssigned);
  if (core.parked.load()) {
    wake(core);
  }
}

// Waits until the thread does not run programs of the grid; false if it never did.
bool take_back(Core& core) {
  uint32_t state = kAssigned;
  if (core.state.compare_exchange_strong(state, kIdle)) {
    return false;
  }
  for (Patience patience; state != kDone; state = core.state.load()) {
    if (!patience.spin() &&
        (state == kAwaited || core.state.compare_exchange_strong(state, kAwaited))) {
      os::futex_wait(core.state, kAwaited, os::kForever);
    }
  }
  core.state.store(kIdle);
  return true;
}

uint64_t number_of(const accelGridFault& fault, const uint32_t* size) {
  return (uint64_t{fault.program[2]} * size[1] + fault.program[1]) * size[0] + fault.program[0];
}

} // namespace

GridEnd run_grid(Grid& grid, accelGridFault* fault) {
  thread_local const Scratch scratch(g_chip->config.sram);
  if (scratch.data() == nullptr) {
    return GridEnd::kNoMemory;
  }
  const uint64_t wanted = std::min<uint64_t>(grid.cores, grid.programs) - 1;
  const std::vector<Core*> others =
      wanted == 0 ? std::vector<Core*>() : borrow(static_cast<uint32_t>(wanted), grid.cooperative);
  if (grid.cooperative && others.size() < wanted) {
    give_back(others, true);
    return GridEnd::kNoThreads;
  }
  for (Core* core : others) {
    assign(*core, grid);
  }
  bool faulted = take_part(grid, scratch, fault);
  for (Core* core : others) {
    if (take_back(*core) && core->faulted &&
        (!faulted || number_of(core->fault, grid.size) < number_of(*fault, grid.size))) {
      *fault = core->fault;
      faulted = true;
    }
  }
  if (!others.empty()) {
    give_back(others, grid.cooperative);
  }
  return faulted ? GridEnd::kFaulted : GridEnd::kRan;
}

void end_cores(uint64_t deadline) {
  Cores& pool = cores();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    pool.ending = true;
    for (Core* core : pool.idle) {
      wake(*core);
    }
  }
  for (uint32_t threads = pool.threads.load(); threads != 0; threads = pool.threads.load()) {
    const uint64_t now = os::now();
    if (now >= deadline) {
      return;
    }
    os::futex_wait(pool.threads, threads, deadline - now);
  }
}

} // namespace accel::driver
