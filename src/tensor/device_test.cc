// The instruction set that a CPU's features allow, and the features that a device may use.
#include "tensor/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace braid {
namespace {

CpuFeatures Everything() {
  CpuFeatures f;
  f.avx2 = f.avx512 = f.avx512_bf16 = f.avx512_vnni = f.avx512_vbmi = f.avx_vnni = true;
  f.amx_bf16 = f.amx_int8 = true;
  return f;
}

// The best set without one of the features.
Isa Without(bool CpuFeatures::* feature) {
  CpuFeatures f = Everything();
  f.*feature = false;
  return BestIsa(f);
}

TEST(Device, EachInstructionSetNeedsAllOfItsFeatures) {
  EXPECT_EQ(BestIsa(Everything()), Isa::kAmx);
  for (auto feature : {&CpuFeatures::amx_bf16, &CpuFeatures::amx_int8, &CpuFeatures::avx512_bf16,
                       &CpuFeatures::avx512_vnni}) {
    EXPECT_EQ(Without(feature), Isa::kAvx512);
  }
  CpuFeatures f;
  EXPECT_EQ(BestIsa(f), Isa::kBase);
  f.avx2 = true;
  EXPECT_EQ(BestIsa(f), Isa::kAvx2);
  f.avx512 = true;
  EXPECT_EQ(BestIsa(f), Isa::kAvx512);
}

TEST(Device, NothingAboveItsInstructionSetIsUsed) {
  const Device base = DeviceOf(Everything(), Isa::kBase, Compute::kF32);
  EXPECT_FALSE(base.avx_vnni || base.avx512_bf16 || base.avx512_vnni || base.avx512_vbmi);
  const Device avx2 = DeviceOf(Everything(), Isa::kAvx2, Compute::kBF16);
  EXPECT_TRUE(avx2.avx_vnni);
  EXPECT_FALSE(avx2.avx512_bf16 || avx2.avx512_vnni || avx2.avx512_vbmi);
  EXPECT_EQ(avx2.isa, Isa::kAvx2);
  EXPECT_EQ(avx2.compute, Compute::kBF16);
  for (const Isa isa : {Isa::kAvx512, Isa::kAmx}) {
    const Device all = DeviceOf(Everything(), isa, Compute::kF32);
    EXPECT_TRUE(all.avx_vnni && all.avx512_bf16 && all.avx512_vnni && all.avx512_vbmi);
    const Device none = DeviceOf(CpuFeatures{}, isa, Compute::kF32);
    EXPECT_FALSE(none.avx_vnni || none.avx512_bf16 || none.avx512_vnni || none.avx512_vbmi);
  }
}

TEST(Device, InstructionSetsAreReadByTheNamesTheyAreToldBy) {
  for (const Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    ASSERT_TRUE(ParseIsa(NameOf(isa)).ok());
    EXPECT_EQ(*ParseIsa(NameOf(isa)), isa);
  }
  EXPECT_THAT(ParseIsa("sse").error().message, ::testing::HasSubstr("unknown ISA \"sse\""));
  EXPECT_FALSE(ParseIsa("").ok());
}

CpuFeatures FeaturesOf(const std::string& cpuinfo) {
  std::istringstream text(cpuinfo);
  CpuFeatures features;
  ReadCpuinfo(text, features);
  return features;
}

TEST(Device, CpuinfoNamesTheModelAndWholeWordsOfItsFlagsAreFeatures) {
  const CpuFeatures all = FeaturesOf(
      "processor\t: 0\nbroken line\nempty:\nmodel name\t: A CPU: of its kind\n"
      "flags\t\t: amx_bf16 fpu avx_vnni avx512f amx_int8\nmodel name\t: another\n");
  EXPECT_EQ(all.model_name, "A CPU: of its kind");
  EXPECT_TRUE(all.amx_bf16 && all.avx_vnni && all.amx_int8);
  for (const char* flag : {"avx_vnni", "amx_bf16", "amx_int8"}) {
    const CpuFeatures one = FeaturesOf(std::string("flags\t: fpu ") + flag + "\n");
    EXPECT_EQ(one.avx_vnni, flag == std::string("avx_vnni"));
    EXPECT_EQ(one.amx_bf16, flag == std::string("amx_bf16"));
    EXPECT_EQ(one.amx_int8, flag == std::string("amx_int8"));
  }
  const CpuFeatures none = FeaturesOf(
      "flags\t: avx_vnni_int8 xamx_bf16 amx_int8x\nflags\t: avx_vnni amx_bf16 amx_int8\n");
  EXPECT_FALSE(none.avx_vnni || none.amx_bf16 || none.amx_int8);
  EXPECT_EQ(none.model_name, "");
}

TEST(Device, TheFeaturesOfThisMachineAgreeWithEachOther) {
  const CpuFeatures f = DetectCpu();
  std::ifstream cpuinfo("/proc/cpuinfo");
  CpuFeatures read;
  ReadCpuinfo(cpuinfo, read);
  EXPECT_EQ(f.model_name, read.model_name);
  EXPECT_EQ(f.avx_vnni, read.avx_vnni);
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_TRUE(f.avx512 || !(f.avx512_bf16 || f.avx512_vnni || f.avx512_vbmi));
  EXPECT_TRUE(RequestAmx() || !(f.amx_bf16 || f.amx_int8));
  EXPECT_FALSE(f.topology.cores.empty());
}

}  // namespace
}  // namespace braid
