// Mistakes in kernels (kernels.toml): with each of them planted into the references, a golden set's
// log-probabilities must be missed by far more than the tolerance; without, they are met.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/check.h"
#include "model/families/golden_model.h"
#include "tests/mistakes/planted.h"

namespace braid {
namespace {

constexpr double kMissedBy = 1e-3;  // ten times what the golden sets allow

struct KernelMistake {
  const char* what;
  const char* spec;    // entries of entries.txt
  const char* set;     // the golden that shows it
  size_t tokens_most;  // of the prompts that are looked at: references are slow
};

constexpr KernelMistake kMistakes[] = {
#include "kernels.inc"
};

// The largest difference from the golden by the references, in steps of a few tokens at first.
double DifferenceOf(const KernelMistake& mistake) {
  GoldenModel model(mistake.set, 1, Isa::kBase);
  const auto width = static_cast<size_t>(model.vocabulary());
  double worst = 0;
  for (const Golden& golden : ReadGoldens(mistake.set)) {
    if (golden.ids.size() > mistake.tokens_most) continue;
    worst =
        std::max(worst, LargestDifference(golden, model.Logits(golden.ids, {1, 3, 4, 40}), width));
  }
  return worst;
}

TEST(KernelMistakes, AreFound) {
  std::map<std::pair<std::string, size_t>, double> right;
  for (int i = 0; i < static_cast<int>(std::size(kMistakes)); ++i) {
    const KernelMistake& mistake = kMistakes[i];
    const auto [known, first] = right.try_emplace({mistake.set, mistake.tokens_most}, 0.0);
    if (first) known->second = DifferenceOf(mistake);
    EXPECT_LE(known->second, 1e-4) << mistake.set;
    Plant(i);
    const double wrong = DifferenceOf(mistake);
    Plant(kNoMistake);
    fmt::print("{:<14}  {:<64}  off by {:.3g}\n", mistake.set, mistake.what, wrong);
    EXPECT_GE(wrong, kMissedBy) << mistake.set << ": " << mistake.what;
  }
}

}  // namespace
}  // namespace braid
