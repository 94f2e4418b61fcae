#include "accel_grid.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cores.h"
#include "launch.h"
#include "process.h"
#include "stream.h"
#include "worker.h"

using namespace accel::driver;

// Counted: the handle is one reference, and each launch that is queued or captured.
struct accelModule {
  std::string name;
  accelGridFunction function;
  size_t args_bytes;
  std::vector<std::string> sites;
  void (*release)(void* user);
  void* user;
  std::atomic<uint64_t> references{1};
  std::atomic<uint64_t> launches{0}; // the shuffled order is another one in each
};

namespace accel::driver {

namespace {

constexpr uint64_t kMostPrograms = uint64_t{1} << 32;

void drop(accelModule* module) {
  if (module->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (module->release != nullptr) {
      module->release(module->user);
    }
    delete module;
  }
}

// A record's payload; the arguments follow it.
struct alignas(16) Launched {
  accelModule* module; // a reference
  uint32_t grid[3];
  uint32_t cores;
  bool cooperative;
  uint32_t order;
  uint64_t seed;

  const void* args() const {
    return this + 1;
  }
  uint64_t programs() const {
    return uint64_t{grid[0]} * grid[1] * grid[2];
  }
};

std::string describe(uint32_t kind) {
  switch (kind) {
    case accelGridFaultAssert:
      return "an assertion of the kernel failed";
    case accelGridFaultBounds:
      return "an access outside of an argument's memory";
    case accelGridFaultStuck:
      return "this loop waits, and no program of the grid has ended for " +
          std::to_string(g_chip->config.watchdog / 1'000'000'000) + " s";
    default:
      return "the kernel failed";
  }
}

const char* remedy(uint32_t kind) {
  switch (kind) {
    case accelGridFaultAssert:
      return "check what the kernel was launched with";
    case accelGridFaultBounds:
      return "mask the access, or pass a larger tensor";
    case accelGridFaultStuck:
      return "let a program wait for earlier ones only, launch with launch_cooperative_grid=True, "
             "or "
             "raise ACCEL_WATCHDOG_S";
    default:
      return "fix the kernel, or what it was launched with";
  }
}

void report(const accelModule& module, const accelGridFault& fault) {
  const std::string said(fault.text, strnlen(fault.text, sizeof(fault.text)));
  if (fault.site == ACCEL_GRID_NO_SITE && !said.empty()) {
    accelSetKernelError(("accel: " + said).c_str());
    return;
  }
  std::string text = "accel: program (";
  for (int i = 0; i < 3; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(fault.program[i]);
  }
  text += ")";
  if (fault.site < module.sites.size()) {
    text += " at " + module.sites[fault.site];
  }
  text += ": " + (said.empty() ? describe(fault.kind) : said) + "; " + remedy(fault.kind);
  accelSetKernelError(text.c_str());
}

accelError_t run(const void* payload) {
  const auto& launched = *static_cast<const Launched*>(payload);
  accelStream& stream = *stream_of_this_thread();
  // In this order: an abort from now on, or before, is seen by one of the two.
  stream.grid_abort.store(0);
  if (stream.device.aborted.load() != 0) {
    return accelSuccess;
  }
  Grid grid{
      launched.module->function,
      launched.args(),
      launched.grid,
      launched.programs(),
      launched.cores,
      launched.cooperative,
      stream.grid_abort,
      launched.order,
      launched.seed};
  accelGridFault fault;
  switch (run_grid(grid, &fault)) {
    case GridEnd::kRan:
      return accelSuccess;
    case GridEnd::kFaulted:
      report(*launched.module, fault);
      return accelErrorLaunchFailure;
    case GridEnd::kNoMemory:
      accelSetKernelError("accel: the system has no memory for a core's scratch; lower ACCEL_SRAM");
      return accelErrorOutOfMemory;
    case GridEnd::kNoThreads:
      break;
  }
  accelSetKernelError(
      "accel: the system has no threads or memory left for the cores of a cooperative launch; "
      "launch fewer programs");
  return accelErrorOutOfMemory;
}

accelError_t check(accelStream_t stream, accelModule_t module, const accelGridLaunch* launch) {
  if (stream == nullptr || module == nullptr || launch == nullptr ||
      launch->size < sizeof(accelGridLaunch)) {
    return invalid("accelLaunchGrid", "an argument is null or the struct's size is too small");
  }
  if (launch->args_bytes != module->args_bytes ||
      (launch->args == nullptr && launch->args_bytes != 0)) {
    return fail(
        accelErrorInvalidValue,
        "accel: accelLaunchGrid: kernel '%s' takes %zu bytes of arguments; %zu given",
        module->name.c_str(),
        module->args_bytes,
        launch->args == nullptr ? 0 : launch->args_bytes);
  }
  if (launch->order > accelGridShuffled) {
    return invalid("accelLaunchGrid", "the order is none of accelGridAscending ...");
  }
  uint64_t programs = 1;
  for (int i = 0; i < 3; ++i) {
    const uint64_t size = launch->grid[i];
    if (size > INT32_MAX || programs * size > kMostPrograms) {
      return fail(
          accelErrorInvalidValue,
          "accel: kernel '%s': a grid of %u x %u x %u programs is too large; the most are "
          "2147483647 along an axis and 4294967296 in all: let a program do more",
          module->name.c_str(),
          launch->grid[0],
          launch->grid[1],
          launch->grid[2]);
    }
    programs *= size;
  }
  if (launch->cooperative != 0 && programs > g_chip->config.cores) {
    return fail(
        accelErrorInvalidValue,
        "accel: kernel '%s': a cooperative launch of %llu programs needs a core for each, and the "
        "device has %u; launch fewer programs, or raise ACCEL_CORES",
        module->name.c_str(),
        static_cast<unsigned long long>(programs),
        g_chip->config.cores);
  }
  return accelSuccess;
}

accelError_t launch_grid(
    accelStream_t stream,
    accelModule* module,
    const accelGridLaunch& launch,
    uint64_t* ticket) {
  Launched launched{};
  launched.module = module;
  std::copy_n(launch.grid, 3, launched.grid);
  launched.cooperative = launch.cooperative != 0;
  launched.order = launch.order;
  launched.seed = module->launches.fetch_add(1, std::memory_order_relaxed);
  const uint64_t programs = launched.programs();
  const uint32_t cores = g_chip->config.cores;
  const uint32_t most = launched.cooperative || launch.cores == 0 ? cores : launch.cores;
  launched.cores = static_cast<uint32_t>(std::min<uint64_t>({cores, most, programs}));

  accelLaunchInfo info =
      launch.info != nullptr ? *launch.info : make_info(nullptr, accelEngineCompute);
  info.name = info.name != nullptr ? info.name : module->name.c_str();
  info.cores = info.cores >= 0 ? info.cores : static_cast<int32_t>(launched.cores);
  accelLaunch record{};
  record.size = sizeof(record);
  record.info = &info;
  record.payload_bytes = sizeof(Launched) + launch.args_bytes;
  record.invoke = run;
  record.destroy = [](void* payload) { drop(static_cast<Launched*>(payload)->module); };
  void* place = nullptr;
  if (const accelError_t code = begin_launch(stream, record, &place)) {
    return code;
  }
  module->references.fetch_add(1, std::memory_order_relaxed);
  auto* const written = new (place) Launched(launched);
  if (launch.args_bytes != 0) {
    std::memcpy(written + 1, launch.args, launch.args_bytes);
  }
  return commit_launch(stream, ticket);
}

} // namespace

} // namespace accel::driver

extern "C" accelError_t accelModuleLoad(const accelModuleInfo* info, accelModule_t* module) {
  return entry([&] {
    if (module == nullptr || info == nullptr || info->size < sizeof(accelModuleInfo) ||
        info->name == nullptr || info->function == nullptr ||
        (info->sites == nullptr && info->num_sites != 0)) {
      return invalid(
          "accelModuleLoad", "name, function, sites or result is null, or the size is too small");
    }
    if (info->sram > g_chip->config.sram) {
      return fail(
          accelErrorOutOfMemory,
          "accel: kernel '%s' uses %zu bytes of scratch memory, and a core has %llu; use smaller "
          "tiles, or raise ACCEL_SRAM",
          info->name,
          info->sram,
          static_cast<unsigned long long>(g_chip->config.sram));
    }
    auto made = std::make_unique<accelModule>();
    made->name = info->name;
    made->function = info->function;
    made->args_bytes = info->args_bytes;
    made->sites.assign(info->sites, info->sites + info->num_sites);
    made->release = info->release;
    made->user = info->user;
    *module = made.release();
    return accelSuccess;
  });
}

extern "C" void accelModuleUnload(accelModule_t module) {
  if (module != nullptr) {
    (void)entry([&] {
      drop(module);
      return accelSuccess;
    });
  }
}

extern "C" accelError_t accelLaunchGrid(
    accelStream_t stream,
    accelModule_t module,
    const accelGridLaunch* launch,
    uint64_t* ticket) {
  return entry([&] {
    if (const accelError_t code = check(stream, module, launch)) {
      return code;
    }
    uint64_t mine = 0;
    if (launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0) {
      mine = stream->enqueued.load();
    } else {
      if (const accelError_t code = launch_grid(stream, module, *launch, &mine)) {
        return code;
      }
      if (const accelError_t code = wait_if_blocking(stream, mine)) {
        return code;
      }
    }
    if (ticket != nullptr) {
      *ticket = mine;
    }
    return accelSuccess;
  });
}
