#include "report.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <sstream>

#include "../runtime/stream.h"

namespace accel::sanitizer {

namespace {

constexpr size_t kFrames = 12; // shown of a stack

std::string name_of(accelStream_t stream) {
  if (stream == nullptr) {
    return "host";
  }
  const int device = accelStreamGetDevice(stream);
  std::ostringstream text;
  try {
    const auto id = from_native(stream).id();
    if (id == 0) {
      text << "the default stream of accel:" << device;
    } else {
      text << "stream " << id << " of accel:" << device;
    }
  } catch (const std::exception&) {
    text << "another library's stream of accel:" << device;
  }
  return text.str();
}

std::string plain(const std::string& name) {
  return name.starts_with("aten::") ? name.substr(6) : name;
}

Told tell(const Party& party) {
  return {
      plain(party.access.name),
      name_of(party.stream),
      party.access.write ? "write" : "read",
      backward_of(party.access.origin.get()),
      frames_of(party.access.origin.get())};
}

std::string source_line(const Frame& frame) {
  std::ifstream file(frame.file);
  std::string line;
  for (uint64_t i = 0; i < frame.line && std::getline(file, line); ++i) {
  }
  const auto start = line.find_first_not_of(" \t");
  return file && start != std::string::npos ? line.substr(start) : "";
}

void append_party(std::ostream& text, const char* which, const Party& party, const Told& told) {
  text << "\n  " << which << ": " << told.name << " " << told.access << "s, ";
  if (party.stream == nullptr) {
    text << "on the host";
  } else {
    text << "on " << told.stream;
  }
  if (party.captured) {
    text << ", in a graph captured at";
  } else if (!told.backward.empty()) {
    text << ", in the backward (" << told.backward << ") of what was called at";
  }
  if (told.stack.empty()) {
    text << "\n    (no Python stack)";
  }
  const size_t skipped = told.stack.size() > kFrames ? told.stack.size() - kFrames : 0;
  if (skipped > 0) {
    text << "\n    (" << skipped << " more)";
  }
  for (size_t i = skipped; i < told.stack.size(); ++i) {
    const auto& frame = told.stack[i];
    text << "\n    File \"" << frame.file << "\", line " << frame.line << ", in " << frame.function;
    const auto source = source_line(frame);
    if (!source.empty()) {
      text << "\n      " << source;
    }
  }
}

std::string fix(const Race& race, const Told& first, const Told& second) {
  switch (race.remedy) {
    case Remedy::kSynchronize:
      return "before the host " + std::string(race.second.access.write ? "writes" : "reads") +
          ", wait for the first: synchronize() of its stream, or of an event recorded behind it";
    case Remedy::kRecordStream:
      return "the memory was freed and given out again between the two. Before the first tensor is "
             "freed, call its record_stream() with " +
          first.stream + ", or let the stream that it was made on wait for that one (wait_stream)";
    case Remedy::kWaitStream:
    default:
      return "between the two, let " + second.stream + " wait for " + first.stream +
          ": wait_stream(), or wait_event() of an event recorded behind the first";
  }
}

const char* word(Remedy remedy) {
  switch (remedy) {
    case Remedy::kSynchronize:
      return "synchronize";
    case Remedy::kRecordStream:
      return "record_stream";
    case Remedy::kWaitStream:
    default:
      return "wait_stream";
  }
}

} // namespace

Report make_report(const Race& race) {
  Report report;
  report.first = tell(race.first);
  report.second = tell(race.second);
  report.remedy = word(race.remedy);
  const auto& access = race.second.access;
  report.address = access.bytes.first;
  report.bytes = access.bytes.last - access.bytes.first;
  report.storage = access.storage != 0 ? access.storage : race.first.access.storage;

  const auto& [first, second] = std::pair(report.first, report.second);
  std::ostringstream text;
  text << "accel sanitizer: " << second.name << " on "
       << (race.second.stream == nullptr ? "the host" : second.stream) << " " << second.access
       << "s memory that " << first.name << " on " << first.stream << " " << first.access
       << "s, and nothing orders the two";
  text << "\n  memory: " << report.bytes << " bytes at 0x" << std::hex << report.address
       << std::dec;
  if (!race.tensor.empty()) {
    text << " (" << race.tensor << ")";
  }
  if (race.block != 0) {
    text << " in the block of " << race.block_bytes << " bytes at 0x" << std::hex << race.block;
  }
  text << std::hex << ", storage 0x" << report.storage << std::dec;
  append_party(text, "first", race.first, first);
  append_party(text, "second", race.second, second);
  text << "\n  fix: " << fix(race, first, second);
  report.text = text.str();
  return report;
}

void warn(const std::string& text) {
  const c10::SourceLocation unknown{
      nullptr, nullptr, 0}; // Python's line is told, and no file of ours
  c10::warn(c10::Warning(c10::UserWarning(), unknown, text, /*verbatim=*/false));
}

} // namespace accel::sanitizer
