// A model on a Vulkan device beside the same model on the CPU, and what a step asks of the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <variant>

#include "tests/equality/table.h"

namespace braid {
namespace {

// A model, and whether its experts are the CPU's.
class VulkanModel : public ::testing::TestWithParam<std::tuple<Model, bool>> {
 protected:
  void SetUp() override {
    if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  }
  static Model model() { return std::get<0>(GetParam()); }
  static bool handed() { return std::get<1>(GetParam()); }
  static Machine& OnDevice() {
    return MachineOf({model(), (handed() ? ArithmeticsHandedOver() : ArithmeticsOnDevice())[0]});
  }
};

int64_t MixturesOf(Model model) {
  const ModelSpec spec = TinySpec(model);
  return std::ranges::count_if(spec.layers, [](const LayerSpec& layer) {
    return std::holds_alternative<MoeFfn>(layer.ffn);
  });
}

// The same distributions but for rounding, at every position of a prompt of three blocks.
TEST_P(VulkanModel, AgreesWithTheCpu) {
  Machine& cpu = MachineOf({model(), BestHere(Compute::kF32)});
  Request request = MakeRequest(kTarget, Tokens(5, 200), 1);
  request.prompt_logprobs = 3;
  Engine there(OnDevice(), OnDevice().config()), here(cpu, cpu.config());
  const Answer& got = there.Ask(request);
  const Answer& want = here.Ask(request);
  ASSERT_TRUE(got.error.empty()) << got.error;
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
  ASSERT_EQ(got.prompt_logprobs.size(), 200u);
  for (size_t i = 0; i + 1 < want.prompt_logprobs.size(); ++i) {
    ASSERT_NEAR(got.prompt_logprobs[i].logprob, want.prompt_logprobs[i].logprob, 2e-3) << i;
  }
}

// What one kernel needs of another, no kernel beside it may have to do: a device chooses the order.
TEST_P(VulkanModel, KernelsBesideEachOtherMayRunInAnyOrder) {
  Machine& machine = OnDevice();
  std::vector<Answer> answers;
  for (const bool reversed : {false, true}) {
    machine.home()->gpu().ReverseBeside(reversed);
    Engine run(machine, machine.config());
    Request request = MakeRequest(kTarget, Tokens(5, 100), 8);
    request.prompt_logprobs = request.logprobs = 3;
    answers.push_back(run.Ask(request));
  }
  machine.home()->gpu().ReverseBeside(false);
  ASSERT_TRUE(answers[0].error.empty()) << answers[0].error;
  EXPECT_EQ(answers[0].tokens.size(), 8u);
  ExpectSame(answers[1], answers[0]);
}

// Of more rows than there are logits in memory at once, chosen in every way; one by the host.
TEST_P(VulkanModel, ADecodeStepIsASubmissionAndOneForEachHandOverAndAllocatesNothing) {
  Machine& machine = OnDevice();
  const auto counters = [&] { return machine.home()->gpu().counters(); };
  Engine run(machine, machine.config());
  constexpr int kRows = 65, kSteps = 5;
  for (int64_t id = 0; id < kRows; ++id) {
    Request request = MakeRequest(id, Tokens(static_cast<uint64_t>(id), 7), 40);
    request.sampling = {.temperature = id % 5 == 0 ? 0.0f : 0.8f, .seed = 4};
    if (id % 5 == 2) request.sampling.top_k = 20;
    if (id % 5 == 3) request.sampling.top_p = 0.9f;
    if (id % 5 == 4) request.sampling.min_p = 0.05f;
    if (id % 3 == 0) request.logprobs = 5;
    if (id == 7) request.sampling.repetition_penalty = 1.2f;
    run.Submit(request);
  }
  for (int i = 0; i < 4; ++i) run.Step();  // prompts, and the first tokens of all
  const vulkan::Counters before = counters();
  const int64_t kept = machine.home()->bytes_kept();
  for (int i = 0; i < kSteps; ++i) {
    run.Step();
    EXPECT_LE(machine.home()->bytes_laid(), 64 * kRows + 4096);
    // Of each row its span and that of its token, the token, what is wanted and how to draw.
    EXPECT_GE(machine.home()->bytes_laid(),
              kRows * int64_t{sizeof(ops::DeviceSpan) + 12 + sizeof(ops::gpu::DeviceDraw)});
  }
  const int64_t each = 1 + (handed() ? MixturesOf(model()) : 0);
  EXPECT_EQ(counters().submissions - before.submissions, kSteps * each);
  EXPECT_EQ(counters().waits - before.waits, kSteps * each);  // one, for the end of each
  EXPECT_EQ(machine.home()->bytes_kept(), kept);
  EXPECT_EQ(counters().allocations, before.allocations);
  EXPECT_EQ(counters().pipelines, before.pipelines);
  EXPECT_EQ(counters().recordings, before.recordings) << "steps of the same rows are recorded once";
}

// As counted when the model came to the device, for the rate that is expected of it.
TEST_P(VulkanModel, ADecodeStepOfASequenceIsAsManyCommandsAsWereCounted) {
  Machine& machine = OnDevice();
  const auto counters = [&] { return machine.home()->gpu().counters(); };
  Engine run(machine, machine.config());
  run.Submit(MakeRequest(1, Tokens(1, 7), 40));
  for (int i = 0; i < 2; ++i) run.Step();  // the prompt, and the constants
  const vulkan::Counters before = counters(), &counted = machine.home()->decode_step();
  run.Step();
  EXPECT_EQ(counters().dispatches - before.dispatches, counted.dispatches);
  EXPECT_EQ(counters().copies - before.copies, counted.copies);
  EXPECT_EQ(counters().writes - before.writes, counted.writes);
  EXPECT_EQ(counters().submissions - before.submissions, counted.submissions);
  EXPECT_GT(counted.dispatches, 5 * std::ssize(TinySpec(model()).layers));
}

// The model's own submission verifies; the head's has the chains of all sequences.
TEST(VulkanModelHead, AStepThatDraftsIsTwoSubmissions) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  Machine& machine =
      MachineOf({.model = Model::kQwen35, .arithmetic = ArithmeticsOnDevice()[0], .head = true});
  const auto counters = [&] { return machine.home()->gpu().counters(); };
  Engine run(machine, machine.config(Drafts::kHeadThree));
  constexpr int64_t kRows = 5;
  for (int64_t id = 0; id < kRows; ++id) {
    Request request = MakeRequest(id, Tokens(static_cast<uint64_t>(id), 7), 200);
    request.draft_tokens = id % 2 == 0 ? 3 : 2;
    run.Submit(request);
  }
  for (int i = 0; i < 3; ++i) run.Step();
  const vulkan::Counters before = counters();
  const int64_t drafts = run.stats().drafts;
  constexpr int kSteps = 5;
  for (int i = 0; i < kSteps; ++i) {
    run.Step();
    EXPECT_LE(machine.home()->bytes_laid(), kRows * (64 + 3 * 160) + 4096);
  }
  EXPECT_EQ(counters().submissions - before.submissions, 2 * kSteps);
  EXPECT_EQ(counters().waits - before.waits, 2 * kSteps);
  EXPECT_EQ(counters().allocations, before.allocations);
  EXPECT_EQ(counters().pipelines, before.pipelines);
  EXPECT_EQ(run.stats().drafts - drafts, kSteps * (3 + 2 + 3 + 2 + 3)) << "chains of every length";
}

// Drain compares the target's drafts with those of the run before.
TEST(VulkanModelHead, DraftsOfASequenceAreTheSameBesideOthers) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  Machine& machine =
      MachineOf({.model = Model::kQwen35, .arithmetic = ArithmeticsOnDevice()[0], .head = true});
  Request target = MakeRequest(kTarget, Tokens(1, 70), 24);
  target.sampling.temperature = 0.8f;
  Engine alone(machine, machine.config(Drafts::kHeadThree));
  const Answer want = alone.Ask(target);
  Engine run(machine, machine.config(Drafts::kHeadThree));
  for (int64_t id = 1; id <= 3; ++id) {
    run.Submit(
        MakeRequest(id, Tokens(static_cast<uint64_t>(id) + 1, 20 * static_cast<int>(id)), 30));
    if (id == 2) run.Submit(target);
  }
  run.Drain();
  ExpectSame(run.answer(kTarget), want);
  EXPECT_GT(run.drafts_checked(), 10);
}

// Copies of states that the head has not seen go with the next step.
TEST(VulkanModelHead, AStepThatDraftsNothingIsOneSubmission) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  Machine& machine =
      MachineOf({.model = Model::kQwen35, .arithmetic = ArithmeticsOnDevice()[0], .head = true});
  Engine run(machine, machine.config(Drafts::kHeadThree));
  Request request = MakeRequest(1, Tokens(1, 7), 50);
  request.draft_tokens = 0;
  run.Submit(request);
  run.Step();
  const int64_t before = machine.home()->gpu().counters().submissions;
  for (int i = 0; i < 5; ++i) run.Step();
  EXPECT_EQ(machine.home()->gpu().counters().submissions - before, 5);
}

INSTANTIATE_TEST_SUITE_P(
    Vulkan, VulkanModel,
    ::testing::Combine(::testing::Values(Model::kQwen35Moe, Model::kKimiLinear), ::testing::Bool()),
    [](const auto& model) {
      return NameOf(std::get<0>(model.param)) + (std::get<1>(model.param) ? "_handed" : "");
    });

// Each layer's mixture is handed over in the model's step; the head's own in each of its passes.
TEST(VulkanModelHead, WithExpertsOnTheCpuEachPassHandsOver) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  Machine& machine = MachineOf(
      {.model = Model::kQwen35Moe, .arithmetic = ArithmeticsHandedOver()[0], .head = true});
  const auto counters = [&] { return machine.home()->gpu().counters(); };
  Engine run(machine, machine.config(Drafts::kHeadThree));
  Request request = MakeRequest(1, Tokens(1, 7), 200);
  request.draft_tokens = 3;
  run.Submit(request);
  for (int i = 0; i < 3; ++i) run.Step();
  const vulkan::Counters before = counters();
  constexpr int64_t kSteps = 5, kPasses = 3;  // the chain's
  for (int i = 0; i < kSteps; ++i) run.Step();
  const int64_t each = MixturesOf(Model::kQwen35Moe) + 1 + kPasses + 1;
  EXPECT_EQ(counters().submissions - before.submissions, kSteps * each);
  EXPECT_EQ(counters().allocations, before.allocations);
}

// What is loaded for a device leaves the host, but for what stays there.
TEST(VulkanModelMemory, OnlyRoutedExpertsStayWithTheHost) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  EXPECT_EQ(MachineOf({Model::kQwen35Moe, ArithmeticsOnDevice()[0]}).host_weight_bytes(), 0);
  Machine& handed = MachineOf({Model::kQwen35Moe, ArithmeticsHandedOver()[0]});
  const ModelSpec spec = TinySpec(Model::kQwen35Moe);
  int64_t experts = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe != nullptr) experts += int64_t{3} * 2 * moe->experts * moe->width * spec.hidden;
  }
  EXPECT_GE(handed.host_weight_bytes(), experts);
  EXPECT_LE(handed.host_weight_bytes(), experts + (64 << 10));
}

TEST(VulkanModelErrors, AnOpThatTheDeviceLacksIsNamed) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  ModelSpec spec = TinySpec(Model::kDeepseekV3);
  ExpandLatentAttention(spec, 4);
  ModelWeights weights;
  ListWeights(spec, weights);
  auto gpu = vulkan::Gpu::Open(0);
  ASSERT_TRUE(gpu.ok());
  const auto device =
      ModelDevice::Create(*std::move(gpu), spec, weights,
                          {.running_max = 1, .step_tokens_max = 16, .context_tokens_max = 64});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().field, "device");
  EXPECT_NE(device.error().message.find("expand_latent: there is no kernel for it"),
            std::string::npos);
  EXPECT_NE(device.error().message.find("--device cpu"), std::string::npos);
}

// Ops have a workgroup of a token, or of a pair of one and an expert.
TEST(VulkanModelErrors, StepsOfMoreTokensThanTheDeviceTakesAreRefusedAtTheStart) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  const ModelSpec spec = TinySpec(Model::kQwen35Moe);
  ModelWeights weights;
  ListWeights(spec, weights);
  auto gpu = vulkan::Gpu::Open(0);
  ASSERT_TRUE(gpu.ok());
  const auto device = ModelDevice::Create(*std::move(gpu), spec, weights,
                                          {.cache = {.page_bytes = 4096, .pages = 1},
                                           .running_max = 1,
                                           .step_tokens_max = 1 << 17,
                                           .context_tokens_max = 64});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().field, "device");
  EXPECT_NE(device.error().message.find("steps of 131072 tokens"), std::string::npos);
  EXPECT_NE(device.error().message.find("Lower --max-batch-tokens"), std::string::npos);
}

}  // namespace
}  // namespace braid
