// Seeds through the real scheduler and the hash LM. A failure names its seed; run one seed again
// with
//   simulation_test --seed N       or a range with  --seeds COUNT [--from N].
// Each seed runs twice: the same seed gives the same trace.
#include "sim/simulation.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"

namespace {

volatile uint64_t seed_at_work = 0;

// A failed CHECK ends in abort(), which cannot say which seed it was.
void SayWhichSeed(int) {
  char text[64];
  const int length = std::snprintf(text, sizeof(text), "simulation: failed at --seed %llu\n",
                                   static_cast<unsigned long long>(seed_at_work));
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) std::_Exit(2);
  std::_Exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t from = 1, seeds = 2500;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seeds") seeds = value;
    if (flag == "--from" || flag == "--seed") from = value;
    if (flag == "--seed") seeds = 1;
  }
  std::signal(SIGABRT, SayWhichSeed);
  braid::SimulationStats total;
  const int64_t begin_us = braid::MonotonicUs();
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    seed_at_work = seed;
    const auto once = braid::RunSimulation(seed);
    const auto again = braid::RunSimulation(seed);
    if (!once || !again || once->trace != again->trace) {
      std::fprintf(stderr, "simulation: seed %llu: %s\n", static_cast<unsigned long long>(seed),
                   once.ok() ? "two runs differ" : once.error().message.c_str());
      return 1;
    }
    total.steps += once->steps;
    total.rows += once->rows;
    total.tokens += once->tokens;
    total.preemptions += once->preemptions;
    total.protected_requests += once->protected_requests;
    total.aborted += once->aborted;
    total.failed += once->failed;
    total.refused += once->refused;
    total.stopped += once->stopped;
    total.late_tokens += once->late_tokens;
    total.prompt_tokens += once->prompt_tokens;
    total.reused_tokens += once->reused_tokens;
    for (size_t i = 0; i < braid::kReuseStops; ++i) total.reuse_stops[i] += once->reuse_stops[i];
    total.evictions_full += once->evictions_full;
    total.evictions_state += once->evictions_state;
  }
  bool few = false;
  const double seconds = static_cast<double>(braid::MonotonicUs() - begin_us) * 1e-6;
  std::printf(
      "%llu seeds twice in %.1f s (%.0f rows/s): %lld steps, %lld rows, %lld tokens, "
      "%lld preemptions, %lld protected, %lld aborted, %lld failed, %lld refused, %lld stopped, "
      "%lld late tokens\n",
      static_cast<unsigned long long>(seeds), seconds,
      2 * static_cast<double>(total.rows) / seconds, static_cast<long long>(total.steps),
      static_cast<long long>(total.rows), static_cast<long long>(total.tokens),
      static_cast<long long>(total.preemptions), static_cast<long long>(total.protected_requests),
      static_cast<long long>(total.aborted), static_cast<long long>(total.failed),
      static_cast<long long>(total.refused), static_cast<long long>(total.stopped),
      static_cast<long long>(total.late_tokens));
  std::printf("reused %lld of %lld prompt tokens;", static_cast<long long>(total.reused_tokens),
              static_cast<long long>(total.prompt_tokens));
  for (size_t i = 0; i < braid::kReuseStops; ++i) {
    std::printf(" %s %lld", braid::NameOf(static_cast<braid::ReuseStop>(i)),
                static_cast<long long>(total.reuse_stops[i]));
    few |= total.reuse_stops[i] < static_cast<int64_t>(seeds / 50);
  }
  std::printf("; evicted %lld blocks, %lld states\n", static_cast<long long>(total.evictions_full),
              static_cast<long long>(total.evictions_state));
  // A run that met none of these has not looked.
  if (seeds >= 1000 &&
      (few || total.preemptions < 100 || total.protected_requests == 0 || total.aborted < 100 ||
       total.failed < 100 || total.refused < 100 || total.late_tokens < 100)) {
    std::fprintf(stderr, "simulation: MISTRUSTED, a situation was not met often enough\n");
    return 1;
  }
  return 0;
}
