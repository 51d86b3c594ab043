// See the header. Sizes are small on purpose: an arena of a few parents meets every shortage there
// is.
#include "sim/workload.h"

#include <algorithm>

#include "base/rng.h"
#include "sim/hash_lm.h"

namespace braid {
namespace {

int32_t Between(Rng& rng, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(rng.Below(high - low + 1));
}

bool OneIn(Rng& rng, int32_t n) { return rng.Below(n) == 0; }

CacheGeometry MakeGeometry(Rng& rng, bool squeeze) {
  CacheGeometry geometry{.groups = {}, .parent_bytes = 65536, .parents = 0};
  const auto add = [&](const char* name, GroupKind kind) {
    const int32_t packed = OneIn(rng, 2) ? 1 : Between(rng, 2, 5);
    geometry.groups.push_back({name, kind, 65536 / packed, packed});
  };
  const int32_t shape = Between(rng, 0, 9);
  if (shape != 0) add("full", GroupKind::kFull);
  if (shape != 1) add("state", GroupKind::kState);
  if (shape == 2) add("draft full", GroupKind::kFull);
  if (shape == 3) add("draft state", GroupKind::kState);
  // From barely one short sequence to room for all.
  const int32_t blocks = squeeze || !OneIn(rng, 3) ? Between(rng, 4, 14) : Between(rng, 1, 3);
  const int64_t alone = ParentsFor(geometry, BlocksOfSequence(geometry, blocks * kBlockTokens));
  const int32_t room = OneIn(rng, 2) ? 12 : 80;
  const int32_t more = squeeze ? Between(rng, 2, 6) : OneIn(rng, 3) ? 0 : Between(rng, 0, room);
  geometry.parents = static_cast<int32_t>(alone) + 1 + more;
  return geometry;
}

// Lengths crowd around block boundaries, where the mistakes are.
int32_t Length(Rng& rng, int32_t most) {
  int32_t length = Between(rng, 1, most);
  if (OneIn(rng, 3)) length = (length + 32) / 64 * 64 + Between(rng, -1, 1);
  if (OneIn(rng, 8)) length = Between(rng, 1, 3);
  return std::clamp(length, 1, most);
}

SchedulerConfig MakeConfig(Rng& rng, bool squeeze) {
  SchedulerConfig config{.cache = MakeGeometry(rng, squeeze)};
  config.vocabulary = OneIn(rng, 2) ? 1000 : Between(rng, 2, 40);
  config.running_max = Between(rng, 1, 8);
  const int32_t budgets[] = {0, 7, 64, 100, 300, 2048};
  config.step_tokens_max = config.running_max + budgets[rng.Below(6)];
  const int32_t chunks[] = {0, 0, 0, 5, 64, 128, 100};
  config.chunk_tokens_max = chunks[rng.Below(7)];
  const int64_t fits = std::min<int64_t>(SequenceTokensMax(config.cache), 1280);
  config.context_tokens_max = static_cast<int32_t>(fits) + (OneIn(rng, 4) ? 200 : 0);
  if (OneIn(rng, 2)) config.preemptions_max = Between(rng, 1, 2);
  config.waiting_max = OneIn(rng, 6) ? Between(rng, 1, 3) : 1000;
  return config;
}

struct Mix {
  int32_t prompt_most;
  bool squeeze;
  bool priorities;
  bool usurpers;  // each request outranks all before it
  bool shared;    // prompts go on from earlier ones
  bool spaces;    // several tenants and ranks
};

// An earlier request's prompt, perhaps with its answer, cut or not, before the tokens drawn so far.
void GoOnFrom(Rng& rng, const SchedulerConfig& config, const Request& earlier, Request& r) {
  std::vector<TokenId> prefix = earlier.prompt;
  if (OneIn(rng, 2)) {
    const OracleAnswer answer = AskOracle({config.vocabulary}, earlier, config.context_tokens_max);
    prefix.insert(prefix.end(), answer.tokens.begin(), answer.tokens.end());
  }
  if (OneIn(rng, 2))
    prefix.resize(static_cast<size_t>(Length(rng, static_cast<int32_t>(prefix.size()))));
  if (OneIn(rng, 8)) r.prompt.clear();
  r.prompt.insert(r.prompt.begin(), prefix.begin(), prefix.end());
  // Most shall fit.
  const int64_t fits =
      std::min<int64_t>(config.context_tokens_max, SequenceTokensMax(config.cache));
  const auto most = static_cast<size_t>(std::max<int64_t>(fits - r.stop.new_tokens_max, 1));
  if (r.prompt.size() > most && !OneIn(rng, 8)) r.prompt.resize(most);
}

Request MakeRequest(Rng& rng, const SchedulerConfig& config, const Mix& mix) {
  Request r;
  r.prompt.resize(static_cast<size_t>(Length(rng, mix.prompt_most)));
  for (TokenId& t : r.prompt) t = static_cast<TokenId>(rng.Below(config.vocabulary));
  r.stop.new_tokens_max = OneIn(rng, 3) ? Between(rng, 1, 300) : Between(rng, 1, 20);
  if (mix.squeeze) r.stop.new_tokens_max = Between(rng, 65, 400);
  if (OneIn(rng, mix.squeeze ? 20 : 4)) {
    for (int32_t i = Between(rng, 1, 4); i > 0; --i) {
      r.stop.stop_tokens.push_back(static_cast<TokenId>(rng.Below(config.vocabulary)));
    }
    std::sort(r.stop.stop_tokens.begin(), r.stop.stop_tokens.end());
    if (OneIn(rng, 3)) r.stop.new_tokens_min = Between(rng, 1, 20);
  }
  if (OneIn(rng, 4)) {
    r.sampling.temperature = 1;
    r.sampling.seed = rng.Next();
  }
  if (OneIn(rng, 6)) r.logprobs = Between(rng, 0, 3);
  if (OneIn(rng, 6)) {
    r.prompt_logprobs = Between(rng, 0, 2);
    if (OneIn(rng, 2)) r.stop.new_tokens_max = 0;
  }
  if (mix.priorities) r.priority = Between(rng, -1, 2);
  return r;
}

}  // namespace

Workload MakeWorkload(uint64_t seed) {
  Rng rng(seed);
  // Short prompts that all grow long in an arena for one or two: preemption after preemption.
  const bool squeeze = OneIn(rng, 5);
  Workload w{.config = MakeConfig(rng, squeeze), .requests = {}};
  w.overlap_depth = Between(rng, 0, 1);
  w.late = OneIn(rng, 2);
  if (OneIn(rng, 2)) w.row_error_one_in = Between(rng, 50, 2000);
  w.error_seed = rng.Next();
  Mix mix{.prompt_most = 96,
          .squeeze = squeeze,
          .priorities = OneIn(rng, 2),
          .usurpers = squeeze && OneIn(rng, 2),
          .shared = !OneIn(rng, 3),
          .spaces = OneIn(rng, 3)};
  if (OneIn(rng, 8)) w.config.prefix_cache = false;
  if (OneIn(rng, 6)) w.flush_step = Between(rng, 1, 100);
  const bool aborts = OneIn(rng, 2);
  const bool flood = OneIn(rng, 3);
  const bool slow = OneIn(rng, 2);  // answers are there when the next request comes
  if (!squeeze && OneIn(rng, 2)) mix.prompt_most = w.config.context_tokens_max;
  const int32_t count = Between(rng, 1, 24);
  int64_t step = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (!flood) step += Between(rng, 0, mix.usurpers || slow ? 80 : 12);
    ArrivingRequest arriving{.step = step, .request = MakeRequest(rng, w.config, mix)};
    if (aborts && OneIn(rng, 3)) arriving.abort_step = step + Between(rng, 0, 40);
    arriving.request.id = RequestId(i);
    if (mix.usurpers) arriving.request.priority = i;
    if (mix.shared && i > 0 && !OneIn(rng, 4)) {
      const auto& earlier = w.requests[static_cast<size_t>(rng.Below(i))].request;
      GoOnFrom(rng, w.config, earlier, arriving.request);
    }
    if (mix.spaces) {
      arriving.request.tenant = OneIn(rng, 2) ? "a" : "b";
      arriving.request.dp_rank = Between(rng, 0, 1);
    }
    w.requests.push_back(std::move(arriving));
  }
  return w;
}

}  // namespace braid
