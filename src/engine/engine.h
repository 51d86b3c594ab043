// The engine assembled in one process: checkpoint, weights, cache, executor, scheduler, driver and
// the engine thread, with the tokenizer and chat template if the checkpoint has them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "experts/recorder.h"
#include "model/loading/load_report.h"
#include "model/spec.h"
#include "runtime/experts/expert_mover.h"
#include "runtime/experts/rank_counts.h"
#include "scheduler/driver.h"
#include "text/chat/chat_template.h"
#include "text/grammar/grammar_library.h"
#include "text/tokens/generation_defaults.h"
#include "text/tokens/tokenizer.h"

namespace braid {

class Engine {
 public:
  // Calls `stage` with the progress ("loading weights, 40 %") and shows a progress bar on stderr.
  static Result<std::unique_ptr<Engine>> Load(
      const EngineOptions& options,
      const std::function<void(std::string)>& stage = [](std::string) {});
  ~Engine();  // see Close

  // What a process does that mpirun has started as another rank than the first: loads its part and
  // follows until the run ends. Nothing is printed but errors.
  static Status Follow(const EngineOptions& options);

  const ModelSpec& spec() const;
  const Machine& machine() const;
  const SchedulerConfig& limits() const;
  Driver& driver();
  Executor& executor();                       // the engine thread's until Join
  const Tokenizer* tokenizer() const;         // null: ids only
  const ChatTemplate* chat_template() const;  // null: no chat
  double load_seconds() const;                // duration of Load
  GrammarLibrary* grammars() const;           // null: no constrained output
  const std::vector<TokenId>& eos_tokens() const;
  const GenerationDefaults& defaults() const;
  const EngineOptions& options() const;

  // Weights, cache, what fits, threads: the lines printed at start.
  std::string PlanText() const;
  // The same for /server_info.
  json::object PlanObject() const;
  // The most memory that the engine takes in this process, of all ranks that are its threads and
  // beside the cache; what lies in a device's own memory is counted too.
  int64_t ProcessBytesMax() const;
  std::string ExplainOps() const;
  std::string ModelLines() const;  // see ModelLinesOf; reads samples of the weights
  RunningFormats weight_formats() const;
  const ExpertRecorder* experts() const;   // null: the model has none
  handoff::Partners* partners() const;     // null: there are none
  int64_t tier_ahead_bytes() const;        // see DiskTierStats
  const kv::Publisher* kv_events() const;  // null: nobody hears of prefixes
  const ExpertMover* mover() const;        // null: experts stay where they are
  const RankCounts* rank_counts() const;   // of experts on several ranks; null: there are none

  // Why the group of ranks has ended: all requests fail from then on. Any thread.
  Status group_status() const;

  // Ends the engine thread, at once or when no request is left. May be called from any thread.
  void Stop(bool now);
  // Waits for the engine thread.
  void Join();
  // Ends running requests, the engine thread and the other ranks, and writes what is left to write:
  // pages of --cache-dir, --expert-loads, --trace. Server threads may still use the driver and ask
  // for figures. The destructor calls it too; only the first call does anything.
  void Close();

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The tokens of a text. An error if the checkpoint has no tokenizer.
Result<std::vector<TokenId>> EncodeText(const Engine& engine, std::string_view text,
                                        bool add_special_tokens);
// A chat rendered by the model's template; `context` as for ChatTemplate::Render.
struct RenderedPrompt {
  std::string text;
  std::vector<TokenId> tokens;
};
Result<RenderedPrompt> RenderPrompt(const Engine& engine, const json::object& context);

}  // namespace braid
