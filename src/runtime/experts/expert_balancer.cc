// See the header.
#include "runtime/experts/expert_balancer.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace braid {

struct ExpertBalancer::State {
  struct Question {
    std::vector<LayerSlots> placement;
    std::vector<int64_t> counts;
    std::vector<BalanceWindow::Part> parts;
    EventSink* events = nullptr;
  };

  const BalancedExperts experts;
  const BalancerOptions options;
  // Of the engine thread: since the last question.
  std::vector<int64_t> counts;
  std::map<int, BalanceWindow::Part> parts;  // by the binary digits of a step's tokens
  int64_t steps = 0;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::optional<Question> question;
  bool stop = false;
  BalancerFigures figures;
  std::thread thread;

  State(BalancedExperts e, const BalancerOptions& o)
      : experts(std::move(e)), options(o), thread([this] { Run(); }) {}

  void Run() {
    ::pthread_setname_np(::pthread_self(), "braid-balancer");
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return question.has_value() || stop; });
      if (stop) return;
      const Question asked = *std::exchange(question, std::nullopt);
      lock.unlock();
      BalanceDecision decision =
          Decide(experts.shape, asked.placement,
                 {asked.counts, asked.parts, experts.layers, experts.groups}, options.rules);
      const bool moves = decision.moves && decision.balance < options.below;
      lock.lock();
      ++figures.decisions;
      if (!moves || stop) continue;
      ++figures.moves;
      figures.predicted = decision.balance_next;
      LogInfo("the balance of ranks is {:.2f}; moving {} experts for {:.2f}", decision.balance,
              decision.received, decision.balance_next);
      asked.events->Post(MoveExperts{std::move(decision.next)});
    }
  }
};

ExpertBalancer::ExpertBalancer(BalancedExperts experts, const BalancerOptions& options)
    : state_(std::make_unique<State>(std::move(experts), options)) {}

ExpertBalancer::~ExpertBalancer() { Stop(); }

void ExpertBalancer::Stop() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

void ExpertBalancer::AddStep(int64_t tokens) {
  const auto digits = static_cast<int>(std::bit_width(static_cast<uint64_t>(tokens)));
  BalanceWindow::Part& part =
      state_->parts.try_emplace(digits, BalanceWindow::Part{.steps = 0, .rows = 0}).first->second;
  ++part.steps;
  part.rows += tokens;
}

bool ExpertBalancer::Count(const Window& window) {
  State& s = *state_;
  s.counts.resize(window.counts.size());
  for (size_t i = 0; i < window.counts.size(); ++i) s.counts[i] += window.counts[i];
  s.steps += window.steps;
  return s.steps >= s.options.every_steps && !window.moving;
}

void ExpertBalancer::Ask(std::vector<LayerSlots> placement, EventSink& events) {
  State& s = *state_;
  std::vector<BalanceWindow::Part> parts;
  for (const auto& [digits, part] : std::exchange(s.parts, {})) parts.push_back(part);
  {
    std::lock_guard lock(s.mutex);
    s.question = State::Question{std::move(placement), std::exchange(s.counts, {}),
                                 std::move(parts), &events};
  }
  s.steps = 0;
  s.changed.notify_all();
}

BalancerFigures ExpertBalancer::figures() const {
  std::lock_guard lock(state_->mutex);
  return state_->figures;
}

}  // namespace braid
