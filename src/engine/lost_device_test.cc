// An engine whose device fails: what ran ends with an error, what waits is answered by the device
// that is opened again. Failures are injected where the program calls the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <volk.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/generate.h"
#include "engine/output_queue.h"
#include "model/checkpoint/test_directory.h"
#include "model/writing/make_model.h"
#include "vulkan/gpu.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Until a device is opened, which looks the driver's functions up.
VKAPI_ATTR VkResult VKAPI_CALL Lost(VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
  return VK_ERROR_DEVICE_LOST;
}

int submissions_left = 0;  // counted atomically: several threads may submit
PFN_vkQueueSubmit submit = nullptr;
VKAPI_ATTR VkResult VKAPI_CALL LostLater(VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                                         VkFence fence) {
  if (std::atomic_ref(submissions_left).fetch_sub(1) > 0) return submit(queue, count, infos, fence);
  return VK_ERROR_DEVICE_LOST;
}

class LostDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto devices = vulkan::ListDevices();
    if (!devices || !(*devices)[0].missing.empty()) GTEST_SKIP() << "no Vulkan device can be used";
    engine_ = Load(Options());
  }
  // Small, for a software driver takes its time; with a draft head.
  static std::string Model() {
    static const TestDirectory directory;
    static const bool made = [] {
      ThreadPool pool(1);
      return MakeModel({.directory = directory.path() + "/made",
                        .family = "qwen3_5_moe",
                        .shape = {"tiny", "mtp_num_hidden_layers=1"},
                        .progress = {}},
                       pool)
          .ok();
    }();
    CHECK(made);
    return directory.path() + "/made";
  }
  static EngineOptions Options() {
    EngineOptions options;
    options.model_dir = Model();
    options.device = "vulkan:0";
    options.threads = 1;
    options.cache_bytes = 64 << 20;
    options.context_tokens_max = 512;
    options.scheduler.running_max = 2;
    return options;
  }
  static std::unique_ptr<Engine> Load(const EngineOptions& options) {
    auto engine = Engine::Load(options);
    CHECK(engine, "{}", engine.error().message);
    return *std::move(engine);
  }
  // Of requests that come at once; two can run.
  std::vector<RequestResult> Ask(int count) { return Ask(count, kPrompt); }
  std::vector<RequestResult> Ask(int count, const std::vector<TokenId>& prompt) {
    std::vector<std::unique_ptr<OutputQueue>> queues;
    engine_->driver().SetPaused(true);
    for (int i = 0; i < count; ++i) {
      Request request = RequestFor(*engine_, prompt, {.max_tokens = 4, .temperature = 0});
      request.stop.stop_tokens.clear();
      request.logprobs = 0;  // show what the same token may hide
      request.id = engine_->driver().NewRequestId();
      queues.push_back(std::make_unique<OutputQueue>());
      CHECK(engine_->driver().Submit(request, queues.back().get()).ok());
    }
    engine_->driver().SetPaused(false);
    std::vector<RequestResult> results;
    for (const auto& queue : queues) {
      RequestResult& result = results.emplace_back();
      for (bool ended = false; !ended;) {
        TimedOutput output = queue->Next();
        ended = output.output.finish.has_value();
        result.Add(std::move(output));
      }
    }
    return results;
  }
  const std::vector<TokenId> kPrompt = std::vector<TokenId>(150, 11);
  std::unique_ptr<Engine> engine_;
};

TEST_F(LostDevice, FailsWhatRunsAndIsOpenedAgainForWhatWaits) {
  const std::vector<RequestResult> before = Ask(1);
  ASSERT_EQ(before[0].error, "");
  ASSERT_EQ(before[0].logprobs.size(), 4u);
  vkQueueSubmit = Lost;
  const std::vector<RequestResult> during = Ask(3);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(during[static_cast<size_t>(i)].finish, FinishReason::kError);
    EXPECT_THAT(during[static_cast<size_t>(i)].error, HasSubstr("the device is lost"));
  }
  EXPECT_EQ(during[2].error, "");
  EXPECT_EQ(during[2].logprobs, before[0].logprobs);
  EXPECT_EQ(during[2].cached_tokens, 0) << "the cache went with the device";
  const std::vector<RequestResult> after = Ask(1);
  EXPECT_EQ(after[0].logprobs, before[0].logprobs);
  EXPECT_GT(after[0].cached_tokens, 0);
}

// What was put beside the arena, the next device gets from there. A move that the loss meets ends.
TEST_F(LostDevice, GetsItsPagesBackFromATier) {
  if (engine_ == nullptr) return;
  engine_.reset();
  EngineOptions options = Options();
  options.cache_host_bytes = int64_t{64} << 20;
  engine_ = Load(options);
  const std::vector<RequestResult> before = Ask(1);
  ASSERT_EQ(before[0].error, "");
  // Of 150 tokens, two blocks and the state behind them.
  const auto parts = [&] { return engine_->driver().stats().scheduler.tier_parts; };
  for (int i = 0; i < 6000 && parts() < 3; ++i) std::this_thread::sleep_for(milliseconds(10));
  ASSERT_EQ(parts(), 3);
  for (const int left : {0, 1, 2}) {
    submit = std::exchange(vkQueueSubmit, LostLater);  // opening a device sets it anew
    submissions_left = left;
    const std::vector<RequestResult> during = Ask(3);
    EXPECT_THAT(during[0].error, HasSubstr("the device is lost")) << "after " << left;
    EXPECT_EQ(during[2].error, "") << "after " << left;
    EXPECT_EQ(during[2].logprobs, before[0].logprobs) << "after " << left;
    EXPECT_EQ(during[2].cached_tokens, 128) << "after " << left;
  }
}

// Of an engine that computes prompts or of one that answers: their rooms end, and the next prompt's
// pages are handed over on what is opened again.
TEST_F(LostDevice, HandsPagesOverAgain) {
  if (engine_ == nullptr) return;
  const auto prompt = [](int i) { return std::vector<TokenId>(70, 20 + i); };
  const auto ask = [&](int i) { return Ask(1, prompt(i))[0]; };
  std::vector<std::vector<TokenLogprob>> want;
  for (int i = 0; i < 4; ++i) want.push_back(ask(i).logprobs);
  ASSERT_EQ(want[0].size(), 4u);
  EngineOptions options = Options();
  options.partners.emplace().side = handoff::Side::kPrefill;
  options.partners->listen = {"127.0.0.1", 0};
  const std::unique_ptr<Engine> prefill = Load(options);
  options.partners.emplace().prefills = {{"127.0.0.1", prefill->partners()->port()}};
  engine_ = Load(options);
  const auto until = [&](auto holds) {
    for (int i = 0; i < 12000 && !holds(); ++i) std::this_thread::sleep_for(milliseconds(10));
    return holds();
  };
  const auto stats = [&] { return engine_->partners()->stats(); };
  ASSERT_TRUE(until([&] { return stats().partners == 1; }));
  // The first submission is of a step that computes a prompt, the fifth is at the other engine.
  for (size_t i = 0; const int left : {0, 4}) {
    SCOPED_TRACE(left);
    submit = std::exchange(vkQueueSubmit, LostLater);
    submissions_left = left;
    const RequestResult during = ask(static_cast<int>(i));
    EXPECT_LT(submissions_left, 0);
    if (during.error.empty()) {
      EXPECT_EQ(during.logprobs, want[i]);
    } else {
      EXPECT_THAT(during.error, HasSubstr("the device is lost"));
    }
    // The other engine is left alone for a second after it has failed.
    std::this_thread::sleep_for(milliseconds(1500));
    const int64_t done = stats().done;
    const RequestResult after = ask(static_cast<int>(++i));
    EXPECT_EQ(after.error, "");
    EXPECT_EQ(after.logprobs, want[i++]);
    EXPECT_TRUE(until([&] { return stats().done == done + 1; }));
  }
}

TEST_F(LostDevice, FailsAStepWhoseDraftsAreLost) {
  ASSERT_TRUE(engine_->limits().draft_head);
  submit = std::exchange(vkQueueSubmit, LostLater);
  submissions_left = 1;
  const RequestResult lost = Ask(1)[0];
  EXPECT_LT(submissions_left, 0);
  EXPECT_EQ(lost.finish, FinishReason::kError);
  EXPECT_THAT(lost.error, HasSubstr("the device is lost"));
  EXPECT_EQ(lost.tokens.size(), 0u);
  const RequestResult after = Ask(1)[0];
  EXPECT_EQ(after.error, "");
  EXPECT_EQ(after.tokens.size(), 4u);
  EXPECT_EQ(after.cached_tokens, 0);
}

TEST_F(LostDevice, ThatIsGoneFailsRequestsByNameUntilItIsBack) {
  vkQueueSubmit = Lost;
  EXPECT_THAT(Ask(1)[0].error, HasSubstr("the device is lost"));
  ASSERT_EQ(::setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1), 0);
  ASSERT_EQ(::setenv("VK_DRIVER_FILES", "/nonexistent.json", 1), 0);
  for (int i = 0; i < 2; ++i) {
    const std::string error = Ask(1)[0].error;
    EXPECT_THAT(error, HasSubstr("vulkan:0 ("));
    EXPECT_THAT(error, HasSubstr("cannot be opened again: no Vulkan"));
  }
  ::unsetenv("VK_ICD_FILENAMES");
  ::unsetenv("VK_DRIVER_FILES");
  const std::vector<RequestResult> back = Ask(1);
  EXPECT_EQ(back[0].error, "");
  EXPECT_EQ(back[0].tokens.size(), 4u);
}

}  // namespace
}  // namespace braid
