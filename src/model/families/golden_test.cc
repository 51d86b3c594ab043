// Every stored golden set of transformers (or of the slow oracle) through the decoder alone: the
// log-probabilities of the given tokens, and the same bits however a prompt is cut into steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/families/families.h"
#include "model/weights.h"

namespace braid {
namespace {

struct Golden {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;  // of ids[i] after those before it; [0] is not used
};

std::vector<Golden> ReadGoldens(const std::string& name) {
  const std::string path = BRAID_SOURCE_DIR "/tests/golden/" + name + "/score.jsonl";
  Result<std::string> text = ReadFile(path, size_t{4} << 20);
  CHECK(text, "{}", path);
  std::vector<Golden> goldens;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const json::value line = json::parse(text->substr(begin, end - begin));
    Golden golden;
    for (const json::value& id : line.at("token_ids").as_array()) {
      golden.ids.push_back(static_cast<TokenId>(id.as_int64()));
    }
    for (const json::value& p : line.at("logprobs").as_array()) {
      golden.logprobs.push_back(p.is_null() ? 0.0 : p.to_number<double>());
    }
    goldens.push_back(std::move(golden));
    begin = end + 1;
  }
  return goldens;
}

// A loaded model with pages for one sequence.
class Model {
 public:
  Model(const std::string& name, int threads, Isa isa, Compute compute = Compute::kF32,
        DType kv_dtype = DType::kF32)
      : pool_(threads), workspace_(int64_t{256} << 20), kv_dtype_(kv_dtype) {
    const std::string directory = BRAID_SOURCE_DIR "/tests/golden/" + name;
    Result<ModelSpec> spec = ReadModelSpec(directory);
    CHECK(spec, "{}", spec.error().message);
    Result<Checkpoint> checkpoint = Checkpoint::Open(directory);
    CHECK(checkpoint, "{}", checkpoint.error().message);
    spec_ = FitToCheckpoint(*spec, *checkpoint);
    Result<ModelWeights> weights = LoadWeights(*spec, *checkpoint, pool_, nullptr, nullptr);
    CHECK(weights, "{}", weights.error().message);
    weights_ = std::move(*weights);
    plan_ = CachePlanOf(spec_, kv_dtype_);
    context_ = {
        .device = DeviceOf(DetectCpu(), isa, compute), .pool = &pool_, .workspace = &workspace_};
  }

  // Logits [tokens, vocabulary] of a prompt in steps that end at `cuts` and at its end.
  std::vector<float> Logits(const std::vector<TokenId>& ids, std::vector<int32_t> cuts) {
    const auto tokens = static_cast<int32_t>(ids.size());
    MakePages(tokens);
    std::vector<float> logits(ids.size() * static_cast<size_t>(spec_.vocabulary));
    cuts.push_back(tokens);
    int32_t begin = 0;
    for (int32_t end : cuts) {
      end = std::min(end, tokens);
      if (end > begin) Step(ids, begin, end, logits);
      begin = std::max(begin, end);
    }
    return logits;
  }

  int32_t vocabulary() const { return spec_.vocabulary; }

 private:
  void MakePages(int32_t tokens) {
    const auto blocks = static_cast<size_t>(CeilDiv(tokens, kBlockTokens));
    pages_.clear();
    tables_.clear();
    for (const GroupGeometry& group : plan_.groups) {
      std::vector<std::byte*> table;
      for (size_t b = 0; b < blocks; ++b) {
        pages_.emplace_back(static_cast<size_t>(group.block_bytes / 4),
                            std::numeric_limits<float>::quiet_NaN());
        table.push_back(reinterpret_cast<std::byte*>(pages_.back().data()));
      }
      tables_.push_back(std::move(table));
    }
  }

  void Step(const std::vector<TokenId>& ids, int32_t begin, int32_t end,
            std::vector<float>& logits) {
    const int32_t count = end - begin;
    ops::SequenceSpan span{0, count, begin, {}};
    for (size_t g = 0; g < tables_.size(); ++g) span.tables[g] = tables_[g].data();
    std::vector<int32_t> rows(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = i;
    std::vector<float> states(static_cast<size_t>(count) * static_cast<size_t>(spec_.hidden));
    const Matrix view{states.data(), count, spec_.hidden, spec_.hidden};
    const Decoder decoder(spec_, weights_, plan_, kv_dtype_);
    decoder.Forward(context_,
                    {.tokens = ids.data() + begin,
                     .sequences = {&span, 1, count},
                     .rows = rows.data(),
                     .count = count},
                    view);
    float* out = logits.data() + int64_t{begin} * spec_.vocabulary;
    decoder.Logits(context_, view, {out, count, spec_.vocabulary, spec_.vocabulary});
  }

  ThreadPool pool_;
  Workspace workspace_;
  DType kv_dtype_;
  ModelSpec spec_;
  ModelWeights weights_;
  CachePlan plan_;
  ops::OpContext context_;
  std::vector<std::vector<float>> pages_;
  std::vector<std::vector<std::byte*>> tables_;
};

double LargestDifference(const Golden& golden, const std::vector<float>& logits, size_t width) {
  double worst = 0;
  for (size_t i = 1; i < golden.ids.size(); ++i) {
    const float* row = logits.data() + (i - 1) * width;
    double sum = 0;
    for (size_t v = 0; v < width; ++v) sum += std::exp(double{row[v]});
    const double logprob = row[static_cast<size_t>(golden.ids[i])] - std::log(sum);
    const double difference = std::abs(logprob - golden.logprobs[i]);
    worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
  }
  return worst;
}

std::vector<int32_t> Every(int32_t tokens) {
  std::vector<int32_t> cuts;
  for (int32_t i = 1; i < tokens; ++i) cuts.push_back(i);
  return cuts;
}

class FamilyGolden : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGolden, LogProbabilitiesAreTheOraclesAndNoCutChangesABit) {
  const std::vector<Golden> goldens = ReadGoldens(GetParam());
  ASSERT_FALSE(goldens.empty());
  const Isa best = BestIsa(DetectCpu());
  Model two(GetParam(), 2, best), one(GetParam(), 1, best);
  const auto width = static_cast<size_t>(two.vocabulary());
  double worst = 0;
  for (const Golden& golden : goldens) {
    const std::vector<float> whole = two.Logits(golden.ids, {});
    worst = std::max(worst, LargestDifference(golden, whole, width));
    for (const std::vector<int32_t>& cuts :
         {std::vector<int32_t>{},
          {1, 2, 3, 63, 65, 130},
          {64, 128, 192, 256},
          {100},
          Every(static_cast<int32_t>(std::min<size_t>(golden.ids.size(), 130)))}) {
      const std::vector<float> cut = one.Logits(golden.ids, cuts);
      ASSERT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0)
          << golden.ids.size() << " tokens, " << cuts.size() << " cuts";
    }
  }
  RecordProperty("max_difference", std::to_string(worst));
  EXPECT_LE(worst, 1e-4);
}

TEST_P(FamilyGolden, TheReferencesAgree) {
  const std::vector<Golden> goldens = ReadGoldens(GetParam());
  Model model(GetParam(), 1, Isa::kBase);
  for (const Golden& golden : goldens) {
    if (golden.ids.size() > 70) continue;
    const std::vector<float> logits = model.Logits(golden.ids, {2, 40});
    EXPECT_LE(LargestDifference(golden, logits, static_cast<size_t>(model.vocabulary())), 1e-4);
  }
}

TEST_P(FamilyGolden, NoCutChangesABitInBf16Either) {
  const Isa best = BestIsa(DetectCpu());
  Model two(GetParam(), 2, best, Compute::kBF16, DType::kBF16);
  Model one(GetParam(), 1, best, Compute::kBF16, DType::kBF16);
  for (const Golden& golden : ReadGoldens(GetParam())) {
    const std::vector<float> whole = two.Logits(golden.ids, {});
    EXPECT_TRUE(std::isfinite(whole.back()));
    for (const std::vector<int32_t>& cuts :
         {std::vector<int32_t>{1, 2, 3, 63, 65, 130}, {64, 128, 192, 256}, Every(70)}) {
      const std::vector<float> cut = one.Logits(golden.ids, cuts);
      ASSERT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0)
          << golden.ids.size() << " tokens, " << cuts.size() << " cuts";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden,
                         testing::Values("qwen3_5_a", "qwen3_5_b", "kimi_linear_a", "kimi_linear_b",
                                         "ling_3_a", "ling_3_b", "ling_2_a", "ling_2_b",
                                         "deepseek_v3_a", "deepseek_v3_b"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid
