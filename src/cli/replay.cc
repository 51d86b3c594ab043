// `braid replay`: a recorded run once more, without its clients; with the model when one is given.
#include "scheduler/replay.h"

#include <fmt/core.h>

#include "base/progress.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "engine/engine.h"

namespace braid {
namespace {

class ReplayCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("FILE", file_, "File that --event-log wrote");
    flags.Text("--model", options_.model_dir,
               "Recompute every token with this checkpoint and compare");
    AddPlaceFlags(flags, options_);
    AddDeviceFlags(flags, options_);
    AddWeightFlags(flags, options_.weights, options_.quantise_head);
    AddCacheTypeFlags(flags, options_);
    AddMlaFlag(flags, options_);
  }
  Status Run() override;

 private:
  std::string file_;
  EngineOptions options_;
};

Status ReplayCommand::Run() {
  ASSIGN_OR_RETURN(EventLogReader log, EventLogReader::Open(file_));
  fmt::print("recorded: {}\n", log.start().model);
  std::unique_ptr<Engine> engine;
  if (!options_.model_dir.empty()) {
    if (log.start().config.tier) {
      return Error{ErrorCode::kInvalid,
                   "the recorded run read pages from --cache-dir, which may be others now; leave "
                   "out --model to compare its plans"};
    }
    if (const auto checked = Scheduler::Create(log.start().config); !checked) {
      return checked.error();
    }
    options_.recorded = log.start().config;
    options_.scheduler = log.start().config;
    options_.expand = true;  // as the recorded run
    ASSIGN_OR_RETURN(engine, Engine::Load(options_));
    engine->Stop(true);
    engine->Join();
  }
  ProgressBar bar("replaying", 0.5);
  Executor* executor = engine ? &engine->executor() : nullptr;
  ASSIGN_OR_RETURN(const ReplayReport report, Replay(log, executor, [&](const ReplayReport& r) {
                     bar.Show(0, fmt::format("{} plans, {} tokens", r.plans, r.tokens));
                   }));
  fmt::print("{} requests, {} events: {} plans are equal, {} tokens {}\n", report.requests,
             report.events, report.plans, report.tokens,
             engine ? "and their log-probabilities are equal" : "taken from the log");
  if (report.truncated) fmt::print("the log ends inside a record: the run was cut off there\n");
  return {};
}

}  // namespace

CommandPointer MakeReplayCommand() { return std::make_unique<ReplayCommand>(); }

}  // namespace braid
