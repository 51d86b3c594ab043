// A trial compiles a grammar in another process before this one compiles it, because a process can
// be stopped and a library call cannot. The trial process runs beside the server; it has one thread
// and forks a child for each trial, with limits on CPU time and memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/grammar/grammar.h"

namespace braid {

// The budget for compiling one grammar.
struct GrammarBudget {
  int32_t cpu_ms = 2000;
  int64_t memory_bytes = int64_t{256} << 20;
};

struct GrammarVerdict {
  // kInvalid: the grammar is wrong; kExhausted: it is over the budget; kUnavailable: it could not
  // be tried now.
  Status status;
  int64_t cpu_us = 0;
  int64_t held_bytes = 0;  // of the compiled grammar; 0: not measured
};

class GrammarTrial {
 public:
  virtual ~GrammarTrial() = default;
  // Ends early with kUnavailable when `cancelled` becomes true, and says what it used until then.
  // Any thread.
  virtual GrammarVerdict Try(GrammarKind kind, std::string_view source,
                             const std::atomic<bool>& cancelled) = 0;
};

// The trial process as its owner sees it. It ends when this object does, or when this process does.
class TrialProcess final : public GrammarTrial {
 public:
  // Makes a process that calls RunTrialProcess with these two descriptors, and gives its id; -1:
  // failed. May be called again when that process has died.
  using Spawn = std::function<int(int control, int vocabulary)>;

  static Result<std::unique_ptr<TrialProcess>> Start(std::string_view packed_vocabulary,
                                                     GrammarBudget budget, Spawn spawn);
  ~TrialProcess() override;

  GrammarVerdict Try(GrammarKind kind, std::string_view source,
                     const std::atomic<bool>& cancelled) override;

 private:
  TrialProcess(GrammarBudget budget, Spawn spawn, int vocabulary)
      : budget_(budget), spawn_(std::move(spawn)), vocabulary_(vocabulary) {}
  // The process's end of a new trial is sent to it; this end is returned.
  Result<int> Begin(GrammarKind kind, std::string_view source);
  // nullopt: the process ended without a verdict.
  std::optional<GrammarVerdict> Await(int socket, const std::atomic<bool>& cancelled) const;
  Status SpawnLocked();
  void EndLocked();

  const GrammarBudget budget_;
  const Spawn spawn_;
  const int vocabulary_;  // a file in memory
  std::mutex mutex_;      // guards what follows
  int control_ = -1;
  int process_ = -1;
};

// Runs the trial process until `control` is closed; returns its exit code.
int RunTrialProcess(int control, int vocabulary);

// Starts this program again as "braid grammar-trial", with the descriptors 3 and 4.
int SpawnSelfAsTrial(int control, int vocabulary);
inline constexpr std::string_view kTrialWord = "grammar-trial";
inline constexpr int kTrialControl = 3, kTrialVocabulary = 4;

}  // namespace braid
