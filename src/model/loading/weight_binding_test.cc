// Strictness: a checkpoint that differs from its config in one tensor is refused, with that
// tensor's name, what was found and what would be right.
#include "model/loading/weight_binding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "model/checkpoint/formats/storage_format.h"
#include "model/checkpoint/safetensors_writer.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/writing/make_model.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Plans = std::vector<TensorPlan>;

// A tiny model's tensors, changed by the test and written with zeros.
class StrictLoader : public ::testing::Test {
 protected:
  StrictLoader() {
    ThreadPool pool(1);
    Result<MadeModel> made = MakeModel({.directory = dir_.path() + "/made",
                                        .family = "qwen3_5_moe",
                                        .shape = {"tiny", "mtp_num_hidden_layers=1"},
                                        .progress = {}},
                                       pool);
    CHECK(made.ok(), "{}", made.error().message);
    Result<Checkpoint> checkpoint = Checkpoint::Open(dir_.path() + "/made");
    CHECK(checkpoint.ok());
    for (const auto& [name, entry] : checkpoint->tensors()) {
      plans_.push_back({name, entry.dtype, entry.shape});
    }
    Result<ModelSpec> spec = ReadModelSpec(dir_.path() + "/made");
    CHECK(spec.ok());
    spec_ = *std::move(spec);
  }

  TensorPlan& Plan(const std::string& name) {
    auto at = std::ranges::find(plans_, name, &TensorPlan::name);
    CHECK(at != plans_.end(), "{}", name);
    return *at;
  }
  void Remove(const std::string& name) {
    std::erase_if(plans_, [&](const TensorPlan& plan) { return plan.name == name; });
  }

  // The error of loading the changed tensors, or nothing.
  std::string ErrorOf() {
    const std::string directory = dir_.path() + "/changed";
    std::filesystem::create_directories(directory);
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(directory + "/model.safetensors", plans_);
    CHECK(writer.ok());
    for (size_t i = 0; i < plans_.size(); ++i) {
      const std::vector<std::byte> zeros(static_cast<size_t>(plans_[i].bytes()));
      CHECK(writer->Write(i, 0, zeros).ok());
    }
    CHECK(writer->Finish().ok());
    Result<Checkpoint> checkpoint = Checkpoint::Open(directory);
    CHECK(checkpoint.ok(), "{}", checkpoint.error().message);
    const ModelSpec fitted = FitToCheckpoint(spec_, *checkpoint);
    Result<Binding> binding = BindWeights(fitted, *checkpoint);
    if (!binding) return binding.error().message;
    report_ = std::move(binding->report);
    return "";
  }

  TestDirectory dir_;
  Plans plans_;
  ModelSpec spec_;
  LoadReport report_;
};

const std::string kLayer = "model.layers.1.";
const std::string kQkv = kLayer + "linear_attn.in_proj_qkv.weight";

TEST_F(StrictLoader, AcceptsTheUnchangedTensors) { EXPECT_EQ(ErrorOf(), ""); }

TEST_F(StrictLoader, NamesAMissingTensorWithItsShape) {
  Remove(kQkv);
  EXPECT_THAT(ErrorOf(), HasSubstr("\"" + kQkv + "\" [128, 64] is missing"));
}

TEST_F(StrictLoader, NamesATensorThatNoWeightClaims) {
  plans_.push_back({"model.layers.9.mlp.extra.weight", DType::kBF16, {3}});
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("\"model.layers.9.mlp.extra.weight\" [3]"),
                               HasSubstr("belongs to no weight"), HasSubstr("model.safetensors")));
}

TEST_F(StrictLoader, PairsAMisspeltNameWithTheNearestOne) {
  Plan(kQkv).name = kLayer + "linear_attn.in_proj_qvk.weight";
  EXPECT_THAT(ErrorOf(), HasSubstr("\"" + kQkv + "\" [128, 64] is missing; the nearest name is \"" +
                                   kLayer + "linear_attn.in_proj_qvk.weight\""));
}

TEST_F(StrictLoader, NamesAWrongShapeAndTheRightOne) {
  Plan(kQkv).shape = {64, 128};
  EXPECT_THAT(ErrorOf(), HasSubstr("has the shape [64, 128]; config.json asks for [128, 64]"));
}

TEST_F(StrictLoader, NamesAWrongTypeAndTheRightOnes) {
  Plan(kQkv).dtype = DType::kI8;
  EXPECT_THAT(ErrorOf(), HasSubstr("is i8; it must be bf16, f16 or f32"));
}

TEST_F(StrictLoader, PartsOfOneWeightHaveOneType) {
  Plan(kLayer + "linear_attn.in_proj_z.weight").dtype = DType::kF32;
  EXPECT_THAT(ErrorOf(), HasSubstr("must have one type"));
}

TEST_F(StrictLoader, AcceptsOtherFloatTypes) {
  for (TensorPlan& plan : plans_) plan.dtype = DType::kF16;
  EXPECT_EQ(ErrorOf(), "");
  for (TensorPlan& plan : plans_) plan.dtype = DType::kF32;
  EXPECT_EQ(ErrorOf(), "");
}

TEST_F(StrictLoader, RefusesTwoFormsOfTheExperts) {
  plans_.push_back({kLayer + "mlp.experts.0.down_proj.weight", DType::kBF16, {64, 32}});
  EXPECT_THAT(ErrorOf(), HasSubstr("are two forms of one weight"));
}

TEST_F(StrictLoader, NamesTheExpertThatIsMissing) {
  Remove(kLayer + "mlp.experts.down_proj");
  for (int e = 0; e < 7; ++e) {
    plans_.push_back(
        {fmt::format("{}mlp.experts.{}.down_proj.weight", kLayer, e), DType::kBF16, {64, 32}});
  }
  EXPECT_THAT(ErrorOf(), HasSubstr("\"" + kLayer + "mlp.experts.7.down_proj.weight\" [64, 32]"));
}

TEST_F(StrictLoader, ListsAllProblemsAtOnce) {
  Remove(kQkv);
  Plan("model.norm.weight").shape = {65};
  plans_.push_back({"stray", DType::kU8, {1}});
  EXPECT_THAT(ErrorOf(),
              AllOf(HasSubstr(kQkv), HasSubstr("\"model.norm.weight\""), HasSubstr("\"stray\"")));
}

TEST_F(StrictLoader, ChecksTheDraftHeadAndDoesWithoutIt) {
  Plan("mtp.fc.weight").shape = {64, 64};
  EXPECT_THAT(ErrorOf(), HasSubstr("\"mtp.fc.weight\""));
  Remove("mtp.fc.weight");
  EXPECT_THAT(ErrorOf(), HasSubstr("\"mtp.fc.weight\" [64, 128] is missing"));
  std::erase_if(plans_, [](const TensorPlan& plan) { return plan.name.starts_with("mtp."); });
  EXPECT_EQ(ErrorOf(), "");
  EXPECT_TRUE(report_.draft.empty());
}

TEST_F(StrictLoader, AnUntiedModelNeedsItsHeadAndATiedOneUsesAHeadThatIsThere) {
  spec_.tied_head = true;
  EXPECT_EQ(ErrorOf(), "");
  EXPECT_EQ(report_.weights.back().part, "head");
  spec_.tied_head = false;
  Remove("lm_head.weight");
  EXPECT_THAT(ErrorOf(), HasSubstr("\"lm_head.weight\" [512, 64] is missing"));
}

TEST_F(StrictLoader, AListOfExceptionsThatTakesTooLongIsAProblem) {
  Plan(kQkv).dtype = DType::kF8E4M3;
  plans_.push_back({kQkv + "_scale", DType::kF32, {1}});
  spec_.quantization = {.method = "fp8", .formats = {&kFp8Scaled}, .ignored = {"re:.*gate$"}};
  EXPECT_EQ(ErrorOf(), "");
  spec_.quantization.ignored.assign(600, "re:(.*)*(.*)*(.*)*gate$");
  EXPECT_THAT(ErrorOf(), HasSubstr("not quantised, of 600 entries, with the names of modules takes "
                                   "more than 10000000 steps and 10000 for each module"));
  spec_.quantization.ignored = {"linear_attn.in_proj_qkv"};
  EXPECT_THAT(ErrorOf(), HasSubstr("is stored as fp8 with scales although config.json lists"));
}

TEST_F(StrictLoader, ALongListOfProblemsIsCut) {
  for (int i = 0; i < 1000; ++i) plans_.push_back({fmt::format("s{}", i), DType::kU8, {1}});
  const std::string error = ErrorOf();
  EXPECT_THAT(error, HasSubstr("and 968 more"));
  EXPECT_LT(error.size(), 10'000u);
}

}  // namespace
}  // namespace braid
