// An engine of ranks that are threads, of which one hangs: for a while, which the others do not
// wait for, or for ever. A signal's handler holds the rank's thread in the middle of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "engine/generate.h"
#include "engine/output_queue.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Who holds a thread.
struct Hold {
  std::atomic<bool> holds = false, may_go = false;
};

void HoldHere(int, siginfo_t* info, void*) {
  auto* hold = static_cast<Hold*>(info->si_value.sival_ptr);
  hold->holds = true;
  while (!hold->may_go) ::usleep(1000);
}

int ThreadOf(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return std::stoi(task.path().filename());
  }
  return 0;
}

class HungRank : public ::testing::Test {
 protected:
  HungRank() {
    struct sigaction action = {};
    action.sa_sigaction = HoldHere;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigaction(SIGUSR1, &action, nullptr);
  }

  static std::unique_ptr<Engine> Load() {
    EngineOptions options;
    options.model_dir = BRAID_SOURCE_DIR "/models/braid-tiny";
    options.mesh = {.tp = 2};
    options.rank_seconds = 3;  // other work may keep a rank from its core for one
    options.threads = 2;
    options.cache_bytes = 64 << 20;
    options.context_tokens_max = 4096;
    options.scheduler.step_tokens_max = 64;
    options.scheduler.running_max = 2;
    auto engine = Engine::Load(options);
    CHECK(engine, "{}", engine.error().message);
    return *std::move(engine);
  }
  // Of many small steps.
  static Status Ask(Engine& engine, OutputQueue& queue) {
    Request request = RequestFor(engine, std::vector<TokenId>(2000, 11), {.max_tokens = 2000});
    request.stop.stop_tokens.clear();
    request.id = engine.driver().NewRequestId();
    return engine.driver().Submit(request, &queue);
  }
  static std::string ErrorOf(OutputQueue& queue) {
    while (true) {
      const TimedOutput output = queue.Next();
      if (output.output.finish) return output.output.error;
    }
  }
  // Rank 1, in its next step; the others give it up.
  std::string HoldRank(Engine& engine) {
    OutputQueue queue;
    CHECK(Ask(engine, queue).ok());
    std::this_thread::sleep_for(milliseconds(30));
    siginfo_t info = {};
    info.si_code = SI_QUEUE;
    info.si_value.sival_ptr = &hold_;
    const int thread = ThreadOf("braid-rank-1");
    CHECK(::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), thread, SIGUSR1, &info) == 0);
    return ErrorOf(queue);
  }

  Hold hold_;
};

TEST_F(HungRank, EndsTheEngineThoughItGoesOn) {
  const std::unique_ptr<Engine> engine = Load();
  EXPECT_THAT(HoldRank(*engine), HasSubstr("the group of ranks has ended: no word from rank 1"));
  ASSERT_TRUE(hold_.holds);
  hold_.may_go = true;
  for (int i = 0; i < 3000 && engine->group_status(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_FALSE(engine->group_status());
  EXPECT_THAT(engine->group_status().error().message, HasSubstr("no word from rank 1"));
  OutputQueue queue;
  const Status asked = Ask(*engine, queue);  // refused, or taken in the loop's last turn
  EXPECT_THAT(asked ? ErrorOf(queue) : asked.error().message, HasSubstr("no word from rank 1"));
}

TEST_F(HungRank, DoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [this] {
    std::unique_ptr<Engine> engine = Load();
    HoldRank(*engine);
    engine.reset();
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(1), "rank 1 does not end within 3 s of the others");
}

}  // namespace
}  // namespace braid
