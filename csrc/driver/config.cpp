#include "config.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "address_map.h"
#include "error.h"
#include "os_linux.h"

namespace accel::driver {

namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

// Decimal digits only: no sign, no space, no overflow.
std::optional<uint64_t> parse_number(const std::string& text) {
  if (text.empty() || text.size() > 19 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::strtoull(text.c_str(), nullptr, 10);
}

std::optional<uint64_t> parse_bytes(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<uint64_t> number = parse_number(text.substr(0, digits));
  const std::string unit = text.substr(digits);
  static const char* const kUnits[][2] = {
      {"", "B"}, {"K", "KiB"}, {"M", "MiB"}, {"G", "GiB"}, {"T", "TiB"}};
  for (int i = 0; number.has_value() && i < 5; ++i) {
    if (unit == kUnits[i][0] || unit == kUnits[i][1]) {
      const int shift = 10 * i;
      return *number > (UINT64_MAX >> shift) ? std::nullopt : std::optional(*number << shift);
    }
  }
  return std::nullopt;
}

accelError_t unusable(const char* name, const std::string& value, const std::string& accepted) {
  return fail(
      accelErrorConfig,
      "accel: %s=%s is not usable; accepted: %s",
      name,
      value.c_str(),
      accepted.c_str());
}

// Sets `*result` if the variable is set; `least` and `most` bound it.
accelError_t read_number(
    const char* name,
    uint64_t least,
    uint64_t most,
    const char* meaning,
    std::optional<uint64_t>* result) {
  const std::optional<std::string> value = variable(name);
  if (!value) {
    return accelSuccess;
  }
  *result = parse_number(*value);
  if (!*result || **result < least || **result > most) {
    return unusable(
        name,
        *value,
        "an integer from " + std::to_string(least) + " to " + std::to_string(most) + " (" +
            meaning + ")");
  }
  return accelSuccess;
}

accelError_t read_devices(Config* config) {
  std::optional<uint64_t> devices;
  if (const accelError_t code = read_number(
          "ACCEL_DEVICES", 0, kMaxDevices, "the number of devices; unset: 1, 0: none", &devices)) {
    return code;
  }
  config->devices = static_cast<int>(devices.value_or(1));

  // Set but empty hides every device, as for CUDA_VISIBLE_DEVICES.
  const char* list = std::getenv("ACCEL_VISIBLE_DEVICES");
  if (list == nullptr) {
    return accelSuccess;
  }
  std::vector<uint64_t> seen;
  const std::string text = list;
  for (size_t start = 0; !text.empty() && start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::optional<uint64_t> index = parse_number(text.substr(start, end - start));
    if (!index || *index >= static_cast<uint64_t>(config->devices) ||
        std::find(seen.begin(), seen.end(), *index) != seen.end()) {
      return unusable(
          "ACCEL_VISIBLE_DEVICES",
          text,
          "different indices below ACCEL_DEVICES (" + std::to_string(config->devices) +
              "), separated by commas; empty: none");
    }
    seen.push_back(*index);
    start = end + 1;
  }
  config->devices = static_cast<int>(seen.size());
  return accelSuccess;
}

accelError_t read_memory(Config* config) {
  const uint64_t devices = std::max(config->devices, 1);
  const uint64_t most = kWindowBytes / devices / kSegmentBytes * kSegmentBytes;
  const std::optional<std::string> value = variable("ACCEL_MEMORY");
  if (!value) {
    // Every process of a torchrun launch on this machine has devices of its own.
    const uint64_t processes =
        std::max<uint64_t>(parse_number(variable("LOCAL_WORLD_SIZE").value_or("1")).value_or(1), 1);
    const uint64_t share = os::memory_limit() / 2 / devices / processes;
    config->memory = std::clamp(share / kSegmentBytes * kSegmentBytes, kSegmentBytes, most);
    return accelSuccess;
  }
  const std::optional<uint64_t> bytes = parse_bytes(*value);
  if (!bytes || *bytes < kSegmentBytes || *bytes > most) {
    return unusable(
        "ACCEL_MEMORY",
        *value,
        "bytes per device from 2MiB to " + std::to_string(most >> 20) +
            "MiB, as 67108864, 64MiB or 2GiB (unset: half of the host's memory over all devices)");
  }
  config->memory = *bytes / kSegmentBytes * kSegmentBytes;
  return accelSuccess;
}

accelError_t read_cores(Config* config) {
  std::optional<uint64_t> cores;
  if (const accelError_t code = read_number(
          "ACCEL_CORES", 1, kMaxCores, "cores of a device; unset: the host's", &cores)) {
    return code;
  }
  config->cores = static_cast<uint32_t>(cores.value_or(std::min(os::host_cores(), kMaxCores)));

  std::optional<uint64_t> watchdog;
  if (const accelError_t code = read_number(
          "ACCEL_WATCHDOG_S",
          0,
          1'000'000'000,
          "seconds that a loop of a kernel may wait while no program ends; 0: any number",
          &watchdog)) {
    return code;
  }
  config->watchdog = watchdog.value_or(kDefaultWatchdogSeconds) * 1'000'000'000;

  const std::optional<std::string> value = variable("ACCEL_SRAM");
  const std::optional<uint64_t> bytes = value ? parse_bytes(*value) : kDefaultSramBytes;
  if (!bytes || *bytes < os::kPageBytes || *bytes > kMostSramBytes) {
    return unusable(
        "ACCEL_SRAM",
        *value,
        "bytes of scratch memory per core from 4KiB to 1GiB, as 1048576, 256KiB or 1MiB (unset: "
        "2MiB)");
  }
  config->sram = *bytes / os::kPageBytes * os::kPageBytes;
  return accelSuccess;
}

} // namespace

accelError_t read_config(Config* config) {
  for (const auto read : {read_devices, read_memory, read_cores}) {
    if (const accelError_t code = read(config)) {
      return code;
    }
  }
  const std::optional<std::string> blocking = variable("ACCEL_LAUNCH_BLOCKING");
  if (blocking && *blocking != "0" && *blocking != "1") {
    return unusable(
        "ACCEL_LAUNCH_BLOCKING", *blocking, "0, or 1 (every launch waits and raises its error)");
  }
  config->launch_blocking = blocking == "1";

  std::optional<uint64_t> delay;
  if (const accelError_t code = read_number(
          "ACCEL_DELAY_US", 0, 1'000'000'000, "microseconds before each launch runs", &delay)) {
    return code;
  }
  config->delay = delay.value_or(0) * 1000;
  return read_number(
      "ACCEL_SCHEDULE_SEED",
      0,
      INT64_MAX,
      "seed of random delays before launches",
      &config->schedule_seed);
}

} // namespace accel::driver
