// Of an event log only those events matter that bring requests and tokens. How the run planned its
// steps does not matter, so the log of a scheduler that planned otherwise than today's is a load as
// well.
#include "cluster/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/system/file.h"
#include "cache/block_keys.h"
#include "scheduler/event_log.h"
#include "scheduler/limits.h"

namespace braid {
namespace {

// A sequence of the run as segments, each a block of the prefix cache: the block's key, which says
// what all tokens up to its end are, is the segment's. So the simulated caches can reuse what the
// run's could, an answer in a later prompt included.
class Blocks {
 public:
  explicit Blocks(const PrefixSpace& space) : key_(RootBlockKey(space)) {}

  void Add(TokenId token) {
    tail_[static_cast<size_t>(tail_tokens_++)] = token;
    if (tail_tokens_ == kBlockTokens) EndBlock();
  }
  // The first tokens are the prompt, the others the answer.
  void Split(int32_t prompt_tokens, ClusterRequest& request) {
    if (tail_tokens_ > 0) EndBlock();
    for (const TokenSegment& block : blocks_) {
      const int32_t asked = std::min(prompt_tokens, block.tokens);
      if (asked > 0) request.prompt.push_back({block.key, asked});
      if (asked < block.tokens) request.answer.push_back({block.key, block.tokens - asked, asked});
      prompt_tokens -= asked;
    }
  }

 private:
  void EndBlock() {
    std::fill(tail_.begin() + tail_tokens_, tail_.end(), TokenId{-1});  // no token of any block
    key_ = ChildBlockKey(key_, tail_);
    blocks_.push_back({key_.low, std::exchange(tail_tokens_, 0)});
  }

  BlockKey key_;  // of the blocks that are whole
  std::vector<TokenSegment> blocks_;
  BlockTokens tail_;
  int32_t tail_tokens_ = 0;
};

class LogRequests {
 public:
  LogRequests(const SchedulerConfig& config, double seconds)
      : config_(config), seconds_us_(seconds * 1e6) {}

  Status Take(const Event& event, int64_t at_us) {
    if (const auto* submit = std::get_if<Submit>(&event)) return Arrive(submit->request, at_us);
    if (const auto* done = std::get_if<StepDone>(&event)) {
      for (const RowResult& row : done->rows) TakeRow(row);
    } else if (const auto* abort = std::get_if<Abort>(&event)) {
      End(running_.find(abort->id));
    } else if (const auto* stop = std::get_if<StopRequested>(&event)) {
      stopped_ = true;
      if (stop->now) EndAll();
    }
    return {};
  }

  void EndAll() {
    while (!running_.empty()) End(running_.begin());
  }
  bool stopped() const { return stopped_; }
  std::vector<ClusterRequest> TakeRequests() { return std::move(requests_); }

 private:
  struct Running {
    size_t number = 0;  // of the request
    Blocks blocks;
    StopParams stop;
    int32_t prompt_tokens = 0, tokens_max = 0;
    int32_t answer_tokens = 0;
    std::vector<TokenId> drafts = {};  // that its next row may have
  };
  using RunningAt = std::unordered_map<RequestId, Running>::iterator;

  Status Arrive(const Request& r, int64_t at_us) {
    if (r.tenant == kOwnTenant) return {};
    if (!first_us_) first_us_ = at_us;
    const char* const wrong = running_.contains(r.id) ? "comes twice"
                              : at_us < *first_us_    ? "comes before the first one"
                              : r.prompt.empty()      ? "has no prompt"
                                                      : nullptr;
    if (wrong != nullptr) {
      return Error{
          ErrorCode::kInvalid,
          fmt::format("no run can have written this log: request {} {}", r.id.value, wrong)};
    }
    const int64_t since_us = at_us - *first_us_;
    if (static_cast<double>(since_us) >= seconds_us_) return {};
    Running running{.number = requests_.size(),
                    .blocks = Blocks({.tenant = r.tenant, .salt = r.cache_salt}),
                    .stop = r.stop,
                    .prompt_tokens = static_cast<int32_t>(r.prompt.size()),
                    .tokens_max = LengthMax(config_, r)};
    for (const TokenId token : r.prompt) running.blocks.Add(token);
    running_.emplace(r.id, std::move(running));
    requests_.push_back({.at_us = since_us,
                         .answer_max = std::max(0, r.stop.new_tokens_max),
                         .scores_prompt = r.prompt_logprobs >= 0,
                         .priority = r.priority,
                         .tenant = r.tenant});
    return {};
  }

  // As LifeCycle::TakeTokens does it. No row comes after a limit; ending there frees memory.
  void TakeRow(const RowResult& row) {
    const RunningAt at = running_.find(row.request);
    if (at == running_.end()) return;
    Running& running = at->second;
    if (!row.error.empty()) return End(at);
    std::vector<TokenId> tokens = std::exchange(running.drafts, row.drafts);
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(std::max(0, row.accepted))));
    if (row.token >= 0) tokens.push_back(row.token);
    for (const TokenId token : tokens) {
      const bool stops = running.answer_tokens >= running.stop.new_tokens_min &&
                         std::ranges::binary_search(running.stop.stop_tokens, token);
      running.blocks.Add(token);
      ++running.answer_tokens;
      if (stops || running.prompt_tokens + running.answer_tokens >= running.tokens_max) {
        return End(at);
      }
    }
  }

  void End(RunningAt at) {
    if (at == running_.end()) return;
    at->second.blocks.Split(at->second.prompt_tokens, requests_[at->second.number]);
    running_.erase(at);
  }

  const SchedulerConfig& config_;
  const double seconds_us_;
  std::optional<int64_t> first_us_;
  bool stopped_ = false;
  std::unordered_map<RequestId, Running> running_;
  std::vector<ClusterRequest> requests_;
};

Result<ClusterTrace> ReadLog(const std::string& path, double seconds) {
  ASSIGN_OR_RETURN(EventLogReader log, EventLogReader::Open(path));
  LogRequests requests(log.start().config, seconds);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<LogRecord> record, log.Next());
    if (!record) break;
    const Event* event = std::get_if<Event>(&*record);
    if (event != nullptr) RETURN_IF_ERROR(requests.Take(*event, log.at_us()));
  }
  requests.EndAll();
  ClusterTrace trace{.requests = requests.TakeRequests(),
                     .cut = log.truncated() || !requests.stopped()};
  if (trace.requests.empty()) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: the event log has no request", path)};
  }
  return trace;
}

}  // namespace

Result<ClusterTrace> ReadTrace(const std::string& path, double seconds) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  if (IsEventLog(text)) return ReadLog(path, seconds);
  ASSIGN_OR_RETURN(std::vector<ClusterRequest> requests, ParseTrace(text, path, seconds));
  return ClusterTrace{.requests = std::move(requests)};
}

}  // namespace braid
