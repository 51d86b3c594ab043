// The engine's cache is a set of keys of a few prompts that share beginnings; some prompts are
// private. Its batches are those of the program (EncodeBatch).
#include "tests/router/caches.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "base/rng.h"
#include "cache/prefix_changes.h"
#include "kv_events/stream.h"
#include "router/placement/held_blocks.h"
#include "router/prompts/prompt_keys.h"

namespace braid {
namespace {

constexpr int32_t kPrompts = 6, kBlocks = 4, kRanks = 2, kSteps = 120;

// What the engine repeats when it is asked.
enum class Repeats : uint8_t { kAll, kSome, kNothing };

struct Prompt {
  bool shared = true;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> keys;
};

class World {
 public:
  World(uint64_t seed, Repeats repeats) : rng_(seed), repeats_(repeats) {
    for (int32_t p = 0; p < kPrompts; ++p) {
      Prompt& prompt = prompts_.emplace_back();
      prompt.shared = p % 3 != 2;
      for (int32_t i = 0; i < kBlocks * kBlockTokens; ++i) {
        // The second half of the prompts begins as the first one does. Private ones have the tokens
        // of others.
        const int32_t part = p % 3 % 2 + 3 * (i / kBlockTokens < 2 ? 0 : p / 3);
        prompt.tokens.push_back(i * 7 + part * 1000);
      }
      PromptKeys keys;
      SetTokens(prompt.tokens, {.tenant = prompt.shared ? "" : "ann", .salt = {}}, &keys);
      prompt.keys = keys.blocks;
    }
    Subscribe();
    Restart(true);
  }

  std::string Go() {
    for (int32_t step = 0; step < kSteps; ++step) {
      const auto draw = rng_.Below(100);
      if (draw < 45) {
        Store();
      } else if (draw < 70) {
        Evict();
      } else if (draw < 72) {
        Restart(rng_.Below(2) == 0);
      } else if (draw < 85) {
        Ask();
      } else {
        Answer();
      }
    }
    // Messages that come show every gap; then all is asked for and answered.
    for (int32_t i = 0; i < 3; ++i) {
      Ask();
      while (!answers_.empty()) Answer();
      Publish({}, 0, true);
    }
    if (std::string wrong = Claims(); !wrong.empty()) return wrong;
    return repeats_ == Repeats::kAll ? Lacks() : "";
  }

 private:
  using Held = std::set<uint64_t>;

  void Subscribe() {
    stream_.emplace(repeats_ != Repeats::kNothing,
                    [this](const kv::EventBatch& batch) { held_.Apply(batch, known_); });
    held_.Clear();
    known_.Clear();
  }

  // Another process. Its first message comes, or the router notices that the former one is gone, as
  // it does when an answer breaks off.
  void Restart(bool comes) {
    comes = comes && answers_.empty();
    kept_.clear();
    answers_.clear();
    next_ = 0;
    for (Held& rank : cache_) rank.clear();
    if (!comes) Subscribe();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      PrefixChanges changes;
      changes.cleared = true;
      Publish(changes, rank, comes);
    }
  }

  void Store() {
    const Prompt& prompt = prompts_[static_cast<size_t>(rng_.Below(kPrompts))];
    const auto rank = static_cast<int32_t>(rng_.Below(kRanks));
    const auto depth = static_cast<size_t>(1 + rng_.Below(kBlocks));
    PrefixChanges changes;
    for (size_t i = 0; i < depth; ++i) {
      if (!cache_[rank].insert(prompt.keys[i]).second) continue;
      StoredBlock block{.hash = prompt.keys[i], .shared = prompt.shared, .tokens = {}};
      if (i > 0) block.parent = prompt.keys[i - 1];
      std::copy_n(prompt.tokens.begin() + static_cast<ptrdiff_t>(i) * kBlockTokens, kBlockTokens,
                  block.tokens.begin());
      changes.stored.push_back(block);
    }
    if (!changes.empty()) Publish(changes, rank, rng_.Below(10) < 7);
  }

  // A prompt's deepest blocks, unless others need them.
  void Evict() {
    const Prompt& prompt = prompts_[static_cast<size_t>(rng_.Below(kPrompts))];
    const auto rank = static_cast<int32_t>(rng_.Below(kRanks));
    PrefixChanges changes;
    for (size_t i = kBlocks; i-- > static_cast<size_t>(rng_.Below(kBlocks));) {
      if (!cache_[rank].contains(prompt.keys[i])) continue;
      const bool needed = std::ranges::any_of(prompts_, [&](const Prompt& other) {
        return i + 1 < kBlocks && other.keys[i] == prompt.keys[i] &&
               cache_[rank].contains(other.keys[i + 1]);
      });
      if (needed) break;
      cache_[rank].erase(prompt.keys[i]);
      changes.removed.push_back(prompt.keys[i]);
    }
    if (!changes.empty()) Publish(changes, rank, rng_.Below(10) < 7);
  }

  void Publish(const PrefixChanges& changes, int32_t rank, bool comes) {
    const std::string batch = kv::EncodeBatch(changes, 0, rank);
    kept_.emplace_back(next_, batch);
    if (repeats_ != Repeats::kAll && kept_.size() > 6) kept_.pop_front();
    if (comes) stream_->OnLive(next_, batch);
    ++next_;
  }

  void Ask() {
    now_us_ += 1000;
    const std::optional<uint64_t> first = stream_->Question(now_us_);
    if (!first) return;
    for (const auto& [number, batch] : kept_) {
      if (number >= *first) answers_.emplace_back(number, batch);
    }
    answers_.emplace_back(~uint64_t{0}, "");
  }

  void Answer() {
    if (answers_.empty()) return;
    const auto [number, batch] = answers_.front();
    answers_.pop_front();
    stream_->OnAnswer(number, batch);
  }

  bool Holds(uint64_t key) const {
    return std::ranges::any_of(cache_, [&](const Held& rank) { return rank.contains(key); });
  }
  // What the router believes and is not so.
  std::string Claims() const {
    for (const Prompt& prompt : prompts_) {
      for (size_t i = 0; i < prompt.keys.size(); ++i) {
        const uint64_t key = prompt.keys[i];
        if (known_.Find({&key, 1}).blocks == 1 && !Holds(key)) {
          return fmt::format("block {} of a prompt is not there", i);
        }
      }
    }
    return {};
  }
  std::string Lacks() const {
    for (const Prompt& prompt : prompts_) {
      for (size_t i = 0; i < prompt.keys.size(); ++i) {
        const uint64_t key = prompt.keys[i];
        if (Holds(key) && known_.Find({&key, 1}).blocks == 0) {
          return fmt::format("block {} of a prompt is not known", i);
        }
      }
    }
    return {};
  }

  Rng rng_;
  const Repeats repeats_;
  std::vector<Prompt> prompts_;
  Held cache_[kRanks];
  uint64_t next_ = 0;
  std::deque<std::pair<uint64_t, std::string>> kept_, answers_;
  int64_t now_us_ = 1;
  KnownPrefixes known_{1000};
  HeldBlocks held_;
  std::optional<kv::EventStream> stream_;
};

}  // namespace

std::string RunCaches(int32_t seeds) {
  for (int32_t seed = 0; seed < seeds; ++seed) {
    for (const Repeats repeats : {Repeats::kAll, Repeats::kSome, Repeats::kNothing}) {
      const std::string wrong = World(static_cast<uint64_t>(seed), repeats).Go();
      if (!wrong.empty()) return fmt::format("seed {}: {}", seed, wrong);
    }
  }
  return {};
}

}  // namespace braid
