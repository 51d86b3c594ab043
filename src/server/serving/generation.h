// All choices of one HTTP request: submits them to the driver, turns outputs into deltas, keeps the
// metrics, and writes one log line. Destroying it aborts choices that still run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/dialects/reuse_json.h"
#include "server/service.h"
#include "server/serving/choice.h"
#include "server/serving/prepare.h"

namespace braid {

struct Usage {
  int64_t prompt_tokens = 0;  // each prompt once, whatever n
  int64_t cached_tokens = 0;
  int64_t disk_tokens = 0;  // of those, from the tier on disk
  int64_t host_tokens = 0;  // and from the one in memory beside the cache
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  DraftCounts drafts;
};

// The error code of an answer that another request aborted.
inline constexpr std::string_view kAbortedCode = "aborted";

struct GenerationOrigin {
  std::string_view path;       // for the log: "/v1/chat/completions"
  std::string_view id_prefix;  // "chatcmpl-"
  std::string request_id;      // the client's own; may be empty
  std::string body_id = {};    // the body's request_id, which may be another; may be empty
  int64_t received_us = 0;
};

// Of the first choice, MonotonicUs; 0: has not come.
struct GenerationTimes {
  int64_t admitted = 0, first_token = 0, last_token = 0;
};

// The error that a client gets when the server ends its answer.
ApiError EndError(EndReason reason);

// Lists the request that is planned, with the id that its answer will have.
ActiveRequests::Entry ListRequest(Service& service, const GenerationPlan& plan,
                                  const GenerationOrigin& origin, std::string tenant, Wake wake);

class Generation {
 public:
  // Submits every choice or none.
  static Result<std::unique_ptr<Generation>, ApiError> Start(Service& service, GenerationPlan plan,
                                                             GenerationOrigin origin, Wake wake);
  ~Generation();

  // New deltas since the last call, by choice, in order.
  std::vector<ChoiceDelta> Poll();
  // Ends the choices that still run; the next Poll returns their last deltas.
  void End(EndReason reason);

  // Holds so many bytes more of the server's memory for the answer, of which answers above 64 KiB
  // leave half to requests; false: they are not free. What prompts' log-probabilities take is held
  // as they come.
  bool HoldMemory(int64_t bytes);
  // Returns so many of them, all at most; the end of this object returns the rest.
  void FreeMemory(int64_t bytes);

  bool finished() const { return open_ == 0 && ending_.empty(); }
  // The error, if it did not end normally.
  const std::optional<ApiError>& error() const { return error_; }
  // The answer failed for this reason after the last choice had ended.
  void NoteError(EndReason reason) { error_ = EndError(reason); }

  const std::string& id() const { return shown_->id; }
  int64_t created() const { return shown_->created; }
  Usage usage() const;
  // One entry for each prompt.
  std::vector<PromptReuse> reuse() const;
  size_t PendingBytes() const;
  // Past the queue's or the request's time limit.
  std::optional<EndReason> Overdue(int64_t now_us) const;
  const Service& service() const { return service_; }
  // The prompt of a choice.
  const std::vector<TokenId>& prompt(int32_t choice) const;

 private:
  struct Running;
  Generation(Service& service, GenerationPlan plan, GenerationOrigin origin);
  ApiStatus Submit(Wake wake);
  void Collect(Running& running, std::vector<ChoiceDelta>* deltas);
  void Close(Running& running, FinishReason reason);
  void Count(Running& running, const Output& output, int64_t at_us);
  void NoteAdmission(Running& running);
  void CountEnd(const Running& running, int64_t now_us);
  void Log() const;

  Service& service_;
  TextOptions text_;
  int32_t choices_per_prompt_;
  GenerationOrigin origin_;
  std::vector<Running> running_;
  size_t open_ = 0;  // choices whose last delta has not been made
  std::vector<ChoiceDelta> ending_;
  std::unique_ptr<TenantLoad::Place> place_;
  std::optional<GrammarLibrary::Hold> hold_;
  std::unique_ptr<MemoryBudget::Hold> memory_;
  bool out_of_memory_ = false;
  std::optional<ApiError> error_;
  ActiveRequests::Entry shown_;
  GenerationTimes times_;
};

}  // namespace braid
