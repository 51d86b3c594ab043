// What --isa, --compute and --kv-dtype come to on given CPUs.
#include "engine/engine_options.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

CpuFeatures Avx2Cpu() {
  CpuFeatures cpu;
  cpu.avx2 = true;
  for (int core = 0; core < 4; ++core) cpu.topology.cores.push_back({{core}});
  cpu.model_name = "test";
  return cpu;
}

CpuFeatures Bf16Cpu() {
  CpuFeatures cpu = Avx2Cpu();
  cpu.avx512 = cpu.avx512_bf16 = true;
  return cpu;
}

TEST(EngineOptions, AutoMultipliesInBf16OnlyWhereTheCpuDoes) {
  EXPECT_EQ(ResolveMachine({}, Avx2Cpu())->device.compute, Compute::kF32);
  EXPECT_EQ(ResolveMachine({}, Bf16Cpu())->device.compute, Compute::kBF16);
  EXPECT_EQ(ResolveMachine({.isa = "avx2"}, Bf16Cpu())->device.compute, Compute::kF32);
}

TEST(EngineOptions, KeysAndValuesFollowTheArithmetic) {
  EXPECT_EQ(ResolveMachine({.compute = "bf16"}, Avx2Cpu())->kv_dtype, DType::kBF16);
  EXPECT_EQ(ResolveMachine({.compute = "fp32"}, Bf16Cpu())->kv_dtype, DType::kF32);
  EXPECT_EQ(ResolveMachine({.compute = "fp32", .kv_dtype = "bf16"}, Avx2Cpu())->kv_dtype,
            DType::kBF16);
  EXPECT_EQ(ResolveMachine({.kv_dtype = "int8"}, Bf16Cpu())->kv_dtype, DType::kI8);
}

TEST(EngineOptions, StateIsFp32UnlessAskedFor) {
  EXPECT_EQ(ResolveMachine({.compute = "bf16"}, Bf16Cpu())->state_dtype, DType::kF32);
  EXPECT_EQ(ResolveMachine({.state_dtype = "bf16"}, Avx2Cpu())->state_dtype, DType::kBF16);
  EXPECT_EQ(ResolveMachine({.state_dtype = "int8"}, Avx2Cpu())->state_dtype, DType::kI8);
}

TEST(EngineOptions, RefusesAnInstructionSetThatTheCpuLacks) {
  const auto machine = ResolveMachine({.isa = "amx"}, Avx2Cpu());
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.error().message.find("at most avx2"), std::string::npos);
  EXPECT_EQ(ResolveMachine({.isa = "base"}, Avx2Cpu())->device.isa, Isa::kBase);
}

TEST(EngineOptions, ThreadsDefaultToPhysicalCores) {
  EXPECT_EQ(ResolveMachine({}, Avx2Cpu())->threads, 4);
  EXPECT_EQ(ResolveMachine({.threads = 3}, Avx2Cpu())->threads, 3);
  CpuFeatures limited = Avx2Cpu();
  limited.topology.quota_cpus = 1.5;
  EXPECT_EQ(ResolveMachine({}, limited)->threads, 1);
}

}  // namespace
}  // namespace braid
