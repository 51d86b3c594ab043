// Proof that the columns with experts on the CPU can see: with each mistake of handover.toml, and
// with none but those, log-probabilities differ from the CPU's, an answer depends on how its prompt
// was cut, or a loss goes unnoticed. A process for each, which alone opens the device.
#include <gtest/gtest.h>
#include <volk.h>

#include <cmath>
#include <memory>
#include <string>

#include "ops/testing/test_linear.h"
#include "ops/vulkan/test_device.h"
#include "tests/equality/table.h"
#include "tests/mistakes/each_found.h"
#include "vulkan/gpu.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "handover.inc"
};

bool AgreesWithTheCpu(Machine& machine) {
  Machine cpu({Model::kQwen35Moe, BestHere(Compute::kF32)});
  Request request = MakeRequest(kTarget, Tokens(5, 200), 1);
  request.prompt_logprobs = 1;
  Engine there(machine, machine.config()), here(cpu, cpu.config());
  const Answer &got = there.Ask(request), &want = here.Ask(request);
  if (!got.error.empty() || got.prompt_logprobs.size() != want.prompt_logprobs.size()) return false;
  for (size_t i = 0; i + 1 < want.prompt_logprobs.size(); ++i) {
    const float off = got.prompt_logprobs[i].logprob - want.prompt_logprobs[i].logprob;
    if (!(std::abs(off) <= 2e-3f)) return false;
  }
  return true;
}

bool ChunksChangeNothing(Machine& machine) {
  const Request request = MakeRequest(kTarget, Tokens(1, 150), 12);
  const Answer want = Cold(machine, request);
  SchedulerConfig config = machine.config();
  config.prefix_cache = false;
  config.chunk_tokens_max = 50;
  Engine run(machine, config);
  const Answer& got = run.Ask(request);
  return got.tokens == want.tokens && got.logprobs == want.logprobs;
}

bool AfterALossTheHostRests() {
  struct Work final : vulkan::HostWork {
    void Run() override { ran = true; }
    bool ran = false;
  } work;
  auto gpu = vulkan::Gpu::Open(0);
  auto memory = (*gpu)->Allocate(4096, vulkan::Place::kReadback);
  vulkan::Recorder recorder(**gpu);
  recorder.Zero(memory->address(), 4096);
  recorder.BeginHandOver();
  recorder.EndHandOver(work);
  const PFN_vkQueueSubmit submit = vkQueueSubmit;
  vkQueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  recorder.Zero(memory->address(), 4096);
  recorder.BeginHandOver();
  recorder.EndHandOver(work);  // runs the first one's
  work.ran = false;
  const bool failed = !recorder.Finish().ok();
  vkQueueSubmit = submit;
  return failed && !work.ran;
}

// More tokens than a device's scratch has room for at once: the last one's experts alone.
bool PiecesChangeNothing() {
  std::string why;
  const std::unique_ptr<ops::TestDevice> device = ops::TestDevice::Open(&why);
  constexpr int64_t kLast = 2099;
  ops::Mixture mixture({kLast + 1, 32, 4, 16, 16});
  ops::OwnedMatrix all(kLast + 1, 32), alone(1, 32);
  mixture.args.out = all.view;
  Experts(*device, mixture.args);
  Experts(*device, mixture.Token(kLast, alone.view));
  return ops::SameBits(all.view.row(kLast), alone.view.row(0), 32);
}

bool HandsOver() {
  Machine machine({Model::kQwen35Moe, ArithmeticsHandedOver()[0]});
  return AgreesWithTheCpu(machine) && ChunksChangeNothing(machine) && AfterALossTheHostRests() &&
         PiecesChangeNothing();
}

TEST(HandOverMistakes, AreFound) {
  if (Passed(StartWith(kNoMistake, [] { return ArithmeticsHandedOver().empty(); }, 60))) {
    GTEST_SKIP() << "no Vulkan device can be used";
  }
  ExpectEachFound(kMistakes, HandsOver);
}

}  // namespace
}  // namespace braid
