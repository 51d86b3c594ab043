// The HTTP server: one network thread, a few threads that parse, render and tokenise. It starts
// before the model is ready: /health answers at once, /ready and the API answer 503 until SetReady.
//
// Life: Start, SetReady, [Drain], StopNow, then the destructor. After StopNow the server no
// longer calls the driver, but the driver's running requests still report to the server's memory:
// the driver's thread must end before the server is destroyed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "scheduler/driver.h"
#include "server/access/access_config.h"
#include "server/access/api_keys.h"
#include "server/request_log.h"
#include "text/answer/reasoning.h"
#include "text/answer/tool_format.h"
#include "text/chat/chat_template.h"
#include "text/grammar/grammar_library.h"
#include "text/tokens/generation_defaults.h"
#include "text/tokens/tokenizer.h"

namespace braid {

struct ServerConfig : AccessConfig {
  std::string page_html = {};     // GET /
  std::string version = "0.1.0";  // GET /version
  int64_t memory_bytes = 0;       // in addition to the engine's; 0: see ServerMemory
  int32_t request_seconds_max = 3600;
  int32_t queue_seconds_max = 60;                   // until the engine begins
  int32_t step_seconds_max = 300;                   // /health is 503 when a step takes longer
  int64_t responses_bytes_max = int64_t{64} << 20;  // stored responses; 0: none are
  GrammarBudget grammar_budget = {};                // what the trial of a grammar may take
  bool vllm_metrics = false;                        // metrics under vLLM's names too
  RequestLog* request_log = nullptr;  // a line for each request; null: none; outlives the server
  uint64_t seed_base = 0;             // mixed into the seeds of requests without one; 0: the clock
};

// The memory that the server may use in addition to the engine's.
int64_t ServerMemory(const ServerConfig& config, int64_t context_tokens_max);
// The part of it for request bodies and their preparation. Connections have half of that for bodies
// beside it.
int64_t RequestMemory(const ServerConfig& config, int64_t context_tokens_max);
// The least that lets the server accept one body of the largest size.
int64_t LeastServerMemory(const ServerConfig& config, int64_t context_tokens_max);

// What clients can see of the model.
struct ModelCard {
  std::string name;                 // the id in /v1/models; requests may leave `model` out
  int64_t created = 0;              // seconds since 1970
  int32_t context_tokens_max = 0;   // prompt and answer together
  int32_t vocabulary = 0;           // ids in [0, vocabulary)
  std::vector<TokenId> eos_tokens;  // ascending
  GenerationDefaults defaults;
  const ToolFormat* tools = nullptr;  // how it writes tool calls; null: calls stay text
  ReasoningFormat reasoning = {};
};

// What the server serves. The references must stay valid until StopNow.
// How evenly tokens choose experts, from 0 to 1, in windows of so many steps; 0: no such window so
// far.
inline constexpr std::array<int32_t, 3> kExpertWindows = {10, 100, 1000};
using ExpertBalances = std::array<double, kExpertWindows.size()>;
// Which experts the tokens of some steps chose.
struct ExpertLoadView {
  int32_t experts = 0, top_k = 0;
  std::vector<int32_t> layers;  // of the model, those with experts
  int64_t passes = 0, tokens = 0;
  std::vector<std::vector<int64_t>> counts;  // by layer and expert; empty before the first window
  std::vector<std::vector<int64_t>> rank_rows;  // by layer and rank; empty: one rank has them all
};
// Of experts on several ranks.
struct ExpertRanks {
  ExpertBalances balances = {};    // mean over fullest rank, summed over layers
  std::vector<int64_t> rows = {};  // that each rank computed in the last window of 10 steps
  // Of --balance-experts: placements that were reached and that were given up, bytes received here.
  int64_t moves_done = 0, moves_dropped = 0, moved_bytes = 0;
};

// Hand-offs of prompts between this engine and its partners.
struct HandoffCounts {
  int64_t partners = 0;  // now
  int64_t done = 0, failed = 0;
  int64_t bytes = 0;        // of pages, either way
  int64_t early_bytes = 0;  // of those, sent while their prompt was computed
};

struct ServerContext {
  Driver& driver;
  const Tokenizer* tokenizer = nullptr;  // null: prompts and answers are token ids only
  const ChatTemplate* chat = nullptr;    // null: /v1/chat/completions refuses
  GrammarLibrary* grammars = nullptr;    // null: constrained output is refused
  ModelCard card;
  double load_seconds = 0;               // of the model, until it could answer
  int64_t engine_bytes = 0;              // at most, of this process; 0: not told
  json::object server_information = {};  // part of GET /server_info
  std::function<ExpertBalances()> expert_balances = {};  // null: the model has no experts
  std::function<ExpertLoadView()> expert_loads = {};     // null likewise
  std::function<HandoffCounts()> handoffs = {};          // null: there are no partners
  std::function<ExpertRanks()> expert_ranks = {};        // null: one rank has them all
  std::function<int64_t()> tier_ahead_bytes = {};        // null: there is no tier
  bool tier_on_disk = true;                              // false: it is in memory alone
  int32_t expert_rank_count = 0;                         // how many share them; 0: one has all
};

class Server {
 public:
  // Binds and listens. kUnavailable if the address is in use, kInvalid if it is not an address.
  static Result<std::unique_ptr<Server>> Start(ServerConfig config);
  ~Server();

  uint16_t port() const;
  uint16_t admin_port() const;  // 0: there is none
  std::string url() const;      // http://127.0.0.1:8000

  // Replaces the API keys. Without keys everybody may use the API.
  void SetKeys(std::vector<ApiKey> keys);
  // Reloads certificate and key; after an error those in use stay. Without TLS this does nothing.
  Status ReloadTls();

  // Shown by /ready until SetReady: "loading weights, 40 %".
  void SetLoading(std::string reason);
  void SetReady(ServerContext context);

  // Stops accepting, gives running requests this long to finish, then ends them with an error
  // event. Returns when every connection is closed, or after StopNow was called from another
  // thread.
  void Drain(int32_t seconds);
  // Closes everything at once, aborts what runs and joins the server's threads.
  void StopNow();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
