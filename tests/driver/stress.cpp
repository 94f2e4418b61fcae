// A stress test of the chip: random launches, copies, events and graphs from several threads on
// several streams, whose results are known beforehand.
//
// usage: stress SECONDS [SEED]. Prints "ok" and returns 0, or says what went wrong and returns 1. A
// hang is the caller's to end.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "accel.h"
#include "accel_graph.h"
#include "accel_grid.h"

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937;

constexpr int kThreads = 4;
constexpr int kStreams = 3; // of each thread, over two devices
constexpr int kBuffers = 5;
constexpr size_t kWords = 700;

intptr_t g_offset = 0;
std::atomic<uint64_t> g_launched{0};
std::atomic<uint64_t> g_destroyed{0};
std::atomic<uint64_t> g_loaded{0};
std::atomic<uint64_t> g_released{0};
uint64_t g_plain_counter = 0; // written by the workers of one stream only

[[noreturn]] void give_up(const char* what) {
  std::printf("wrong: %s (%s)\n", what, accelGetLastErrorMessage());
  std::fflush(stdout);
  std::_Exit(1);
}

void expect(bool condition, const char* what) {
  if (!condition) {
    give_up(what);
  }
}

void check(accelError_t code) {
  if (code != accelSuccess) {
    give_up("an error");
  }
}

uint32_t* on_host(uint32_t* device_address) {
  return reinterpret_cast<uint32_t*>(reinterpret_cast<intptr_t>(device_address) + g_offset);
}

template <class Kernel>
void launch(accelStream_t stream, const char* name, const Kernel& kernel, size_t extra_bytes = 0) {
  accelLaunchInfo info{};
  info.size = sizeof(info);
  info.name = name;
  accelAccess accesses[3] = {
      {1, stream, 4, accelAccessRead, 0, 0}, {2, stream, 8, accelAccessWrite, 0, 0}, {}};
  info.accesses = accesses;
  info.num_accesses = 3;
  accelLaunch launch{};
  launch.size = sizeof(launch);
  launch.info = &info;
  launch.payload_bytes = sizeof(Kernel) + extra_bytes;
  launch.invoke = [](const void* payload) { return (*static_cast<const Kernel*>(payload))(); };
  launch.destroy = [](void*) { g_destroyed.fetch_add(1, std::memory_order_relaxed); };
  void* payload = nullptr;
  check(accelLaunchBegin(stream, &launch, &payload));
  new (payload) Kernel(kernel);
  std::memset(static_cast<char*>(payload) + sizeof(Kernel), 0xab, extra_bytes);
  check(accelLaunchCommit(stream, nullptr));
  g_launched.fetch_add(1, std::memory_order_relaxed);
}

struct GridArguments {
  uint32_t* words;
  uint32_t value;
  uint32_t failing; // the program that fails, if there is one
  std::atomic<uint32_t>* turn; // of this launch
};

bool wait_for_turn(const accelGridContext& context, const GridArguments& args, uint32_t turn) {
  while (args.turn->load(std::memory_order_acquire) < turn) {
    if (__atomic_load_n(context.abort, __ATOMIC_RELAXED) != 0) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

// Each program adds to its share of the words, and waits with its core's scratch memory for the
// programs before it; the last one adds to all.
int32_t add_by_grid(const accelGridContext* context, const void* bytes) {
  const auto& args = *static_cast<const GridArguments*>(bytes);
  const uint32_t program = context->program[0];
  const uint32_t programs = context->grid[0];
  auto* const words =
      reinterpret_cast<uint32_t*>(reinterpret_cast<uintptr_t>(args.words) + context->offset);
  for (size_t i = program; i < kWords; i += programs) {
    words[i] += args.value - 1;
  }
  std::memset(context->sram, static_cast<int>(program), 64);
  if (!wait_for_turn(*context, args, program)) {
    return 0;
  }
  expect(context->sram[63] == program, "the scratch memory of a core");
  if (program == programs - 1) {
    for (size_t i = 0; i < kWords; ++i) {
      ++words[i];
    }
  }
  args.turn->store(program + 1, std::memory_order_release);
  return 0;
}

// One program fails, if there is such a program; the others wait until they are told to give up.
int32_t fail_in_grid(const accelGridContext* context, const void* bytes) {
  const auto& args = *static_cast<const GridArguments*>(bytes);
  if (context->program[0] == args.failing) {
    static_cast<accelGridFault*>(context->fault)->kind = accelGridFaultOther;
    return 1;
  }
  wait_for_turn(*context, args, 1);
  return 0;
}

void launch_grid(
    accelStream_t stream,
    accelGridFunction function,
    GridArguments args,
    uint32_t programs,
    uint32_t cores,
    bool cooperative) {
  args.turn = new std::atomic<uint32_t>(0);
  accelModuleInfo info{};
  info.size = sizeof(info);
  info.name = "grid";
  info.function = function;
  info.args_bytes = sizeof(args);
  info.user = args.turn;
  info.release = [](void* turn) {
    delete static_cast<std::atomic<uint32_t>*>(turn);
    g_released.fetch_add(1, std::memory_order_relaxed);
  };
  accelModule_t module = nullptr;
  check(accelModuleLoad(&info, &module));
  g_loaded.fetch_add(1, std::memory_order_relaxed);
  accelGridLaunch launch{};
  launch.size = sizeof(launch);
  launch.grid[0] = programs;
  launch.grid[1] = launch.grid[2] = 1;
  launch.cores = cores;
  launch.cooperative = cooperative ? 1 : 0;
  launch.args = &args;
  launch.args_bytes = sizeof(args);
  check(accelLaunchGrid(stream, module, &launch, nullptr));
  accelModuleUnload(module); // the launch has it
}

constexpr uint32_t kNobody = UINT32_MAX;

accelEvent_t make_event(uint32_t flags) {
  accelEvent_t event = nullptr;
  check(accelEventCreate(flags, &event));
  return event;
}

// Device memory, and what it must hold once everything enqueued so far has run.
struct Buffer {
  uint32_t* address = nullptr;
  uint32_t expected = 0; // word i holds expected + i
  accelStream_t last = nullptr; // the stream of the newest launch on it
};

// One host thread with streams, buffers and events of its own. Every use of a buffer on another
// stream than before is ordered by an event, which is then recorded again or destroyed at once.
class Player {
 public:
  Player(uint32_t seed, accelStream_t shared) : random_(seed), shared_(shared) {
    for (int i = 0; i < kStreams; ++i) {
      accelStream_t stream = nullptr;
      check(accelStreamCreate(i % 2, 0, &stream));
      streams_.push_back(stream);
    }
    for (int i = 0; i < kBuffers; ++i) {
      Buffer buffer;
      check(accelMalloc(i % 2, kWords * 4, reinterpret_cast<void**>(&buffer.address)));
      buffer.last = streams_[0];
      buffers_.push_back(buffer);
      set(buffers_.back(), streams_[0], next());
    }
    check(accelHostAlloc(kWords * 4, reinterpret_cast<void**>(&pinned_)));
    for (int i = 0; i < 3; ++i) {
      events_.push_back(make_event(accelEventTiming));
    }
  }

  ~Player() {
    for (accelEvent_t event : events_) {
      accelEventDestroy(event);
    }
    for (accelStream_t stream : streams_) {
      check(accelStreamDestroy(stream));
    }
    for (Buffer& buffer : buffers_) {
      check(accelFree(buffer.address));
    }
    check(accelHostFree(pinned_));
  }

  void turn() {
    accelStream_t stream = streams_[below(kStreams)];
    Buffer& one = buffers_[below(kBuffers)];
    Buffer& two = buffers_[below(kBuffers)];
    switch (below(18)) {
      case 0:
      case 1:
        return set(one, stream, next());
      case 2:
      case 3:
      case 4:
        return add(one, stream, next());
      case 5:
      case 6:
        return copy(one, two, stream);
      case 7:
        return upload(one, stream, next());
      case 8:
        return download(one, stream);
      case 9:
        return download_pinned(one, stream);
      case 10:
        return check(accelStreamSleep(stream, below(30'000)));
      case 11:
        return fail(stream);
      case 12:
        return segments();
      case 13:
      case 14:
        return replay(one, two, stream, streams_[below(kStreams)]);
      case 15:
      case 16:
        return grid(one, stream, next());
      default:
        return count();
    }
  }

  void finish() {
    for (accelStream_t stream : streams_) {
      check(accelStreamSynchronize(stream, "finish"));
    }
    for (const Buffer& buffer : buffers_) {
      compare(on_host(buffer.address), buffer);
    }
  }

  uint64_t counted() const {
    return counted_;
  }

 private:
  uint32_t next() {
    return static_cast<uint32_t>(random_());
  }
  uint32_t below(uint32_t end) {
    return next() % end;
  }

  void order(Buffer& buffer, accelStream_t stream) {
    if (buffer.last == stream) {
      return;
    }
    accelEvent_t& event = events_[below(static_cast<uint32_t>(events_.size()))];
    check(accelEventRecord(event, buffer.last));
    check(accelStreamWaitEvent(stream, event));
    if (below(3) == 0) {
      accelEventDestroy(event);
      event = make_event(accelEventTiming);
    }
    buffer.last = stream;
  }

  void set(Buffer& buffer, accelStream_t stream, uint32_t value) {
    order(buffer, stream);
    const size_t extra = below(50) == 0 ? below(400'000) : 0;
    launch(
        stream,
        "set",
        [address = buffer.address, value] {
          for (size_t i = 0; i < kWords; ++i) {
            on_host(address)[i] = value + static_cast<uint32_t>(i);
          }
          return accelSuccess;
        },
        extra);
    buffer.expected = value;
  }

  void add(Buffer& buffer, accelStream_t stream, uint32_t value) {
    order(buffer, stream);
    increase(buffer, stream, value);
  }

  void increase(Buffer& buffer, accelStream_t stream, uint32_t value) {
    launch(stream, "add", [address = buffer.address, value] {
      for (size_t i = 0; i < kWords; ++i) {
        on_host(address)[i] += value;
      }
      return accelSuccess;
    });
    buffer.expected += value;
  }

  void grid(Buffer& buffer, accelStream_t stream, uint32_t value) {
    order(buffer, stream);
    const bool cooperative = below(3) == 0;
    const uint32_t programs = cooperative ? 1 + below(4) : 1 + below(30);
    const GridArguments args{buffer.address, value, kNobody, nullptr};
    launch_grid(stream, add_by_grid, args, programs, below(5), cooperative);
    buffer.expected += value;
  }

  // A captured fork, launched on two streams, and destroyed while it may be running.
  void replay(Buffer& one, Buffer& two, accelStream_t stream, accelStream_t other) {
    order(one, stream);
    order(two, stream);
    const uint32_t value = next();
    accelEvent_t event = make_event(0);
    check(accelStreamBeginCapture(stream, accelCaptureThreadLocal));
    add(one, stream, value);
    check(accelEventRecord(event, stream));
    check(accelStreamWaitEvent(other, event));
    increase(two, other, value);
    check(accelEventRecord(event, other));
    check(accelStreamWaitEvent(stream, event));
    accelGraph_t graph = nullptr;
    accelGraphExec_t exec = nullptr;
    check(accelStreamEndCapture(stream, &graph));
    check(accelGraphInstantiate(&exec, graph));
    accelGraphDestroy(graph);
    accelEventDestroy(event);
    one.expected -= value;
    two.expected -= value;
    const uint32_t launches = below(4);
    for (uint32_t i = 0; i < launches; ++i) {
      accelStream_t target = below(2) == 0 ? stream : other;
      order(one, target);
      order(two, target);
      check(accelGraphLaunch(exec, target, nullptr, 0, nullptr));
      one.expected += value;
      two.expected += value;
    }
    accelGraphExecDestroy(exec);
  }

  void copy(Buffer& to, Buffer& from, accelStream_t stream) {
    order(to, stream);
    order(from, stream);
    check(accelMemcpyAsync(to.address, from.address, kWords * 4, stream, "copy"));
    to.expected = from.expected;
  }

  void upload(Buffer& buffer, accelStream_t stream, uint32_t value) {
    order(buffer, stream);
    std::vector<uint32_t> source(kWords);
    for (size_t i = 0; i < kWords; ++i) {
      source[i] = value + static_cast<uint32_t>(i);
    }
    check(accelMemcpyAsync(buffer.address, source.data(), kWords * 4, stream, "upload"));
    std::fill(source.begin(), source.end(), 0);
    buffer.expected = value;
  }

  void download(Buffer& buffer, accelStream_t stream) {
    order(buffer, stream);
    std::vector<uint32_t> result(kWords);
    check(accelMemcpyAsync(result.data(), buffer.address, kWords * 4, stream, "download"));
    compare(result.data(), buffer);
  }

  void download_pinned(Buffer& buffer, accelStream_t stream) {
    order(buffer, stream);
    check(accelMemcpyAsync(pinned_, buffer.address, kWords * 4, stream, "download"));
    accelEvent_t event = make_event(accelEventTiming);
    check(accelEventRecord(event, stream));
    check(accelEventSynchronize(event, "download"));
    accelEventDestroy(event);
    compare(pinned_, buffer);
  }

  // A failing kernel: raised exactly once.
  void fail(accelStream_t stream) {
    accelStream_t own = nullptr;
    check(accelStreamCreate(below(2), 0, &own));
    const bool grid = below(2) == 0;
    if (grid) {
      launch_grid(own, fail_in_grid, {nullptr, 0, below(4), nullptr}, 4, 0, true);
    } else {
      launch(own, "fail", [] {
        accelSetKernelError("on purpose");
        return accelErrorLaunchFailure;
      });
    }
    const bool travels = below(2) == 0;
    if (travels) {
      accelEvent_t event = make_event(accelEventTiming);
      check(accelEventRecord(event, own));
      check(accelStreamWaitEvent(stream, event));
      accelEventDestroy(event);
      expect(accelStreamSynchronize(stream, "fail") == accelErrorLaunchFailure, "no failure came");
      check(accelStreamSynchronize(stream, "fail"));
    } else {
      expect(accelStreamSynchronize(own, "fail") == accelErrorLaunchFailure, "no failure");
    }
    const std::string message = accelGetLastErrorMessage();
    expect(
        message.rfind(grid ? "grid: accel: program (" : "fail: on purpose", 0) == 0, "a message");
    check(accelStreamDestroy(own));
  }

  void segments() {
    char* address = nullptr;
    check(accelMalloc(1, 1 + below(4'000'000), reinterpret_cast<void**>(&address)));
    check(accelBlockSet(address, 4096, 3, 1));
    check(accelBlockSet(address + 4096, 512, 4, 0));
    accelPointerAttributes attributes{};
    attributes.size = sizeof(attributes);
    check(accelPointerGetAttributes(address + 4095, &attributes));
    expect(attributes.block == address && attributes.owner == 3, "another block");
    check(accelFree(address));
  }

  // The stream that all threads use: its order makes a plain counter enough.
  void count() {
    launch(shared_, "count", [] {
      ++g_plain_counter;
      return accelSuccess;
    });
    ++counted_;
  }

  static void compare(const uint32_t* words, const Buffer& buffer) {
    for (size_t i = 0; i < kWords; ++i) {
      expect(words[i] == buffer.expected + static_cast<uint32_t>(i), "a buffer's contents");
    }
  }

  Random random_;
  accelStream_t shared_;
  std::vector<accelStream_t> streams_;
  std::vector<Buffer> buffers_;
  std::vector<accelEvent_t> events_;
  uint32_t* pinned_ = nullptr;
  uint64_t counted_ = 0;
};

// Random work until the deadline.
void play(uint32_t seed, Clock::time_point deadline) {
  accelStream_t shared = nullptr;
  check(accelStreamCreate(0, 0, &shared));
  std::atomic<uint64_t> counted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Player player(seed * kThreads + static_cast<uint32_t>(t), shared);
      while (Clock::now() < deadline) {
        for (int i = 0; i < 300; ++i) {
          player.turn();
        }
        player.finish();
      }
      counted.fetch_add(player.counted());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  check(accelStreamSynchronize(shared, "shared"));
  expect(g_plain_counter == counted.load(), "the counter of the shared stream");
  check(accelStreamDestroy(shared));
  expect(g_destroyed.load() == g_launched.load(), "a payload was not destroyed");
  expect(g_released.load() == g_loaded.load(), "a module was not released");
}

// Waits that end while the waiter is on its way into the futex: a lost wake-up hangs here.
void park(uint32_t seed, Clock::time_point deadline) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([=] {
      Random random(seed + static_cast<uint32_t>(t));
      accelStream_t stream = nullptr;
      accelStream_t other = nullptr;
      check(accelStreamCreate(0, 0, &stream));
      check(accelStreamCreate(1, 0, &other));
      accelEvent_t event = make_event(0);
      while (Clock::now() < deadline) {
        check(accelStreamSleep(stream, random() % 3'000'000));
        check(accelEventRecord(event, stream));
        check(accelStreamWaitEvent(other, event));
        check(accelStreamSynchronize(random() % 2 == 0 ? stream : other, "park"));
      }
      accelEventDestroy(event);
      check(accelStreamDestroy(stream));
      check(accelStreamDestroy(other));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void check_or_aborted(accelError_t code) {
  expect(code == accelSuccess || code == accelErrorAborted, "neither success nor an abort");
}

// Device 0 is reset again and again under threads that launch on it, wait for it and make a stream
// of device 1 wait for it. What no reset overlaps with is not touched by one.
void reset(uint32_t seed, Clock::time_point deadline) {
  std::atomic<bool> playing{true};
  std::atomic<uint64_t> begun{0};
  std::atomic<uint64_t> ended{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Random random(seed + static_cast<uint32_t>(t));
      accelStream_t near = nullptr;
      accelStream_t far = nullptr;
      uint32_t* word = nullptr;
      check(accelStreamCreate(0, 0, &near));
      check(accelStreamCreate(1, 0, &far));
      check(accelHostAlloc(4096, reinterpret_cast<void**>(&word)));
      accelEvent_t event = make_event(accelEventTiming);
      for (uint32_t turn = 1; Clock::now() < deadline; ++turn) {
        const uint64_t before = ended.load();
        launch(near, "write", [=] {
          std::atomic_ref<uint32_t>(*word).store(turn, std::memory_order_relaxed);
          return accelSuccess;
        });
        if (random() % 4 == 0) { // runs until a reset
          launch_grid(
              near, fail_in_grid, {nullptr, 0, kNobody, nullptr}, 1 + random() % 9, 0, false);
        }
        check(accelStreamSleep(near, random() % 200'000));
        check(accelEventRecord(event, near));
        check(accelStreamWaitEvent(far, event));
        const accelError_t code = accelStreamSynchronize(random() % 2 == 0 ? near : far, "reset");
        check_or_aborted(code);
        if (begun.load() == before) {
          const uint32_t seen = std::atomic_ref<uint32_t>(*word).load(std::memory_order_relaxed);
          // The far stream may still have the failure of a turn before.
          expect(code != accelSuccess || seen == turn, "a launch was dropped without a reset");
        }
        if (random() % 4 == 0) {
          check_or_aborted(accelDeviceSynchronize(static_cast<int>(random() % 2), "reset"));
        }
      }
      accelEventDestroy(event);
      check_or_aborted(accelStreamDestroy(near));
      check_or_aborted(accelStreamDestroy(far));
      check(accelHostFree(word));
    });
  }
  std::thread resetter([&] {
    Random random(seed);
    while (playing.load()) {
      begun.fetch_add(1);
      check(accelDeviceReset(0, -1));
      ended.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  playing.store(false);
  resetter.join();
  expect(g_destroyed.load() == g_launched.load(), "a payload was not destroyed");
  expect(g_released.load() == g_loaded.load(), "a module was not released");
}

} // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const uint32_t seed = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1;
  setenv("ACCEL_DEVICES", "2", 1);
  setenv("ACCEL_MEMORY", "256MiB", 1);
  setenv("ACCEL_CORES", "4", 1);
  check(accelInit());
  accelAddressMap map{};
  map.size = sizeof(map);
  check(accelGetAddressMap(&map));
  g_offset = map.offset;
  const auto part =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds / 3));
  play(seed, Clock::now() + part);
  park(seed, Clock::now() + part);
  reset(seed, Clock::now() + part);
  accelShutdown(5000);
  std::printf("ok\n");
  return 0;
}
