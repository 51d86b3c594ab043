// What launchers say, in the variables that they set.
#include "comm/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <utility>

namespace braid {
namespace {

Result<Launch> Read(const std::map<std::string, std::string>& variables) {
  return ReadLaunch([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(Launch, IsOneProcessWithoutALauncher) {
  for (const auto& variables : {std::map<std::string, std::string>{},
                                {{"WORLD_SIZE", "1"}, {"RANK", "0"}},
                                {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}}) {
    const Result<Launch> launch = Read(variables);
    ASSERT_TRUE(launch);
    EXPECT_FALSE(launch->several());
    EXPECT_EQ(launch->ranks_here, 1);
  }
}

TEST(Launch, ReadsMpirun) {
  const Launch launch = *Read({{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"WORLD_SIZE", "9"}});
  EXPECT_TRUE(launch.mpi);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.ranks_here, 2);
}

TEST(Launch, TheFirstRankOfMpirunIsRankZero) {
  const Result<Launch> launch =
      Read({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->rank, 0);
}

TEST(Launch, ReadsSlurm) {
  std::map<std::string, std::string> variables = {{"SLURM_PROCID", "5"},
                                                  {"SLURM_STEP_NUM_TASKS", "9"},
                                                  {"SLURM_STEP_NODELIST", "cn[03-04,7]"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"},
                                                  {"SLURM_NODEID", "1"},
                                                  {"SLURM_JOB_ID", "40005"}};
  Launch launch = *Read(variables);
  EXPECT_FALSE(launch.mpi);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.ranks, 9);
  EXPECT_EQ(launch.host, "cn03");
  EXPECT_EQ(launch.ranks_here, 4);
  EXPECT_EQ(launch.port, 29516);
  variables["SLURM_NODEID"] = "2";
  variables["SLURM_STEP_NODELIST"] = "alpha,beta[1-3]";
  launch = *Read(variables);
  EXPECT_EQ(launch.ranks_here, 1);
  EXPECT_EQ(launch.host, "alpha");
  variables["SLURM_STEP_TASKS_PER_NODE"] = "5,4";
  variables["SLURM_NODEID"] = "0";
  EXPECT_EQ(Read(variables)->ranks_here, 5);
}

TEST(Launch, ReadsTorchrunAndLeavesItsPortAlone) {
  const Launch launch = *Read({{"RANK", "1"},
                               {"WORLD_SIZE", "2"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "10.0.0.7"},
                               {"MASTER_PORT", "29500"}});
  EXPECT_EQ(launch.by, "torchrun");
  EXPECT_EQ(launch.host, "10.0.0.7");
  EXPECT_EQ(launch.port, 29501);
  EXPECT_EQ(launch.ranks_here, 2);
}

TEST(Launch, ReadsLeaderWorkerSetAndAPortThatIsChosen) {
  const Launch launch = *Read({{"LWS_WORKER_INDEX", "1"},
                               {"LWS_GROUP_SIZE", "4"},
                               {"LWS_LEADER_ADDRESS", "braid-0.braid.default"},
                               {"BRAID_RANKS_PORT", "7001"}});
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.host, "braid-0.braid.default");
  EXPECT_EQ(launch.port, 7001);
}

TEST(Launch, RefusesWhatMakesNoSense) {
  EXPECT_EQ(Read({{"WORLD_SIZE", "two"}}).error().message,
            "WORLD_SIZE=two: expected a number from 1 to 2147483647");
  EXPECT_EQ(Read({{"WORLD_SIZE", "2"}}).error().message,
            "torchrun has started several processes and MASTER_ADDR is not set: the address of "
            "rank 0");
  EXPECT_EQ(Read({{"WORLD_SIZE", "2"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}}).error().message,
            "torchrun says that this is rank 2 of 2");
}

TEST(Launch, RefusesNumbersThatAreNone) {
  for (const char* ranks : {"0", "-2", "2x", "", "99999999999"}) {
    const Result<Launch> launch = Read({{"WORLD_SIZE", ranks}, {"MASTER_ADDR", "a"}});
    ASSERT_FALSE(launch) << ranks;
    EXPECT_EQ(launch.error().code, ErrorCode::kInvalid);
  }
  EXPECT_EQ(Read({{"BRAID_RANKS_PORT", "70000"}}).error().message,
            "BRAID_RANKS_PORT=70000: expected a number from 1 to 65535");
  EXPECT_FALSE(Read({{"BRAID_RANKS_PORT", "0"}}));
  EXPECT_EQ(Read({{"BRAID_RANKS_PORT", "65535"}})->port, 65535);
  // Ranks listen at the port behind it.
  const auto torchrun = [](const char* port) {
    return Read({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", port}});
  };
  EXPECT_EQ(torchrun("65534")->port, 65535);
  EXPECT_FALSE(torchrun("65535"));
}

TEST(Launch, AnAddressThatIsEmptyOrMissingIsAnError) {
  EXPECT_FALSE(Read({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", ""}}));
  EXPECT_EQ(Read({{"SLURM_STEP_NUM_TASKS", "2"}}).error().message,
            "Slurm has started several processes and SLURM_STEP_NODELIST is not set: the address "
            "of rank 0");
  EXPECT_FALSE(Read({{"LWS_GROUP_SIZE", "2"}}));
}

TEST(Launch, WhatALauncherDoesNotSayIsAsIfItStartedOneProcessHere) {
  const Launch torchrun = *Read({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}});
  EXPECT_TRUE(torchrun.several());
  EXPECT_EQ(torchrun.rank, 0);
  EXPECT_EQ(torchrun.ranks_here, 1);
  EXPECT_EQ(torchrun.port, 29511);
  const Launch slurm = *Read({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "a"}});
  EXPECT_EQ(slurm.rank, 0);
  EXPECT_EQ(slurm.ranks_here, 1);
  EXPECT_EQ(slurm.port, 29511);
  EXPECT_EQ(Read({{"SLURM_STEP_NUM_TASKS", "9"},
                  {"SLURM_STEP_NODELIST", "a,b"},
                  {"SLURM_STEP_TASKS_PER_NODE", "5,4"}})
                ->ranks_here,
            5);
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_SIZE", "2"}})->ranks_here, 1);
  const Launch set = *Read({{"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", "a"}});
  EXPECT_EQ(set.rank, 0);
  EXPECT_EQ(set.ranks_here, 1);
  EXPECT_EQ(set.port, 29511);
}

TEST(Launch, TheFirstHostAndTheTasksOfANodeAreThoseOfSlurmsLists) {
  const auto read = [](const char* hosts, const char* tasks, const char* node) {
    const Launch launch = *Read({{"SLURM_STEP_NUM_TASKS", "20"},
                                 {"SLURM_STEP_NODELIST", hosts},
                                 {"SLURM_STEP_TASKS_PER_NODE", tasks},
                                 {"SLURM_NODEID", node},
                                 {"SLURM_JOB_ID", "20000"}});
    EXPECT_EQ(launch.port, 29511);
    return std::pair(launch.host, launch.ranks_here);
  };
  using Pair = std::pair<std::string, int32_t>;
  EXPECT_EQ(read("n1", "3", "0"), Pair("n1", 3));
  EXPECT_EQ(read("n[7]", "5,4,3", "1"), Pair("n7", 4));
  EXPECT_EQ(read("n[11,13-15],m", "5(x2),4,3(x12)", "2"), Pair("n11", 4));
  EXPECT_EQ(read("n1,n2", "5(x2),4,3(x12)", "14"), Pair("n1", 3));
  EXPECT_EQ(read("n[01-02]-ib,m", "2", "0"), Pair("n01-ib", 2));
  EXPECT_EQ(read("rack[3,5-7]node[08-11].a", "2", "0"), Pair("rack3node08.a", 2));
  EXPECT_EQ(read("a[1-2]", "4,2", "9"), Pair("a1", 2)) << "more nodes than are listed";
  EXPECT_EQ(read("n1", "0", "0"), Pair("n1", 1));
}

TEST(Launch, OfThisProcessIsReadFromItsEnvironment) {
  ::setenv("BRAID_RANKS_PORT", "7002", 1);
  EXPECT_EQ(LaunchHere().port, 7002);
  ::unsetenv("BRAID_RANKS_PORT");
  EXPECT_EQ(LaunchHere().port, 7002) << "it is read once";
}

TEST(Launch, OfSeveralErrorsTheFirstIsTold) {
  EXPECT_EQ(Read({{"WORLD_SIZE", "2"}, {"RANK", "x"}, {"LOCAL_WORLD_SIZE", "y"}}).error().message,
            "RANK=x: expected a number from 0 to 2147483647");
}

}  // namespace
}  // namespace braid
