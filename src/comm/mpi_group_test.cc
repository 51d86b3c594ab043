// Ranks as processes of this program that mpirun starts: MpiProcesses starts them, and MpiRank is
// what each of them does.
#include "comm/mpi_group.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "comm/test_collectives.h"

namespace braid {
namespace {

using std::chrono::milliseconds;

// Two groups of the same ranks, whose calls begin in another order on each of them.
Status CheckCrossing(Communicator& all) {
  if (all.rank() == 1) return {};
  const auto one = MpiGroupOf(all, {0, 2}, 1), other = MpiGroupOf(all, {0, 2}, 2, true);
  const milliseconds late[] = {milliseconds(all.rank() == 0 ? 0 : 50),
                               milliseconds(all.rank() == 0 ? 50 : 0)};
  Status of_one;
  std::thread thread([&] {
    std::this_thread::sleep_for(late[0]);
    of_one = CheckGather(*one, 64);
  });
  std::this_thread::sleep_for(late[1]);
  const Status of_other = CheckGather(*other, 128);
  thread.join();
  return of_one ? of_other : of_one;
}

// A group that has not all ranks, with numbers of its own.
Status CheckPair(Communicator& all) {
  if (all.rank() == 0) return {};
  const auto pair = MpiGroupOf(all, {1, 2}, 3);
  if (pair->rank() != all.rank() - 1 || pair->size() != 2) return Differs("number in the group");
  RETURN_IF_ERROR(CheckAllToAll(*pair));
  return CheckSums(*pair, 5);
}

// Both calls have to fail with the same message, which has `part`.
Status CheckFails(Communicator& first, Communicator& second, size_t bytes, std::string_view part) {
  std::vector<std::byte> mine(bytes), all(bytes * static_cast<size_t>(first.size()));
  const Status failed = first.AllGather(mine, all);
  const Status again = second.Barrier();
  if (failed || again) return Differs("no error");
  if (failed.error().message != again.error().message) return Differs("another error");
  return failed.error().message.find(part) != std::string::npos ? Status() : failed;
}

Status PlayRole(Communicator& all, std::string_view role) {
  if (role == "all") {
    RETURN_IF_ERROR(CheckAll(all));
    RETURN_IF_ERROR(CheckPair(all));
    return CheckCrossing(all);
  }
  RETURN_IF_ERROR(all.Barrier());
  if (role == "leaves") {
    // The others are in a pair with rank 1 each; their messages are so long that it has to come.
    if (all.rank() == 1) {
      std::this_thread::sleep_for(3 * kShort);
      return {};
    }
    const auto pair = all.rank() == 0 ? MpiGroupOf(all, {0, 1}, 1) : MpiGroupOf(all, {1, 2}, 2);
    return CheckFails(*pair, all, 1'000'000, "no word from rank 1 within 1000 ms");
  }
  // Rank 1 expects less than rank 0 sends, rank 2 more.
  constexpr size_t kBytes[] = {8, 7, 9};
  std::vector<std::byte> data(kBytes[all.rank()]);
  const Status status = all.Broadcast(0, data);
  if (all.rank() == 0) return {};
  if (status) return Differs("no error");
  const char* const part =
      all.rank() == 1 ? "rank 0: " : "rank 0 sent 8 bytes to rank 2, which expected 9";
  const Status again = all.Barrier();
  const bool told = status.error().message.find(part) == 0 && !again &&
                    again.error().message == status.error().message;
  return told ? Status() : status;
}

TEST(MpiRank, PlaysItsRole) {
  const char* role = std::getenv("BRAID_TEST_MPI_ROLE");
  if (role == nullptr) GTEST_SKIP() << "only under mpirun";
  const bool waits = std::string_view(role) == "leaves";
  auto all = JoinMpiGroup(waits ? kShort : kLong);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ((*all)->size(), 3);
  const Status status = PlayRole(**all, role);
  EXPECT_TRUE(status) << status.error().message;
  if (status) std::puts("as it should be");
  if (std::string_view(role) == "all") return;
  // A group that has ended is left without ceremony: mpirun then ends every rank. So this one waits
  // until the others have spoken.
  std::fflush(stdout);
  std::this_thread::sleep_for(5 * kShort);
  std::_Exit(0);
}

struct Ended {
  int status = -1;
  std::string output;
};

// Three processes of this program under mpirun, each with the role; what they print and how mpirun
// ends. No status: there is no mpirun.
Ended RunRole(const char* role) {
  ::setenv("BRAID_TEST_MPI_ROLE", role, 1);
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, pipe[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, pipe[1], STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  std::vector<std::string> words = {"mpirun",
                                    "--allow-run-as-root",
                                    "--oversubscribe",
                                    "--timeout",  // seconds, after which it ends all of them
                                    "120",
                                    "-n",
                                    "3",
                                    std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "--gtest_brief=1",
                                    "--gtest_filter=MpiRank.*"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = -1;
  const int failed = ::posix_spawnp(&process, "mpirun", &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(pipe[1]);
  Ended ended;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::read(pipe[0], bytes, sizeof(bytes))) > 0;) {
    ended.output.append(bytes, static_cast<size_t>(got));
  }
  ::close(pipe[0]);
  ::unsetenv("BRAID_TEST_MPI_ROLE");
  if (failed == 0) ::waitpid(process, &ended.status, 0);
  return ended;
}

int TimesSaid(const std::string& output) {
  constexpr std::string_view kSaid = "as it should be";
  int times = 0;
  for (size_t at = 0; (at = output.find(kSaid, at)) != std::string::npos; at += kSaid.size()) {
    ++times;
  }
  return times;
}

TEST(MpiProcesses, GroupsGiveEveryRankTheSame) {
  const Ended ended = RunRole("all");
  if (ended.status == -1) GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)";
  EXPECT_EQ(TimesSaid(ended.output), 3) << ended.output;
  EXPECT_EQ(ended.output.find("exiting improperly"), std::string::npos) << "they leave the group";
}

// mpirun fails where a rank leaves a group that has ended, so what the ranks print decides.
TEST(MpiProcesses, ARankThatDoesNotComeIsNamedToAllAndEndsTheirGroups) {
  const Ended ended = RunRole("leaves");
  if (ended.status == -1) GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)";
  EXPECT_EQ(TimesSaid(ended.output), 3) << ended.output;
}

TEST(MpiProcesses, SizesThatDisagreeAreAnErrorThatNamesThem) {
  const Ended ended = RunRole("sizes");
  if (ended.status == -1) GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)";
  EXPECT_EQ(TimesSaid(ended.output), 3) << ended.output;
}

}  // namespace
}  // namespace braid
