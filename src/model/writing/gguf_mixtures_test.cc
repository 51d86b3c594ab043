// The mixtures by their rules in numbers: of models of 40 blocks, 256 experts and eight query heads
// a key head, and of others.
#include "model/writing/gguf_mixtures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace braid {
namespace {

// Blocks like those of Qwen3.5: every fourth has full attention.
std::vector<GgufTensorSizes> Tensors(int64_t blocks, int64_t width = 512) {
  std::vector<GgufTensorSizes> tensors = {{"token_embd.weight", {4096, 2048}},
                                          {"output_norm.weight", {2048}},
                                          {"output.weight", {4096, 2048}}};
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string base = "blk." + std::to_string(i) + ".";
    tensors.push_back({base + "attn_norm.weight", {2048}});
    if (i % 4 == 3) {
      tensors.push_back({base + "attn_q.weight", {8192, 2048}});
      tensors.push_back({base + "attn_k.weight", {512, 2048}});
      tensors.push_back({base + "attn_v.weight", {512, 2048}});
      tensors.push_back({base + "attn_output.weight", {2048, 4096}});
    } else {
      tensors.push_back({base + "attn_qkv.weight", {8192, 2048}});
      tensors.push_back({base + "ssm_conv1d.weight", {8192, 4}});
      tensors.push_back({base + "ssm_a", {32}});
      tensors.push_back({base + "ssm_out.weight", {2048, 4096}});
    }
    tensors.push_back({base + "ffn_gate_inp.weight", {256, 2048}});
    tensors.push_back({base + "ffn_gate_inp_shexp.weight", {1, 2048}});
    tensors.push_back({base + "ffn_up_exps.weight", {256, width, 2048}});
    tensors.push_back({base + "ffn_down_exps.weight", {256, 2048, width}});
  }
  return tensors;
}

std::map<std::string, std::string> TypesOf(std::string_view mixture, const GgufModelSizes& model,
                                           const std::vector<GgufTensorSizes>& tensors) {
  const std::vector<const GgufType*> types = GgufTypesOf(*FindGgufMixture(mixture), model, tensors);
  std::map<std::string, std::string> named;
  for (size_t i = 0; i < tensors.size(); ++i) named[tensors[i].name] = types[i]->name;
  return named;
}

constexpr GgufModelSizes kLarge = {.blocks = 40, .experts = 256, .heads_per_kv_head = 8};

// The numbers of the blocks whose tensor has a type.
std::vector<int> BlocksWith(const std::map<std::string, std::string>& types,
                            std::string_view tensor, std::string_view type) {
  std::vector<int> blocks;
  for (int i = 0; i < 40; ++i) {
    const auto at = types.find("blk." + std::to_string(i) + "." + std::string(tensor));
    if (at != types.end() && at->second == type) blocks.push_back(i);
  }
  return blocks;
}

TEST(GgufMixtures, Q4KMGivesMoreBitsToTheEndsAndToEveryThirdBlockBetween) {
  const auto types = TypesOf("q4_k_m", kLarge, Tensors(40));
  // Of 40 blocks the first five, the last five, and those at a distance from the fifth that leaves
  // two over three.
  const std::vector<int> expected = {0,  1,  2,  3,  4,  7,  10, 13, 16, 19,
                                     22, 25, 28, 31, 34, 35, 36, 37, 38, 39};
  EXPECT_EQ(BlocksWith(types, "ffn_down_exps.weight", "Q6_K"), expected);
  EXPECT_EQ(BlocksWith(types, "ffn_down_exps.weight", "Q4_K").size(), 20u);
  // Every block has a tensor of values, under one of two names.
  std::vector<int> values = BlocksWith(types, "attn_v.weight", "Q6_K");
  for (int block : BlocksWith(types, "attn_qkv.weight", "Q6_K")) values.push_back(block);
  std::ranges::sort(values);
  EXPECT_EQ(values, expected);
  EXPECT_EQ(types.at("output.weight"), "Q6_K");
  EXPECT_EQ(types.at("token_embd.weight"), "Q4_K");
  EXPECT_EQ(BlocksWith(types, "ffn_up_exps.weight", "Q4_K").size(), 40u);
  EXPECT_EQ(BlocksWith(types, "attn_output.weight", "Q4_K").size(), 10u);
}

TEST(GgufMixtures, ValuesAreCountedAndNotNumberedByBlocks) {
  // Only every fourth block has values: of the ten the first, the last two and the fourth, seventh.
  std::vector<GgufTensorSizes> tensors = Tensors(40);
  std::erase_if(tensors, [](const GgufTensorSizes& tensor) {
    return tensor.name.find("attn_qkv") != std::string::npos;
  });
  const auto types = TypesOf("q4_k_m", kLarge, tensors);
  EXPECT_EQ(BlocksWith(types, "attn_v.weight", "Q6_K"), (std::vector<int>{3, 15, 27, 35, 39}));
}

TEST(GgufMixtures, PlainTensorsStayPlain) {
  for (const GgufMixture& mixture : GgufMixtures()) {
    const auto types = TypesOf(mixture.name, kLarge, Tensors(4));
    for (const char* name :
         {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ssm_a", "blk.0.ssm_conv1d.weight",
          "blk.3.ffn_gate_inp.weight", "blk.3.ffn_gate_inp_shexp.weight"}) {
      EXPECT_EQ(types.at(name), "F32") << mixture.name << " " << name;
    }
  }
}

TEST(GgufMixtures, HaveTheTypesOfTheQuantiser) {
  struct Case {
    const char *mixture, *tensor, *type;
  };
  const Case kCases[] = {
      {"q4_0", "output.weight", "Q6_K"},
      {"q4_0", "blk.0.ffn_down_exps.weight", "Q4_0"},
      {"q8_0", "output.weight", "Q8_0"},
      {"q8_0", "blk.0.attn_qkv.weight", "Q8_0"},
      {"q2_k", "blk.3.attn_v.weight", "Q4_K"},  // eight heads share them
      {"q2_k", "blk.9.ffn_down_exps.weight", "Q3_K"},
      {"q2_k", "blk.3.attn_output.weight", "Q3_K"},
      {"q2_k", "blk.3.attn_q.weight", "Q2_K"},
      {"q3_k_s", "blk.3.attn_v.weight", "Q3_K"},
      {"q3_k_m", "blk.0.attn_qkv.weight", "Q5_K"},
      {"q3_k_m", "blk.2.attn_qkv.weight", "Q4_K"},
      {"q3_k_m", "blk.1.ffn_down_exps.weight", "Q5_K"},
      {"q3_k_m", "blk.2.ffn_down_exps.weight", "Q4_K"},
      {"q3_k_m", "blk.3.attn_output.weight", "Q4_K"},
      {"q3_k_l", "blk.9.ffn_down_exps.weight", "Q5_K"},
      {"q3_k_l", "blk.3.attn_output.weight", "Q5_K"},
      {"q4_k_s", "blk.3.attn_v.weight", "Q5_K"},
      {"q4_k_s", "blk.4.attn_qkv.weight", "Q4_K"},
      {"q4_k_s", "blk.4.ffn_down_exps.weight", "Q5_K"},
      {"q4_k_s", "blk.5.ffn_down_exps.weight", "Q4_K"},
      {"q5_k_s", "blk.0.ffn_down_exps.weight", "Q5_K"},
      {"q5_k_m", "blk.0.ffn_down_exps.weight", "Q6_K"},
      {"q5_k_m", "blk.5.ffn_down_exps.weight", "Q5_K"},
      {"q6_k", "blk.5.ffn_down_exps.weight", "Q6_K"},
      {"iq4_xs", "blk.9.attn_qkv.weight", "Q5_K"},
      {"iq4_xs", "blk.4.ffn_down_exps.weight", "Q5_K"},
      {"iq4_xs", "blk.5.ffn_down_exps.weight", "IQ4_XS"},
      {"iq4_nl", "blk.3.attn_q.weight", "IQ4_NL"},
      {"mxfp4_moe", "blk.3.attn_q.weight", "Q8_0"},
      {"mxfp4_moe", "blk.3.ffn_up_exps.weight", "MXFP4"},
      {"mxfp4_moe", "output.weight", "Q8_0"},
      {"gguf_bf16", "output.weight", "BF16"},
      {"gguf_f16", "output.weight", "F16"},
  };
  for (const Case& one : kCases) {
    EXPECT_EQ(TypesOf(one.mixture, kLarge, Tensors(40)).at(one.tensor), one.type)
        << one.mixture << " " << one.tensor;
  }
}

TEST(GgufMixtures, EightExpertsAndTiedHeadsHaveRulesOfTheirOwn) {
  const auto eight = TypesOf("q4_k_m", {.blocks = 40, .experts = 8}, Tensors(40));
  EXPECT_EQ(eight.at("blk.3.attn_v.weight"), "Q8_0");
  EXPECT_EQ(eight.at("blk.3.attn_k.weight"), "Q8_0");
  EXPECT_EQ(eight.at("blk.3.attn_output.weight"), "Q5_K");
  const auto tied = TypesOf("q4_k_m", {.blocks = 40, .experts = 256, .tied = true}, Tensors(40));
  EXPECT_EQ(tied.at("token_embd.weight"), "Q6_K");
}

TEST(GgufMixtures, RowsThatBlocksDoNotDivideTakeNarrowerBlocks) {
  const struct {
    const char *mixture, *by_32, *by_none;
  } kCases[] = {{"q4_k_m", "Q8_0", "F16"}, {"q5_k_s", "Q5_1", "F16"}, {"q4_k_s", "Q5_1", "F16"},
                {"q3_k_s", "Q4_0", "F16"}, {"iq4_xs", "Q5_1", "F16"}, {"q8_0", "Q8_0", "F16"}};
  for (const auto& one : kCases) {
    const char* down = "blk.0.ffn_down_exps.weight";
    EXPECT_EQ(TypesOf(one.mixture, kLarge, Tensors(40, 160)).at(down), one.by_32) << one.mixture;
    EXPECT_EQ(TypesOf(one.mixture, kLarge, Tensors(40, 72)).at(down), one.by_none) << one.mixture;
  }
}

TEST(GgufMixtures, AreFoundByName) {
  EXPECT_EQ(FindGgufMixture("q4_k"), nullptr);
  for (const GgufMixture& mixture : GgufMixtures()) {
    EXPECT_EQ(FindGgufMixture(mixture.name), &mixture);
  }
}

}  // namespace
}  // namespace braid
