// Every mesh is tried for either side. What a side does in a second does not depend on the other,
// so of each side of decode engines the best prefill engines for what they need are taken.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "cache/geometry.h"
#include "forecast/forecast.h"
#include "forecast/meshes.h"

namespace braid {
namespace {

// Prefill engines of one mesh.
struct PrefillEngine {
  Mesh mesh;
  double requests_per_second = 0;  // of an engine
  double first_token_seconds = 0;
  bool sends = false;  // the network is what limits it
};

struct PromptPages {
  double bytes = 0, last_bytes = 0;  // all; those that no computation hides
};

// Pages of a prompt: the keys and values of its tokens, and the states at its end.
PromptPages PagesOf(const ModelSpec& spec, const Workload& workload,
                    const ForecastOptions& options) {
  PromptPages pages;
  const int64_t last = (workload.input_tokens - 1) % options.step_tokens_max + 1;
  for (const GroupGeometry& group : CachePlanOf(spec, options.kv_dtype).groups) {
    const bool full = group.kind == GroupKind::kFull;
    const auto bytes_of = [&](int64_t tokens) {
      const int64_t blocks = full ? CeilDiv(tokens, int64_t{kBlockTokens}) : 1;
      return static_cast<double>(blocks * group.block_bytes);
    };
    pages.bytes += bytes_of(workload.input_tokens);
    pages.last_bytes += bytes_of(last);
  }
  return pages;
}

class SplitSearch {
 public:
  SplitSearch(const ModelSpec& spec, const Hardware& hardware, const Workload& workload,
              const ForecastOptions& options, const SearchSpace& space)
      : spec_(spec),
        hardware_(hardware),
        workload_(workload),
        options_(options),
        space_(space),
        pages_(PagesOf(spec, workload, options)),
        rate_(hardware.network_bytes_per_second > 0 ? hardware.network_bytes_per_second
                                                    : hardware.link_bytes_per_second) {}

  Status Check() const {
    if (workload_.output_tokens < 2) {
      return Error{ErrorCode::kInvalid,
                   "the prefill engine gives the first token; a split needs out of at least 2"};
    }
    if (space_.devices_max < 2) {
      return Error{ErrorCode::kInvalid, "a split needs at least two devices"};
    }
    if (rate_ > 0) return {};
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: its file gives neither network_bytes_per_second nor "
                             "link_bytes_per_second, by which pages could travel",
                             hardware_.name)};
  }

  std::vector<SplitResult> Find() {
    int64_t meshes = 0, done = 0;
    ForEachMesh(space_.devices_max - 1, [&](const Mesh&) { ++meshes; });
    const auto all = static_cast<double>(2 * meshes * std::ssize(space_.formats));
    const auto shows = [&] {
      if (space_.progress) space_.progress(static_cast<double>(done++) / all);
    };
    for (const ops::WeightFormat format : space_.formats) {
      options_.format = format;
      prefills_.clear();
      ForEachMesh(space_.devices_max - 1, [&](const Mesh& mesh) {
        shows();
        AddPrefill(mesh);
      });
      ForEachMesh(space_.devices_max - 1, [&](const Mesh& mesh) {
        shows();
        TryDecode(mesh);
      });
    }
    return std::move(best_);
  }
  // Why there is none.
  Error NotFound() const {
    return {ErrorCode::kNotFound,
            fmt::format("no split of {} devices will do: of the meshes, {} can compute prompts in "
                        "time and {} can generate {} answers in time",
                        space_.devices_max, prefill_found_, decode_found_, workload_.concurrency)};
  }

 private:
  void AddPrefill(const Mesh& mesh) {
    Workload prompts = workload_;
    prompts.output_tokens = 1;
    prompts.concurrency =
        mesh.dp * std::max<int64_t>(1, options_.step_tokens_max / workload_.input_tokens);
    const Result<Forecast> forecast = ForecastOf(spec_, mesh, hardware_, prompts, options_);
    if (!forecast || !forecast->fits) return;
    const SpeedForecast& speed = forecast->overlapped;
    const double sends = rate_ * mesh.ranks() / pages_.bytes;
    PrefillEngine engine{.mesh = mesh,
                         .requests_per_second = std::min(speed.output_tokens_per_second, sends),
                         .first_token_seconds =
                             speed.first_token_seconds + pages_.last_bytes / (rate_ * mesh.ranks()),
                         .sends = sends < speed.output_tokens_per_second};
    if (engine.first_token_seconds > space_.first_token_seconds_max.value_or(INFINITY)) return;
    ++prefill_found_;
    prefills_.push_back(engine);
  }

  void TryDecode(const Mesh& mesh) {
    ForecastOptions options = options_;
    options.prompts_elsewhere = true;
    bool found = false;
    for (int32_t engines = 1; engines * mesh.ranks() < space_.devices_max; ++engines) {
      Workload answers = workload_;
      answers.concurrency = CeilDiv(workload_.concurrency, int64_t{engines});
      if (engines > 1 && engines > workload_.concurrency) break;
      const Result<Forecast> forecast = ForecastOf(spec_, mesh, hardware_, answers, options);
      if (!forecast) break;
      const double inter_token = forecast->overlapped.inter_token_seconds;
      if (!forecast->fits || inter_token > space_.inter_token_seconds_max.value_or(INFINITY)) {
        continue;
      }
      found = true;
      Join({.mesh = mesh, .engines = engines}, inter_token);
    }
    decode_found_ += found;
  }

  // With the fewest devices that compute as many prompts as the answers need, or, where there are
  // too few, the most prompts.
  void Join(const SplitSide& decode, double inter_token) {
    const double tokens = static_cast<double>(workload_.output_tokens);
    const double receives = rate_ * decode.devices() / pages_.bytes;
    const double answers =
        static_cast<double>(workload_.concurrency) / ((tokens - 1) * inter_token);
    const double wanted = std::min(answers, receives);
    const int32_t left = space_.devices_max - decode.devices();
    SplitResult result{.decode = decode,
                       .format = options_.format,
                       .inter_token_seconds = inter_token,
                       .handoff_bytes = pages_.bytes};
    double most = 0;
    for (const PrefillEngine& engine : prefills_) {
      const double needed = std::ceil(wanted / engine.requests_per_second);
      const int32_t engines =
          static_cast<int32_t>(std::min<double>(needed, left / engine.mesh.ranks()));
      if (engines == 0) continue;
      const double requests = std::min(wanted, engines * engine.requests_per_second);
      const int32_t devices = engines * engine.mesh.ranks();
      const bool better = requests > most * (1 + 1e-9) ||
                          (requests >= most * (1 - 1e-9) && devices < result.prefill.devices());
      if (most > 0 && !better) continue;
      most = requests;
      result.prefill = {.mesh = engine.mesh, .engines = engines};
      result.first_token_seconds = engine.first_token_seconds;
      result.bound = requests < wanted
                         ? (engine.sends ? SplitBound::kHandoff : SplitBound::kPrompts)
                     : receives < answers ? SplitBound::kHandoff
                                          : SplitBound::kAnswers;
    }
    result.output_tokens_per_second = most * tokens;
    if (most > 0) Insert(std::move(result));
  }

  double Speed(const SplitResult& result) const {
    const double all = result.output_tokens_per_second;
    return space_.aim == SearchAim::kTokens ? all : all / result.devices();
  }
  void Insert(SplitResult found) {
    const auto better = [&](const SplitResult& known) {
      const double a = Speed(found), b = Speed(known);
      return a != b ? a > b : found.devices() < known.devices();
    };
    best_.insert(std::ranges::find_if(best_, better), std::move(found));
    if (std::ssize(best_) > space_.results_max) best_.pop_back();
  }

  const ModelSpec& spec_;
  const Hardware& hardware_;
  const Workload& workload_;
  ForecastOptions options_;
  const SearchSpace& space_;
  const PromptPages pages_;
  const double rate_;  // bytes per second that a device sends
  std::vector<PrefillEngine> prefills_;
  std::vector<SplitResult> best_;
  int prefill_found_ = 0, decode_found_ = 0;
};

}  // namespace

std::string_view NameOf(SplitBound bound) {
  constexpr std::string_view kNames[] = {"prompts", "answers", "hand-off"};
  return kNames[static_cast<int>(bound)];
}

Result<std::vector<SplitResult>> SearchSplit(const ModelSpec& spec, const Hardware& hardware,
                                             const Workload& workload,
                                             const ForecastOptions& options,
                                             const SearchSpace& space) {
  RETURN_IF_ERROR(CheckWorkload(spec, workload, options));
  SplitSearch search(spec, hardware, workload, options, space);
  RETURN_IF_ERROR(search.Check());
  std::vector<SplitResult> found = search.Find();
  if (found.empty()) return search.NotFound();
  return found;
}

}  // namespace braid
