// See the header. Sizes are small on purpose: an arena of a few pages meets every shortage there
// is.
#include "sim/workload.h"

#include <algorithm>

#include "base/rng.h"
#include "sim/hash_lm.h"

namespace braid {
namespace {

constexpr uint64_t kChoicesDraw = 0x63686f69636573, kRunDraw = 0x72756e, kTierDraw = 0x74696572;

int32_t Between(Rng& rng, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(rng.Below(high - low + 1));
}

bool OneIn(Rng& rng, int32_t n) { return rng.Below(n) == 0; }

CacheGeometry MakeGeometry(Rng& rng, bool squeeze) {
  CacheGeometry geometry{.groups = {}, .page_bytes = 65536, .pages = 0};
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
  const int64_t alone = PagesFor(geometry, BlocksOfSequence(geometry, blocks * kBlockTokens));
  const int32_t room = OneIn(rng, 2) ? 12 : 80;
  const int32_t more = squeeze ? Between(rng, 2, 6) : OneIn(rng, 3) ? 0 : Between(rng, 0, room);
  geometry.pages = static_cast<int32_t>(alone) + 1 + more;
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
  config.step_tokens_max = std::max(config.running_max + budgets[rng.Below(6)], kBlockTokens);
  const int32_t chunks[] = {0, 0, 0, 5, 64, 128, 100};
  config.chunk_tokens_max = chunks[rng.Below(7)];
  const int64_t fits = std::min<int64_t>(SequenceTokensMax(config.cache), 1280);
  config.context_tokens_max = static_cast<int32_t>(fits) + (OneIn(rng, 4) ? 200 : 0);
  if (OneIn(rng, 2)) config.preemptions_max = Between(rng, 1, 2);
  config.waiting_max = OneIn(rng, 6) ? Between(rng, 1, 3) : 1000;
  if (OneIn(rng, 3)) config.dp_ranks = Between(rng, 2, 4);
  config.placement = static_cast<Placement>(Between(rng, 0, 2));
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

// Shuffled lengths at which something changes: nothing, a block, all there is.
int32_t EdgeLength(Rng& rng, int32_t most) {
  const int32_t edges[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, most - 1, most};
  return std::clamp(edges[rng.Below(std::size(edges))], 1, most);
}

int32_t FitsAlone(const SchedulerConfig& config) {
  return static_cast<int32_t>(
      std::min<int64_t>(config.context_tokens_max, SequenceTokensMax(config.cache)));
}

class RequestSource {
 public:
  RequestSource(Rng& rng, Workload& w, const Mix& mix, bool aborts)
      : rng_(rng), w_(w), mix_(mix), aborts_(aborts) {}

  void Draw(WorkloadKind kind) {
    switch (kind) {
      case WorkloadKind::kAgentic:
        return Agentic();
      case WorkloadKind::kBranches:
        return Branches();
      case WorkloadKind::kFloods:
        return Floods();
      case WorkloadKind::kLengths:
        return Lengths();
      default:
        return Any(kind);
    }
  }

 private:
  void Add(Request request) {
    ArrivingRequest arriving{.step = step_, .request = std::move(request)};
    if (aborts_ && OneIn(rng_, 3)) arriving.abort_step = step_ + Between(rng_, 0, 40);
    const auto i = static_cast<int32_t>(w_.requests.size());
    arriving.request.id = RequestId(i);
    if (mix_.usurpers) arriving.request.priority = i;
    if (mix_.spaces) {
      if (arriving.request.tenant.empty()) arriving.request.tenant = OneIn(rng_, 2) ? "a" : "b";
      if (OneIn(rng_, 4)) arriving.request.cache_salt = "salt";
      if (OneIn(rng_, 2)) arriving.request.dp_rank = Between(rng_, 0, w_.config.dp_ranks - 1);
    }
    w_.requests.push_back(std::move(arriving));
  }

  void Any(WorkloadKind kind) {
    const bool flood = OneIn(rng_, 3);
    const bool slow = OneIn(rng_, 2);  // answers are there when the next request comes
    bool shared = mix_.shared;
    if (kind != WorkloadKind::kMixed) shared = kind == WorkloadKind::kShared;
    const int32_t count = Between(rng_, 1, 24);
    for (int32_t i = 0; i < count; ++i) {
      if (!flood) step_ += Between(rng_, 0, mix_.usurpers || slow ? 80 : 12);
      Request r = MakeRequest(rng_, w_.config, mix_);
      if (shared && i > 0 && !OneIn(rng_, 4)) {
        GoOnFrom(rng_, w_.config, w_.requests[static_cast<size_t>(rng_.Below(i))].request, r);
      }
      Add(std::move(r));
    }
  }

  void Agentic() {
    const int32_t conversations = Between(rng_, 1, 4), turns = Between(rng_, 2, 6);
    const int32_t gap = OneIn(rng_, 3) ? 2 : 60;
    const int32_t first_most = std::max(FitsAlone(w_.config) / 3, 1);
    std::vector<std::vector<TokenId>> so_far(static_cast<size_t>(conversations));
    for (int32_t turn = 0; turn < turns; ++turn) {
      for (std::vector<TokenId>& text : so_far) {
        step_ += Between(rng_, 0, gap);
        Mix mix = mix_;
        mix.prompt_most = turn == 0 ? first_most : 40;
        Request r = MakeRequest(rng_, w_.config, mix);
        r.stop.new_tokens_max = Between(rng_, 1, 90);
        r.prompt.insert(r.prompt.begin(), text.begin(), text.end());
        const auto length = static_cast<int32_t>(r.prompt.size());
        if (length + r.stop.new_tokens_max > FitsAlone(w_.config)) continue;
        text = r.prompt;
        const OracleAnswer answer =
            AskOracle({w_.config.vocabulary}, r, w_.config.context_tokens_max);
        text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
        Add(std::move(r));
      }
    }
  }

  void Branches() {
    Mix mix = mix_;
    mix.prompt_most = std::max(FitsAlone(w_.config) * 2 / 3, 1);
    const Request trunk = MakeRequest(rng_, w_.config, mix);
    const auto most = static_cast<int32_t>(trunk.prompt.size());
    const int32_t cuts[] = {Length(rng_, most), Length(rng_, most), most};
    mix.prompt_most = 70;
    for (int32_t i = Between(rng_, 3, 20); i > 0; --i) {
      step_ += Between(rng_, 0, 50);
      Request r = MakeRequest(rng_, w_.config, mix);
      const auto cut = trunk.prompt.begin() + cuts[rng_.Below(3)];
      r.prompt.insert(r.prompt.begin(), trunk.prompt.begin(), cut);
      Add(std::move(r));
    }
  }

  void Floods() {
    for (int32_t wave = Between(rng_, 1, 3); wave > 0; --wave) {
      for (int32_t i = Between(rng_, 10, 40); i > 0; --i) {
        Request r = MakeRequest(rng_, w_.config, mix_);
        r.tenant = "flood";
        Add(std::move(r));
      }
      for (int32_t i = Between(rng_, 1, 4); i > 0; --i) {
        step_ += Between(rng_, 0, 10);
        Request r = MakeRequest(rng_, w_.config, mix_);
        r.tenant = OneIn(rng_, 2) ? "one" : "two";
        Add(std::move(r));
      }
      step_ += Between(rng_, 0, 200);
    }
  }

  void Lengths() {
    const int32_t most = FitsAlone(w_.config);
    for (int32_t i = Between(rng_, 2, 16); i > 0; --i) {
      step_ += Between(rng_, 0, 30);
      Request r = MakeRequest(rng_, w_.config, mix_);
      // The first token repeats, so that prefixes of every length meet.
      r.prompt.assign(static_cast<size_t>(EdgeLength(rng_, most)), r.prompt.front() % 2);
      r.stop.new_tokens_max = OneIn(rng_, 5) ? 0 : EdgeLength(rng_, most);
      if (r.stop.new_tokens_max == 0) r.prompt_logprobs = 0;
      Add(std::move(r));
    }
  }

  Rng& rng_;
  Workload& w_;
  const Mix mix_;
  const bool aborts_;
  int64_t step_ = 0;
};

// Requests that come again at once or a moment later, with a seed of their own, as the choices of
// one request do; some end earlier, some go on.
void AddChoices(Rng& rng, const SchedulerConfig& config, std::vector<ArrivingRequest>& requests) {
  std::vector<ArrivingRequest> all;
  for (const ArrivingRequest& r : requests) {
    all.push_back(r);
    for (int32_t i = OneIn(rng, 2) ? Between(rng, 1, 7) : 0; i > 0; --i) {
      ArrivingRequest choice = r;
      choice.step += OneIn(rng, 2) ? 0 : Between(rng, 0, 4);
      if (r.abort_step >= 0) choice.abort_step = OneIn(rng, 2) ? -1 : r.abort_step;
      choice.request.sampling.temperature = 1;
      choice.request.sampling.seed = rng.Next();
      std::vector<TokenId>& prompt = choice.request.prompt;
      const auto length = static_cast<int32_t>(prompt.size());
      if (OneIn(rng, 4)) prompt.resize(static_cast<size_t>(Length(rng, length)));
      if (OneIn(rng, 4)) {
        for (int32_t n = Between(rng, 1, 70); n > 0; --n) {
          prompt.push_back(static_cast<TokenId>(rng.Below(config.vocabulary)));
        }
      }
      all.push_back(std::move(choice));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const ArrivingRequest& a, const ArrivingRequest& b) {
    return a.step < b.step;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].request.id = RequestId(static_cast<int64_t>(i));
  }
  requests = std::move(all);
}

void CutTo(std::vector<ArrivingRequest>& requests, const WorkloadOptions& options) {
  if (!options.only.empty()) {
    std::erase_if(requests, [&](const ArrivingRequest& r) {
      return std::find(options.only.begin(), options.only.end(), r.request.id.value) ==
             options.only.end();
    });
  }
  for (ArrivingRequest& r : requests) {
    const auto cut = static_cast<size_t>(options.prompt_tokens_max);
    if (cut > 0 && r.request.prompt.size() > cut) r.request.prompt.resize(cut);
    int32_t& made = r.request.stop.new_tokens_max;
    if (options.output_tokens_max > 0) made = std::min(made, options.output_tokens_max);
  }
}

// Guesses in rows, and prompts that come from elsewhere or go there.
void DrawElsewhere(Rng& rng, Workload& w) {
  if (OneIn(rng, 2)) w.config.draft_tokens_max = OneIn(rng, 8) ? 63 : Between(rng, 1, 7);
  w.drafts_right = Between(rng, 20, 100);
  w.config.draft_adapt = w.drafts_right % 2 == 0;
  w.config.draft_lookup = w.drafts_right % 3 != 0;
  w.config.draft_head = w.drafts_right % 3 != 1;
  w.config.handoff = OneIn(rng, 3);
  if (OneIn(rng, 2)) w.move_error_one_in = Between(rng, 2, 10);
  for (ArrivingRequest& r : w.requests) {
    const int32_t role = Between(rng, 0, 3);
    if (role == 0) r.request.role = RequestRole::kPrefill;
    if (role != 1 || r.request.prompt_logprobs >= 0 || r.request.stop.new_tokens_max == 0) continue;
    r.request.role = RequestRole::kDecode;
  }
}

// What the driver lives through.
void DrawRun(Rng& rng, Workload& w) {
  if (OneIn(rng, 4)) w.ranks = 2;
  w.slow = OneIn(rng, 3);
  if (OneIn(rng, 8)) {
    w.pause_step = Between(rng, 0, 60);
    w.resume_step = w.pause_step + Between(rng, 1, 30);
  }
  if (OneIn(rng, 8)) w.stop_step = Between(rng, 0, 100);
  w.stop_now = OneIn(rng, 2);
  if (w.ranks > 1 && OneIn(rng, 8)) w.lost_step = Between(rng, 0, 100);
  if (OneIn(rng, 4)) w.config.decode_latency_us = Between(rng, 1, 30000);
}

// Takes out what the options rule out. Everything was drawn before, so the rest stays what it is.
void Restrict(Workload& w, const WorkloadOptions& options) {
  const auto off = [&](Fault fault) { return (options.faults & MaskOf(fault)) == 0; };
  for (ArrivingRequest& r : w.requests) {
    if (off(Fault::kAbort)) r.abort_step = -1;
  }
  if (off(Fault::kRowError)) w.row_error_one_in = 0;
  if (off(Fault::kLostStep)) w.lost_step_one_in = 0;
  if (off(Fault::kLate)) w.late = false;
  if (off(Fault::kTiny)) w.config.cache.pages += 1000;
  if (off(Fault::kFlush)) w.flush_step = -1;
  if (off(Fault::kMove)) w.move_error_one_in = 0;
  if (off(Fault::kSlow)) w.slow = false;
  if (off(Fault::kPause)) w.pause_step = -1;
  if (off(Fault::kStop)) w.stop_step = -1;
  if (off(Fault::kLostRank) || !options.group) w.lost_step = -1;
  if (!options.group) w.ranks = 1;
  if (!options.drafts) w.config.draft_tokens_max = 0;
  w.config.handoff &= options.handoff;
  w.config.tier &= options.tier && options.prefix_cache;
  if (!w.config.tier || off(Fault::kMove)) w.drop_one_in = 0;
  for (ArrivingRequest& r : w.requests) {
    if (!w.config.handoff) r.request.role = RequestRole::kBoth;
  }
  w.overlap_depth = options.overlap_depth.value_or(w.overlap_depth);
  w.config.prefix_cache &= options.prefix_cache;
  w.config.placement = options.placement.value_or(w.config.placement);
  CutTo(w.requests, options);
}

// The kinds that a mixed run does not meet on its own.
WorkloadKind DrawKind(Rng& rng) {
  if (!OneIn(rng, 2)) return WorkloadKind::kMixed;
  constexpr WorkloadKind kKinds[] = {WorkloadKind::kAgentic, WorkloadKind::kBranches,
                                     WorkloadKind::kFloods, WorkloadKind::kLengths};
  return kKinds[rng.Below(std::size(kKinds))];
}

}  // namespace

const char* NameOf(WorkloadKind kind) {
  constexpr const char* kNames[] = {"mixed",    "random", "shared",  "agentic",
                                    "branches", "floods", "lengths", "choices"};
  static_assert(std::size(kNames) == static_cast<size_t>(WorkloadKind::kCount));
  return kNames[static_cast<size_t>(kind)];
}

const char* NameOf(Fault fault) {
  constexpr const char* kNames[] = {"abort", "row-error", "lost-step", "late", "tiny",     "flush",
                                    "move",  "slow",      "pause",     "stop", "lost-rank"};
  static_assert(std::size(kNames) == static_cast<size_t>(Fault::kCount));
  return kNames[static_cast<size_t>(fault)];
}

Workload MakeWorkload(uint64_t seed, const WorkloadOptions& options) {
  Rng rng(seed);
  // Short prompts that all grow long in an arena for one or two: preemption after preemption.
  const bool squeeze = OneIn(rng, 5);
  Workload w{.config = MakeConfig(rng, squeeze), .requests = {}};
  w.overlap_depth = Between(rng, 0, 1);
  w.late = OneIn(rng, 2);
  if (OneIn(rng, 2)) w.row_error_one_in = Between(rng, 50, 2000);
  if (OneIn(rng, 4)) w.lost_step_one_in = Between(rng, 20, 500);
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
  if (!squeeze && OneIn(rng, 2)) mix.prompt_most = w.config.context_tokens_max;
  WorkloadKind kind = options.kind;
  if (kind == WorkloadKind::kMixed) kind = DrawKind(rng);
  RequestSource(rng, w, mix, aborts).Draw(kind);
  // Drawn apart, so that other seeds mean what they meant without it.
  Rng choices(RandomBits(seed, kChoicesDraw));
  if (OneIn(choices, 4) || kind == WorkloadKind::kChoices) {
    AddChoices(choices, w.config, w.requests);
  }
  DrawElsewhere(rng, w);
  Rng run(RandomBits(seed, kRunDraw));
  DrawRun(run, w);
  Rng tier(RandomBits(seed, kTierDraw));
  w.config.tier = OneIn(tier, 3) && w.config.prefix_cache;
  if (w.config.tier && OneIn(tier, 2)) w.drop_one_in = Between(tier, 2, 20);
  Restrict(w, options);
  return w;
}

Workload MakeWave(uint64_t seed, const Workload& first, int64_t first_id,
                  const WorkloadOptions& options) {
  Workload wave = MakeWorkload(seed, options);
  for (ArrivingRequest& r : wave.requests) {
    r.request.id.value += first_id;
    // Drawn for another vocabulary.
    for (TokenId& token : r.request.prompt) token %= first.config.vocabulary;
    if (r.request.dp_rank >= first.config.dp_ranks) r.request.dp_rank = -1;
    if (!first.config.handoff) r.request.role = RequestRole::kBoth;
  }
  wave.config = first.config;
  wave.drafts_right = first.drafts_right;
  wave.overlap_depth = first.overlap_depth;
  wave.late = first.late;
  if (!wave.config.tier) wave.drop_one_in = 0;
  wave.ranks = first.ranks;
  wave.stop_step = wave.lost_step = -1;  // the engine lives on
  return wave;
}

}  // namespace braid
