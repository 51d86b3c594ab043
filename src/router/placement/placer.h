// To which engine a request goes. One cost for each engine that can take it, in tokens: what it
// would compute of the prompt, what it has to compute before that, its running requests, and what
// it was given beyond its share. The least cost wins. So a prefix is followed as long as it saves
// more than the wait behind it costs, and new conversations spread. Pure; not thread-safe.
#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string_view>

#include "router/placement/held_blocks.h"
#include "router/placement/known_prefixes.h"
#include "router/placement/prompt_blocks.h"

namespace braid {

// The least cost; the engines in turn; or the least cost without what is known of prefixes.
enum class Policy : uint8_t { kPrefix, kRoundRobin, kLeastLoad };
inline constexpr std::array<std::string_view, 3> kPolicyNames = {"prefix", "round_robin",
                                                                 "least_load"};
inline std::string_view NameOf(Policy policy) { return kPolicyNames[static_cast<size_t>(policy)]; }

// An engine that may take a request, and what it does now.
struct EngineLoad {
  int32_t engine = 0;          // its number
  int64_t requests = 0;        // that it works on, or that wait there
  int64_t backlog_tokens = 0;  // of prompts that it has yet to compute
};

class Placer {
 public:
  explicit Placer(Policy policy) : policy_(policy) {}
  void SetPolicy(Policy policy) { policy_ = policy; }

  // Engines are numbers; those that are not added are unknown.
  void AddEngine(int32_t engine, int64_t blocks_max);
  void RemoveEngine(int32_t engine);
  void SetCapacity(int32_t engine, int64_t blocks_max);
  // What it says of its cache (kv_events/).
  void Held(int32_t engine, const kv::EventBatch& batch);
  // Its cache is empty: it was started again.
  void Forget(int32_t engine);

  enum class Reason : uint8_t { kOrder, kLoad, kPrefix, kSession, kStored, kCount };
  struct Choice {
    int32_t engine = -1;  // -1: there is none
    Reason reason = Reason::kLoad;
    int64_t reused_tokens = 0;    // of the prompt, as far as is known
    int64_t computed_tokens = 0;  // the rest
  };
  Choice Choose(const PromptKeys& prompt, std::span<const EngineLoad> engines);
  // The request went to this engine: later ones find its prompt and its session there.
  void Sent(const PromptKeys& prompt, const Choice& choice);

  // The engine that made a stored response.
  void Stored(std::string_view id, int32_t engine);

  int64_t prefix_blocks(int32_t engine) const { return engines_.at(engine).known.size(); }
  int64_t held_blocks(int32_t engine) const { return engines_.at(engine).held.size(); }

 private:
  struct Engine {
    KnownPrefixes known;
    HeldBlocks held;
    double work = 0;  // tokens that it was given to compute, lately
  };
  // The most recent engines of names.
  class Homes {
   public:
    int32_t Find(uint64_t key) const;  // -1: unknown
    void Set(uint64_t key, int32_t engine);

   private:
    boost::unordered_flat_map<uint64_t, int32_t> engines_;
    std::deque<uint64_t> order_;
  };

  Policy policy_;
  std::map<int32_t, Engine> engines_;
  Homes sessions_, responses_;
  int64_t turn_ = 0;
};

// "prefix": as metrics call it.
std::string_view NameOf(Placer::Reason reason);

}  // namespace braid
