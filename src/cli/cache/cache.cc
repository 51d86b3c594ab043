// `braid cache ls | stat | verify | clear`: what a directory of --cache-dir holds. All of them work
// beside servers that use it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/block.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/quantities.h"
#include "cli/command/command_factories.h"
#include "tiers/inspect.h"

namespace braid {
namespace {

std::string AgeText(const SegmentName& name) {
  const int64_t seconds = std::max<int64_t>(0, UnixSeconds() - name.changed_us / 1'000'000);
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::string NameOf(const SegmentFacts& segment) {
  return std::filesystem::path(segment.name.stem).filename().string();
}

// What can be said of a segment by itself.
std::string NotesOf(const SegmentFacts& segment) {
  std::string notes;
  const auto note = [&](const std::string& text) { notes += (notes.empty() ? "" : ", ") + text; };
  if (segment.written_to) note("a server writes to it");
  if (!segment.fault.empty()) {
    note(segment.fault);
  } else if (!segment.identity) {
    note("of another version");
  }
  if (segment.identity && !segment.identity->key_id.empty()) {
    note("encrypted with key " + segment.identity->key_id);
  }
  return notes;
}

class DirectoryCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("DIR", directory_, "Directory that --cache-dir names");
    flags.Text("--fingerprint", fingerprint_,
               "Only segments whose names begin with this (`braid cache stat` lists fingerprints)");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override {
    ASSIGN_OR_RETURN(std::vector<SegmentFacts> all, InspectDirectory(files_, directory_));
    std::erase_if(all, [&](const SegmentFacts& segment) {
      return !NameOf(segment).starts_with(fingerprint_);
    });
    return Run(all);
  }

 protected:
  virtual Status Run(const std::vector<SegmentFacts>& segments) = 0;

  FileLayer files_;
  std::string directory_, fingerprint_;
  bool json_ = false;
};

class LsCommand final : public DirectoryCommand {
  Status Run(const std::vector<SegmentFacts>& segments) override {
    json::array rows;
    for (const SegmentFacts& s : segments) {
      const std::string tokens = fmt::format("{} tokens", s.keys * kBlockTokens);
      const std::string states = fmt::format("{} states", s.states);
      const std::string notes = NotesOf(s);
      if (!json_) {
        fmt::print("{}  {:>10}  {:>15}  {:>12}  {:>8}{}{}\n", NameOf(s), ByteText(s.name.bytes),
                   tokens, states, AgeText(s.name), notes.empty() ? "" : "  ", notes);
        continue;
      }
      rows.push_back(json::object{{"name", s.name.stem},
                                  {"fingerprint", s.identity ? s.identity->digits : ""},
                                  {"key", s.identity ? s.identity->key_id : ""},
                                  {"known", s.identity.has_value()},
                                  {"bytes", s.name.bytes},
                                  {"tokens", s.keys * kBlockTokens},
                                  {"states", s.states},
                                  {"changed", s.name.changed_us / 1'000'000},
                                  {"written_to", s.written_to}});
    }
    if (json_) fmt::print("{}\n", json::serialize(json::object{{"segments", std::move(rows)}}));
    return {};
  }
};

class StatCommand final : public DirectoryCommand {
  struct Sum {
    int64_t segments = 0, bytes = 0, tokens = 0, states = 0, written_to = 0, encrypted = 0;
    std::string lines;
  };
  Status Run(const std::vector<SegmentFacts>& segments) override {
    std::map<std::string, Sum> sums;  // by the digits in names
    int64_t bytes = 0;
    for (const SegmentFacts& s : segments) {
      const std::string directory = std::filesystem::path(s.name.stem).parent_path().string();
      Sum& sum = sums[s.name.name_digits()];
      if (sum.lines.empty()) sum.lines = ReadLines(directory, s.name.name_digits());
      ++sum.segments;
      bytes += s.name.bytes;
      sum.bytes += s.name.bytes;
      sum.tokens += s.keys * kBlockTokens;
      sum.states += s.states;
      sum.written_to += s.written_to;
      sum.encrypted += s.identity && !s.identity->key_id.empty();
    }
    json_ ? PrintJson(sums, bytes) : Print(sums, bytes);
    return {};
  }
  void Print(const std::map<std::string, Sum>& sums, int64_t bytes) const {
    fmt::print("{}: {} in {} fingerprint{}\n", directory_, ByteText(bytes), sums.size(),
               sums.size() == 1 ? "" : "s");
    for (const auto& [digits, sum] : sums) {
      fmt::print("\n{}: {} in {} segments, {} tokens, {} states", digits, ByteText(sum.bytes),
                 sum.segments, sum.tokens, sum.states);
      if (sum.encrypted > 0) fmt::print(", {} segments encrypted", sum.encrypted);
      if (sum.written_to > 0) fmt::print(", {} being written by servers", sum.written_to);
      fmt::print("\n");
      std::string_view lines = sum.lines;
      while (!lines.empty()) {
        const size_t end = std::min(lines.find('\n'), lines.size());
        fmt::print("  {}\n", lines.substr(0, end));
        lines.remove_prefix(std::min(lines.size(), end + 1));
      }
    }
  }
  void PrintJson(const std::map<std::string, Sum>& sums, int64_t bytes) const {
    json::array all;
    for (const auto& [digits, sum] : sums) {
      all.push_back(json::object{{"fingerprint", digits},
                                 {"lines", sum.lines},
                                 {"segments", sum.segments},
                                 {"bytes", sum.bytes},
                                 {"tokens", sum.tokens},
                                 {"states", sum.states},
                                 {"encrypted", sum.encrypted},
                                 {"written_to", sum.written_to}});
    }
    fmt::print("{}\n", json::serialize(json::object{{"bytes", bytes}, {"fingerprints", all}}));
  }
};

// The first of some messages, and how many there are besides.
std::string FirstOf(const std::vector<std::string>& messages) {
  return messages.size() == 1 ? messages[0]
                              : fmt::format("{} (and {} more)", messages[0], messages.size() - 1);
}

class VerifyCommand final : public DirectoryCommand {
  Status Run(const std::vector<SegmentFacts>& segments) override {
    int64_t all = 1, done = 0, parts = 0, damaged = 0;
    for (const SegmentFacts& s : segments) all += s.name.bytes;
    ProgressBar bar("reading " + directory_, 0.5);
    json::array bad;
    std::vector<std::string> faults;
    for (const SegmentFacts& s : segments) {
      const auto progress = [&](int64_t bytes) {
        done += bytes;
        bar.Show(static_cast<double>(done) / static_cast<double>(all));
      };
      const Result<int64_t> found = VerifySegment(files_, s, progress);
      // A server has removed it meanwhile.
      if (!found && found.error().code == ErrorCode::kNotFound) continue;
      const std::string fault = !s.fault.empty() || found ? s.fault : found.error().message;
      const int64_t lost = found ? *found : 0;
      parts += std::ssize(s.entries);
      damaged += lost;
      if (lost == 0 && fault.empty()) continue;
      json::object segment{{"name", s.name.stem}, {"damaged", lost}};
      if (!fault.empty()) {
        segment["fault"] = fault;
        faults.push_back(fault);
      }
      bad.push_back(std::move(segment));
      if (json_) continue;
      if (!fault.empty()) fmt::print("{}\n", fault);
      if (lost > 0) fmt::print("{}: {} parts are damaged\n", s.name.stem, lost);
    }
    if (json_) {
      fmt::print("{}\n", json::serialize(json::object{
                             {"parts", parts}, {"damaged", damaged}, {"segments", bad}}));
    } else if (bad.empty()) {
      fmt::print("{}: {} parts are as they were written\n", directory_, parts);
    }
    if (bad.empty()) return {};
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}{} of {} parts are damaged; servers find that out and compute "
                             "them, `braid cache clear` removes all",
                             faults.empty() ? "" : FirstOf(faults) + "; ", damaged, parts)};
  }
};

class ClearCommand final : public DirectoryCommand {
  Status Run(const std::vector<SegmentFacts>& segments) override {
    int64_t removed = 0, bytes = 0, kept = 0, done = 0;
    std::vector<std::string> faults;
    ProgressBar bar("clearing " + directory_, 0.5);
    for (const SegmentFacts& s : segments) {
      if (const Status status = RemoveSegment(s); status) {
        ++removed;
        bytes += s.name.bytes;
      } else if (status.error().code == ErrorCode::kUnavailable) {
        ++kept;
      } else {
        faults.push_back(status.error().message);
      }
      bar.Show(static_cast<double>(++done) / static_cast<double>(segments.size()));
    }
    RETURN_IF_ERROR(RemoveLines(directory_, fingerprint_));
    if (json_) {
      fmt::print("{}\n", json::serialize(
                             json::object{{"removed", removed}, {"bytes", bytes}, {"kept", kept}}));
    } else {
      fmt::print("{}: removed {} segments, {}\n", directory_, removed, ByteText(bytes));
    }
    if (kept > 0 && !json_) {
      fmt::print("{} segments stay: servers write to them; POST /flush_cache clears a server's\n",
                 kept);
    }
    if (faults.empty()) return {};
    return Error{ErrorCode::kInternal,
                 fmt::format("{}; {} segments cannot be removed; remove their files as their owner",
                             FirstOf(faults), faults.size())};
  }
};

}  // namespace

CommandPointer MakeCacheLsCommand() { return std::make_unique<LsCommand>(); }
CommandPointer MakeCacheStatCommand() { return std::make_unique<StatCommand>(); }
CommandPointer MakeCacheVerifyCommand() { return std::make_unique<VerifyCommand>(); }
CommandPointer MakeCacheClearCommand() { return std::make_unique<ClearCommand>(); }

}  // namespace braid
