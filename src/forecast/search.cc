// The best meshes and formats: every one is tried.
#include <fmt/format.h>

#include <algorithm>

#include "forecast/forecast.h"
#include "forecast/meshes.h"

namespace braid {
namespace {

struct Refusals {
  int tried = 0, memory = 0, first_token = 0, inter_token = 0, impossible = 0;
};

// Whether the forecast keeps what the search must keep; counts why not.
bool Keeps(const Forecast& forecast, const SearchSpace& space, Refusals& refusals) {
  const auto above = [](double seconds, std::optional<double> most) {
    return most && seconds > *most;
  };
  if (!forecast.fits) return ++refusals.memory, false;
  if (above(forecast.overlapped.first_token_seconds, space.first_token_seconds_max)) {
    return ++refusals.first_token, false;
  }
  if (above(forecast.overlapped.inter_token_seconds_mean, space.inter_token_seconds_max)) {
    return ++refusals.inter_token, false;
  }
  return true;
}

bool Better(const SearchResult& a, const SearchResult& b, SearchAim aim) {
  const auto speed = [&](const SearchResult& result) {
    const double all = result.forecast.overlapped.output_tokens_per_second;
    return aim == SearchAim::kTokens ? all : all / result.mesh.ranks();
  };
  const double of_a = speed(a), of_b = speed(b);
  return of_a != of_b ? of_a > of_b : a.mesh.ranks() < b.mesh.ranks();
}

// Into its place of the best first, of which there are so many at most. Groups that only add idle
// devices are left out.
void Insert(SearchResult found, const SearchSpace& space, std::vector<SearchResult>& best) {
  const auto tokens = [](const SearchResult& result) {
    return result.forecast.overlapped.output_tokens_per_second;
  };
  const bool idle = std::ranges::any_of(best, [&](const SearchResult& known) {
    return known.mesh.tp == found.mesh.tp && known.mesh.ep == found.mesh.ep &&
           known.format == found.format && known.mesh.dp < found.mesh.dp &&
           tokens(known) >= tokens(found);
  });
  if (idle) return;
  const auto at = std::ranges::find_if(
      best, [&](const SearchResult& known) { return Better(found, known, space.aim); });
  best.insert(at, std::move(found));
  if (std::ssize(best) > space.results_max) best.pop_back();
}

}  // namespace

Result<std::vector<SearchResult>> SearchMesh(const ModelSpec& spec, const Hardware& hardware,
                                             const Workload& workload,
                                             const ForecastOptions& options,
                                             const SearchSpace& space) {
  RETURN_IF_ERROR(CheckWorkload(spec, workload, options));
  std::vector<SearchResult> best;
  Refusals refusals;
  int meshes = 0;
  ForEachMesh(space.devices_max, [&](const Mesh&) { ++meshes; });
  const double all = meshes * static_cast<double>(space.formats.size());
  const auto attempt = [&](const Mesh& mesh, ops::WeightFormat format) {
    if (space.progress) space.progress(refusals.tried / all);
    ForecastOptions with = options;
    with.format = format;
    Result<Forecast> forecast = ForecastOf(spec, mesh, hardware, workload, with);
    ++refusals.tried;
    if (!forecast) {
      ++refusals.impossible;
    } else if (Keeps(*forecast, space, refusals)) {
      Insert({.mesh = mesh, .format = format, .forecast = *std::move(forecast)}, space, best);
    }
  };
  for (const ops::WeightFormat format : space.formats) {
    ForEachMesh(space.devices_max, [&](const Mesh& mesh) { attempt(mesh, format); });
  }
  if (!best.empty()) return best;
  return Error{
      ErrorCode::kNotFound,
      fmt::format("none of {} meshes and formats on up to {} devices will do: {} cannot divide the "
                  "model or lack links, {} need more than {:.1f} GB per device, {} exceed the time "
                  "to first token, {} the inter-token latency. Allow more devices or time",
                  refusals.tried, space.devices_max, refusals.impossible, refusals.memory,
                  hardware.memory_bytes / 1e9, refusals.first_token, refusals.inter_token)};
}

}  // namespace braid
