#include "plant.h"

#include <c10/util/Exception.h>

#include <array>
#include <utility>

namespace accel {

void plant(const std::string& name, bool on) {
  constexpr std::array<std::pair<const char*, Plant>, 11> kNames{{
      {"ticket_rule", Plant::kTicketRule},
      {"capture", Plant::kCapture},
      {"reclaim", Plant::kReclaim},
      {"release_gil", Plant::kReleaseGil},
      {"restride", Plant::kRestride},
      {"placement", Plant::kPlacement},
      {"foresight", Plant::kForesight},
      {"spend", Plant::kSpend},
      {"undeclared_read", Plant::kUndeclaredRead},
      {"stream_wait", Plant::kStreamWait},
      {"record_stream", Plant::kRecordStream},
  }};
  for (const auto& [known, value] : kNames) {
    if (name == known) {
      const auto bit = static_cast<uint32_t>(value);
      on ? g_plants.fetch_or(bit) : g_plants.fetch_and(~bit);
      return;
    }
  }
  TORCH_CHECK(false, "accel: no planted fault is called '", name, "'");
}

} // namespace accel
