// The router's placement on the agentic workload: conversations that share the beginnings of their
// agents, each turn the last one, its answer and something new. Four engines behind the placer,
// each with the real scheduler and prefix cache, against one engine with the memory of all four.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/rng.h"
#include "router/placement/placer.h"
#include "scheduler/scheduler.h"

namespace braid {
namespace {

constexpr int32_t kConversations = 96;
constexpr int32_t kAtOnce = 16;
constexpr int32_t kTurns = 10;
constexpr int32_t kAgents = 3;
constexpr int32_t kPagesInAll = 2400;

SchedulerConfig ConfigOf(int32_t pages, int32_t running) {
  return {
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 1}, {"state", GroupKind::kState, 64, 1}},
                .page_bytes = 64,
                .pages = pages + 1},
      .context_tokens_max = 16384,
      .step_tokens_max = 512,
      .running_max = running,
      .vocabulary = 5000};
}

struct Conversation {
  std::vector<TokenId> tokens;
  int32_t turns = 0;
};

// The hashes of the blocks of a prompt, as the router makes them of token ids.
PromptKeys KeysOf(const std::vector<TokenId>& tokens) {
  PromptKeys keys{.tokens = std::ssize(tokens), .generates = true};
  uint64_t hash = 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash = MixBits(hash ^ static_cast<uint64_t>(tokens[i])) + i;
    if ((i + 1) % kTextBlockTokens == 0) keys.blocks.push_back(hash);
  }
  return keys;
}

struct Engine {
  explicit Engine(int32_t pages, int32_t running)
      : scheduler(*Scheduler::Create(ConfigOf(pages, running))) {}
  Scheduler scheduler;
  std::map<int64_t, int64_t> backlog;  // by request, until its first token
  int64_t computed = 0;                // tokens of its steps
  int64_t requests = 0;                // in flight
};

struct Outcome {
  double reuse = 0;      // of the prompts' tokens
  double imbalance = 0;  // the most loaded engine's tokens over the mean
};

class Workload {
 public:
  Workload(int32_t engines, Policy policy, uint64_t seed) : placer_(policy), rng_(seed) {
    for (int32_t i = 0; i < engines; ++i) {
      engines_.push_back(std::make_unique<Engine>(kPagesInAll / engines, 32 / engines));
      placer_.AddEngine(i, kPagesInAll / engines);
    }
    for (int32_t i = 0; i < kConversations; ++i) {
      Conversation& conversation = conversations_.emplace_back();
      Rng agent(1000 + static_cast<uint64_t>(rng_.Below(kAgents)));
      for (int32_t t = 0; t < 600; ++t) Add(&conversation, agent);
    }
  }

  Outcome Go(int32_t lost_at_turn = -1) {
    int32_t next = 0, ended = 0;
    while (ended < kConversations) {
      // A conversation begins as soon as another one has ended, and goes on some steps after its
      // answer: a tool ran, or somebody read.
      while (next < std::min(ended + kAtOnce, kConversations)) due_[next++] = 0;
      for (auto at = due_.begin(); at != due_.end();) {
        if (--at->second > 0) {
          ++at;
          continue;
        }
        Submit(at->first);
        at = due_.erase(at);
      }
      for (const auto& engine : engines_) ended += Step(*engine);
      if (lost_at_turn >= 0 && submitted_ >= lost_at_turn) {
        // The engine loses what no request uses, as when it is started again.
        lost_at_turn = -1;
        engines_[1]->scheduler.Apply(FlushCache{});
        placer_.Forget(1);
      }
    }
    Outcome outcome;
    int64_t reused = 0, prompts = 0, most = 0, all = 0;
    for (const auto& engine : engines_) {
      const SchedulerStats stats = engine->scheduler.stats();
      reused += stats.reused_tokens;
      prompts += stats.prompt_tokens;
      most = std::max(most, engine->computed);
      all += engine->computed;
    }
    outcome.reuse = static_cast<double>(reused) / static_cast<double>(prompts);
    outcome.imbalance =
        static_cast<double>(most) * static_cast<double>(engines_.size()) / static_cast<double>(all);
    return outcome;
  }

 private:
  static void Add(Conversation* conversation, Rng& rng) {
    conversation->tokens.push_back(static_cast<TokenId>(10 + rng.Below(4900)));
  }

  void Submit(int32_t number) {
    Conversation& conversation = conversations_[static_cast<size_t>(number)];
    const auto more = 40 + rng_.Below(300);
    for (int64_t i = 0; i < more; ++i) Add(&conversation, rng_);
    PromptKeys keys = KeysOf(conversation.tokens);
    std::vector<EngineLoad> loads;
    for (const auto& engine : engines_) {
      EngineLoad load{.engine = static_cast<int32_t>(loads.size()), .requests = engine->requests};
      for (const auto& [id, tokens] : engine->backlog) load.backlog_tokens += tokens;
      loads.push_back(load);
    }
    const Placer::Choice choice = placer_.Choose(keys, loads);
    placer_.Sent(keys, choice);
    Engine& engine = *engines_[static_cast<size_t>(choice.engine)];
    Request request;
    request.id = RequestId(submitted_++ * kConversations + number);
    request.prompt = conversation.tokens;
    request.stop.new_tokens_max = static_cast<int32_t>(20 + rng_.Below(60));
    engine.backlog[request.id.value] = choice.computed_tokens;
    ++engine.requests;
    engine.scheduler.Apply(braid::Submit{std::move(request)});
  }

  // One step of an engine. How many conversations ended.
  int32_t Step(Engine& engine) {
    const Plan plan = engine.scheduler.NextPlan();
    if (plan.empty()) return 0;
    StepDone done{plan.step, {}};
    for (const Row& row : plan.rows) {
      RowResult result;
      result.request = row.request;
      if (row.sample) result.token = static_cast<TokenId>(10 + rng_.Below(4900));
      engine.computed += row.token_count;
      done.rows.push_back(std::move(result));
    }
    engine.scheduler.Apply(std::move(done));
    int32_t ended = 0;
    for (const Output& output : engine.scheduler.TakeOutputs()) {
      const auto number = static_cast<int32_t>(output.id.value % kConversations);
      Conversation& conversation = conversations_[static_cast<size_t>(number)];
      conversation.tokens.insert(conversation.tokens.end(), output.tokens.begin(),
                                 output.tokens.end());
      if (!output.tokens.empty()) engine.backlog.erase(output.id.value);
      if (!output.finish) continue;
      EXPECT_NE(*output.finish, FinishReason::kError);
      --engine.requests;
      if (++conversation.turns == kTurns) {
        ++ended;
      } else {
        due_[number] = static_cast<int32_t>(1 + rng_.Below(40));
      }
    }
    return ended;
  }

  Placer placer_;
  Rng rng_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Conversation> conversations_;
  std::map<int32_t, int32_t> due_;  // conversations that wait, and for how many steps
  int64_t submitted_ = 0;
};

TEST(RouterPlacement, ReusesAsMuchAsOneCacheOfTheSameSizeAndKeepsTheLoadEven) {
  double one = 0, four = 0, turns = 0, load = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    one += Workload(1, Policy::kPrefix, seed).Go().reuse;
    const Outcome outcome = Workload(4, Policy::kPrefix, seed).Go();
    four += outcome.reuse;
    EXPECT_LE(outcome.imbalance, 1.2) << seed;
    turns += Workload(4, Policy::kRoundRobin, seed).Go().reuse;
    load += Workload(4, Policy::kLeastLoad, seed).Go().reuse;
  }
  RecordProperty("reuse_of_one_cache", std::to_string(four / one));
  EXPECT_GT(one / 5, 0.8) << "the workload has something to reuse";
  EXPECT_GE(four / one, 0.95) << four / 5 << " of " << one / 5;
  EXPECT_LT(turns / one, 0.8) << "without prefixes";
  EXPECT_LT(load / one, 0.8) << "without prefixes";
}

TEST(RouterPlacement, ReuseRecoversWhenAnEngineIsStartedAgain) {
  const double whole = Workload(4, Policy::kPrefix, 9).Go().reuse;
  const double interrupted = Workload(4, Policy::kPrefix, 9).Go(kConversations * kTurns / 2).reuse;
  EXPECT_GE(interrupted, 0.95 * whole);
  EXPECT_LT(interrupted, whole) << "the engine lost something";
}

}  // namespace
}  // namespace braid
