// A layer of latent attention in both forms: the same values, and bits that depend on a sequence's
// own tokens in the step alone. Its weights are loaded from an example with sizes for tiles.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/layer_context.h"
#include "model/loading/test_loaded_model.h"
#include "model/mixers/latent_attention.h"
#include "model/writing/make_model.h"
#include "ops/testing/test_context.h"
#include "ops/testing/test_pages.h"

namespace braid {
namespace {

using ops::OwnedMatrix;

// The first layer with latent attention of a family's example, loaded for both forms.
struct Example {
  Example(const char* family, std::vector<std::string> shape) {
    ThreadPool pool(1);
    const TestDirectory directory;
    const std::string path = directory.path() + "/model";
    const Result<MadeModel> made = MakeModel(
        {.directory = path, .family = family, .shape = std::move(shape), .seed = 3, .progress = {}},
        pool);
    CHECK(made, "{}", made.error().message);
    const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
    CHECK(checkpoint, "{}", checkpoint.error().message);
    spec = FitToCheckpoint(*ReadModelSpec(path), *checkpoint);
    ExpandLatentAttention(spec, 1);
    Result<Binding> binding = BindWeights(spec, *checkpoint);
    CHECK(binding, "{}", binding.error().message);
    Result<ModelWeights> loaded = LoadWeights(*std::move(binding), pool);
    CHECK(loaded, "{}", loaded.error().message);
    weights = *std::move(loaded);
    while (!std::holds_alternative<LatentAttention>(spec.layers[layer].mixer)) ++layer;
  }
  const LatentAttention& mixer() const {
    return std::get<LatentAttention>(spec.layers[layer].mixer);
  }
  ModelSpec spec;
  ModelWeights weights;
  size_t layer = 0;
};

struct Arithmetic {
  Isa isa;
  Compute compute;
  DType kv_dtype;
  int threads = 1;
};

// Tokens [begin, end) of a sequence in a step.
struct Part {
  int sequence;
  int32_t begin, end;
};
using Steps = std::vector<std::vector<Part>>;

// What the tokens of each sequence get, [tokens][hidden].
using Outputs = std::map<int, std::vector<float>>;

double RelativeError(std::vector<float>& got, std::vector<float>& expected) {
  const auto count = static_cast<int64_t>(got.size());
  return ops::RelativeError({got.data(), 1, count, count}, {expected.data(), 1, count, count});
}
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && ops::SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

class Runner {
 public:
  Runner(const Example& example, const Arithmetic& arithmetic, int32_t tokens_min)
      : example_(example),
        mixer_(example.mixer()),
        kv_dtype_(arithmetic.kv_dtype),
        pool_(arithmetic.threads),
        workspace_(int64_t{512} << 20),
        context_{.device = DeviceOf(DetectCpu(), arithmetic.isa, arithmetic.compute),
                 .pool = &pool_,
                 .workspace = &workspace_} {
    mixer_.expanded_tokens_min = tokens_min;
  }

  Outputs Run(const Steps& steps) {
    for (const std::vector<Part>& step : steps) RunStep(step);
    return outputs_;
  }

 private:
  static constexpr int32_t kTokensMax = 2048;

  // Pages, and the layer's input, which is the same for every runner.
  struct Sequence {
    Sequence(const CacheNeed& need, int64_t hidden, int id)
        : rng(static_cast<uint64_t>(id)),
          x(rng, kTokensMax, hidden),
          pages(need.block_bytes, kTokensMax) {}
    Rng rng;
    OwnedMatrix x;
    ops::TestPages pages;
  };

  void RunStep(const std::vector<Part>& step) {
    const int64_t hidden = example_.spec.hidden;
    std::vector<ops::SequenceSpan> spans;
    std::vector<float> x;
    for (const Part& part : step) {
      std::unique_ptr<Sequence>& s = sequences_[part.sequence];
      if (!s) s = std::make_unique<Sequence>(CacheOf(mixer_, kv_dtype_), hidden, part.sequence);
      const auto begin = static_cast<int32_t>(x.size() / static_cast<size_t>(hidden));
      spans.push_back({begin, part.end - part.begin, part.begin, {}});
      spans.back().tables[0] = s->pages.table();
      x.insert(x.end(), s->x.view.row(part.begin), s->x.view.row(part.end));
    }
    const auto tokens = static_cast<int32_t>(x.size() / static_cast<size_t>(hidden));
    OwnedMatrix out(tokens, hidden);
    ops::SpoilWorkspace(context_);
    Forward(mixer_, MixerOf<LatentAttention>(example_.weights, example_.layer),
            LayerContext{.op = context_,
                         .sequences = {spans.data(), static_cast<int32_t>(spans.size()), tokens},
                         .cache = {},
                         .kv_dtype = kv_dtype_,
                         .norm = {}},
            {x.data(), tokens, hidden, hidden}, out.view);
    for (size_t i = 0; i < step.size(); ++i) {
      const float* first = out.view.row(spans[i].token_begin);
      std::vector<float>& all = outputs_[step[i].sequence];
      all.insert(all.end(), first, first + spans[i].token_count * hidden);
    }
  }

  const Example& example_;
  LatentAttention mixer_;
  DType kv_dtype_;
  ThreadPool pool_;
  Workspace workspace_;
  ops::OpContext context_;
  std::map<int, std::unique_ptr<Sequence>> sequences_;
  Outputs outputs_;
};

// Sizes that are multiples of what tiles take, of vectors, and of nothing.
std::vector<std::unique_ptr<Example>> Examples() {
  std::vector<std::unique_ptr<Example>> examples;
  examples.push_back(std::make_unique<Example>(
      "deepseek_v3", std::vector<std::string>{"tiny", "kv_lora_rank=64", "qk_nope_head_dim=64",
                                              "qk_rope_head_dim=32", "v_head_dim=64"}));
  examples.push_back(std::make_unique<Example>(
      "ling_3", std::vector<std::string>{"tiny", "qk_nope_head_dim=8", "v_head_dim=40"}));
  examples.push_back(std::make_unique<Example>(
      "kimi_linear", std::vector<std::string>{"tiny", "num_attention_heads=11",
                                              "qk_nope_head_dim=9", "v_head_dim=7"}));
  return examples;
}

// At 40 tokens and more a sequence takes the expanded form.
constexpr int32_t kTokensMin = 40;
const Steps kMixed = {{{0, 0, 77}, {1, 0, 5}, {2, 0, 50}},
                      {{0, 77, 78}, {2, 50, 51}, {1, 5, 60}},
                      {{2, 51, 190}, {0, 78, 300}, {1, 60, 61}, {3, 0, 39}}};
bool WasExpanded(int sequence, int64_t token) {
  for (const std::vector<Part>& step : kMixed) {
    for (const Part& part : step) {
      if (part.sequence != sequence || token < part.begin || token >= part.end) continue;
      return part.end - part.begin >= kTokensMin;
    }
  }
  return false;
}

constexpr DType kKvDtypes[] = {DType::kF32, DType::kBF16, DType::kI8};

std::vector<Arithmetic> Arithmetics() {
  std::vector<Arithmetic> all;
  for (const auto& [isa, compute] : ops::TestArithmetics()) {
    for (DType kv_dtype : kKvDtypes) all.push_back({isa, compute, kv_dtype});
  }
  return all;
}

std::string NameOf(const Arithmetic& a) {
  return fmt::format("{} {} cache {}", NameOf(a.isa), a.compute == Compute::kF32 ? "fp32" : "bf16",
                     NameOf(a.kv_dtype));
}

TEST(LatentAttention, TheExpandedFormAgreesWithTheAbsorbedOneOfTheReference) {
  for (const auto& example : Examples()) {
    std::map<DType, Outputs> references;
    for (DType kv_dtype : kKvDtypes) {
      references[kv_dtype] = Runner(*example, {Isa::kBase, Compute::kF32, kv_dtype}, 0).Run(kMixed);
    }
    for (const Arithmetic& a : Arithmetics()) {
      // A cache row near a rounding edge may fall to either side of it.
      const double tolerance = a.compute == Compute::kBF16 ? 2e-2
                               : a.kv_dtype == DType::kF32 ? 2e-6
                                                           : 1e-4;
      Outputs got = Runner(*example, a, kTokensMin).Run(kMixed);
      double worst = 0;
      for (auto& [sequence, rows] : got) {
        worst = std::max(worst, RelativeError(rows, references.at(a.kv_dtype).at(sequence)));
      }
      EXPECT_LT(worst, tolerance) << NameOf(a) << ", " << example->spec.family;
    }
  }
}

TEST(LatentAttention, TokensOfShortPartsKeepTheBitsOfTheAbsorbedForm) {
  for (const auto& example : Examples()) {
    for (const Arithmetic& a : Arithmetics()) {
      if (a.isa == Isa::kBase) continue;
      Outputs absorbed = Runner(*example, a, 0).Run(kMixed);
      Outputs mixed = Runner(*example, a, kTokensMin).Run(kMixed);
      for (auto& [sequence, rows] : mixed) {
        int64_t changed = 0, expanded = 0;
        const int64_t hidden = example->spec.hidden;
        for (int64_t t = 0; t < std::ssize(rows) / hidden; ++t) {
          const bool same = ops::SameBits(rows.data() + t * hidden,
                                          absorbed.at(sequence).data() + t * hidden, hidden);
          if (!WasExpanded(sequence, t)) {
            ASSERT_TRUE(same) << NameOf(a) << ", sequence " << sequence << ", token " << t;
          } else {
            ++expanded;
            changed += same ? 0 : 1;
          }
        }
        // The other form was taken, or nothing of this would be about it.
        EXPECT_GE(changed, expanded / 2) << NameOf(a) << ", sequence " << sequence;
      }
    }
  }
}

TEST(LatentAttention, NeitherThreadsNorOtherSequencesChangeABitOfTheExpandedForm) {
  const Steps alone = {{{0, 0, 77}}, {{0, 77, 78}}, {{0, 78, 300}}};
  for (const auto& example : Examples()) {
    for (Arithmetic a : Arithmetics()) {
      if (a.isa == Isa::kBase) continue;
      const Outputs expected = Runner(*example, a, kTokensMin).Run(alone);
      a.threads = 3;
      const Outputs got = Runner(*example, a, kTokensMin).Run(kMixed);
      EXPECT_TRUE(SameBits(expected.at(0), got.at(0))) << NameOf(a) << ", " << example->spec.family;
    }
  }
}

// Of a step in the absorbed form on a device, as it is measured.
int64_t MeasuredBytes(const LatentAttention& m, int32_t tokens) {
  ThreadPool pool(1);
  Workspace measuring = Workspace::Measuring();
  const ops::OpContext context{
      .device = {.vulkan = true}, .pool = &pool, .workspace = &measuring};
  LatentAttentionWeights weights;
  weights.key_up.matrix = {.count = m.heads, .n = m.latent_dim, .k = m.key_dim};
  weights.value_up.matrix = {.count = m.heads, .n = m.value_dim, .k = m.latent_dim};
  const ops::SequenceSpan span{0, tokens, 0, {}};
  const ops::SequenceIndex sequences{&span, 1, tokens};
  const int64_t queries = m.heads * QueryDim(m), values = int64_t{m.heads} * m.value_dim;
  RunAbsorbed(m,
              LayerContext{.op = context,
                           .sequences = sequences,
                           .cache = {},
                           .kv_dtype = DType::kBF16,
                           .norm = {}},
              {.weights = weights,
               .q = {nullptr, tokens, queries, queries},
               .row = {nullptr, tokens, RowWidth(m), RowWidth(m)},
               .rotation = {},
               .gate = {},
               .mixed = {nullptr, tokens, values, values}},
              sequences);
  return measuring.peak();
}

TEST(LatentAttention, AStepOfFewerTokensHasRoomForAHeadMore) {
  LatentAttention m;
  m.heads = 16;
  m.latent_dim = 512;
  m.key_dim = m.value_dim = 128;
  m.shared_dim = 64;
  // Of 1928 tokens 15 heads fit at once, of 1927 all 16.
  EXPECT_GE(MeasuredBytes(m, 1928), MeasuredBytes(m, 1927));
}

TEST(LatentAttention, HeadsThatDoNotFitAtOnceFollowInTurn) {
  // 128 heads of 1700 keys take 139 MB, more than are in memory at a time.
  const Example example("ling_3", {"tiny", "num_attention_heads=128", "kv_lora_rank=32",
                                   "qk_nope_head_dim=64", "qk_rope_head_dim=32", "v_head_dim=64"});
  const Arithmetic best{BestIsa(DetectCpu()), Compute::kF32, DType::kF32, 2};
  const Steps whole = {{{0, 0, 1700}}};
  Outputs absorbed = Runner(example, best, 0).Run(whole);
  Outputs expanded = Runner(example, best, 1).Run(whole);
  EXPECT_LT(RelativeError(expanded.at(0), absorbed.at(0)), 1e-5);
}

}  // namespace
}  // namespace braid
