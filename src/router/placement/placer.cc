// The figures of the cost are in tokens of prefill.
#include "router/placement/placer.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace braid {
namespace {

// A running request slows a prompt down about as much as computing these tokens does.
constexpr double kRequestTokens = 64;
// A conversation's engine also has the answers, which its prompts have not shown yet.
constexpr double kSessionTokens = 512;
// Work is forgotten by halves as so many tokens are computed for each engine.
constexpr double kWorkTokens = 65536;
// What an engine was given counts by half: a lone conversation stays where it is.
constexpr double kWorkWeight = 0.5;
// A beginning that an engine has saves more than its tokens. Elsewhere it would be kept twice, and
// the next prompt with it computed whole too, for only then is there a state where the two part.
constexpr double kCopyWeight = 0.5;
constexpr size_t kHomesMax = 1 << 18;

}  // namespace

int32_t Placer::Homes::Find(uint64_t key) const {
  const auto found = engines_.find(key);
  return found == engines_.end() ? -1 : found->second;
}

void Placer::Homes::Set(uint64_t key, int32_t engine) {
  if (!engines_.insert_or_assign(key, engine).second) return;
  order_.push_back(key);
  if (order_.size() <= kHomesMax) return;
  engines_.erase(order_.front());
  order_.pop_front();
}

void Placer::AddEngine(int32_t engine, int64_t blocks_max) {
  CHECK(blocks_max > 0);
  // It begins with as much work as the others have on average, or it would get everything.
  double work = 0;
  for (const auto& [number, other] : engines_) work += other.work;
  if (!engines_.empty()) work /= static_cast<double>(engines_.size());
  engines_.emplace(engine,
                   Engine{.known = KnownPrefixes(blocks_max), .held = HeldBlocks(), .work = work});
}

void Placer::RemoveEngine(int32_t engine) { engines_.erase(engine); }

void Placer::SetCapacity(int32_t engine, int64_t blocks_max) {
  engines_.at(engine).known.SetCapacity(blocks_max);
}

void Placer::Held(int32_t engine, const kv::EventBatch& batch) {
  const auto at = engines_.find(engine);
  if (at != engines_.end()) at->second.held.Apply(batch, at->second.known);
}

void Placer::Forget(int32_t engine) {
  engines_.at(engine).known.Clear();
  engines_.at(engine).held.Clear();
}

void Placer::Stored(std::string_view id, int32_t engine) {
  responses_.Set(SessionKey("", id), engine);
}

Placer::Choice Placer::Choose(const PromptKeys& prompt, std::span<const EngineLoad> engines) {
  Choice best;
  if (engines.empty()) return best;
  const auto choice_of = [&](int32_t engine, Reason reason) {
    const KnownPrefixes::Match match = engines_.at(engine).known.Find(prompt.blocks);
    const int64_t reused = std::min(prompt.tokens, match.resumable * kTextBlockTokens);
    return Choice{.engine = engine,
                  .reason = reason,
                  .reused_tokens = reused,
                  .computed_tokens = prompt.tokens - reused};
  };
  if (!prompt.stored_id.empty()) {
    const int32_t home = responses_.Find(SessionKey("", prompt.stored_id));
    const bool there = std::ranges::find(engines, home, &EngineLoad::engine) != engines.end();
    if (there) return choice_of(home, Reason::kStored);
  }
  if (policy_ == Policy::kRoundRobin) {
    const auto at = static_cast<size_t>(turn_++ % std::ssize(engines));
    return choice_of(engines[at].engine, Reason::kOrder);
  }
  const int32_t home = prompt.session == 0 ? -1 : sessions_.Find(prompt.session);
  double best_cost = std::numeric_limits<double>::max();
  for (const EngineLoad& load : engines) {
    Choice choice = choice_of(load.engine, Reason::kLoad);
    double cost = static_cast<double>(load.backlog_tokens) +
                  kRequestTokens * static_cast<double>(load.requests) +
                  kWorkWeight * engines_.at(load.engine).work;
    if (policy_ == Policy::kPrefix) {
      cost += static_cast<double>(choice.computed_tokens) -
              kCopyWeight * static_cast<double>(choice.reused_tokens);
      if (choice.reused_tokens > 0) choice.reason = Reason::kPrefix;
      if (load.engine == home) {
        cost -= kSessionTokens;
        choice.reason = Reason::kSession;
      }
    }
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = choice;
  }
  return best;
}

void Placer::Sent(const PromptKeys& prompt, const Choice& choice) {
  const auto at = engines_.find(choice.engine);
  if (at == engines_.end() || !prompt.generates) return;
  at->second.known.Add(prompt.blocks);
  if (prompt.session != 0) sessions_.Set(prompt.session, choice.engine);
  const double tokens = static_cast<double>(choice.computed_tokens) + kRequestTokens;
  const double window = kWorkTokens * static_cast<double>(engines_.size());
  const double kept = 1 - std::min(1.0, tokens / window);
  for (auto& [number, engine] : engines_) engine.work *= kept;
  at->second.work += tokens;
}

std::string_view NameOf(Placer::Reason reason) {
  constexpr std::string_view kNames[] = {"order", "load", "prefix", "session", "stored"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace braid
