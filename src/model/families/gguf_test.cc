// Which tensors of a file stand for weights of the model: the gate and up of experts are one
// tensor or lie apart; both ways give the same rows. The tests of the families cover the names of
// whole files.
#include "model/families/gguf.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/gguf_file.h"
#include "model/checkpoint/gguf_writer.h"
#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

std::vector<std::byte> RowsOfView(const GgufView& view) {
  std::vector<std::byte> bytes;
  for (const GgufView::Rows& rows : view.rows) {
    bytes.insert(bytes.end(), rows.first, rows.first + rows.count * view.row_bytes);
  }
  return bytes;
}

TEST(GgufNames, GateAndUpOfExpertsAreOneTensorOrTwo) {
  constexpr int64_t kExperts = 2, kWidth = 3, kHidden = 4;
  // Per expert the rows of gate, then those of up.
  const int64_t half = kWidth * kHidden;
  std::vector<float> both, gate, up;
  for (int64_t i = 0; i < kExperts * 2 * half; ++i) {
    const auto value = static_cast<float>(i);
    both.push_back(value);
    (i / half % 2 == 0 ? gate : up).push_back(value);
  }
  const GgufType* f32 = FindGgufType(0);
  const std::vector<GgufTensorPlan> plans = {
      {.name = "blk.0.ffn_gate_exps.weight", .type = f32, .shape = {kExperts, kWidth, kHidden}},
      {.name = "blk.0.ffn_up_exps.weight", .type = f32, .shape = {kExperts, kWidth, kHidden}},
      {.name = "blk.1.ffn_gate_up_exps.weight",
       .type = f32,
       .shape = {kExperts, 2 * kWidth, kHidden}}};
  const TestDirectory dir;
  const std::string path = dir.path() + "/m.gguf";
  {
    Result<GgufWriter> writer = GgufWriter::Create(path, {{"general.architecture", "x"}}, plans);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->Write(0, 0, std::as_bytes(std::span(gate))));
    ASSERT_TRUE(writer->Write(1, 0, std::as_bytes(std::span(up))));
    ASSERT_TRUE(writer->Write(2, 0, std::as_bytes(std::span(both))));
    ASSERT_TRUE(writer->Finish());
  }
  const Result<GgufFile> file = ReadGguf(path);
  ASSERT_TRUE(file) << file.error().message;

  MoeFfn moe;
  moe.experts = kExperts;
  moe.width = kWidth;
  GgufNames names(*file);
  MapExperts(moe, kHidden, "apart.", "blk.0.", names);
  MapExperts(moe, kHidden, "one.", "blk.1.", names);
  const Status finished = names.Finish();
  EXPECT_TRUE(finished) << finished.error().message;
  const std::span<const std::byte> expected = std::as_bytes(std::span(both));
  for (const char* module : {"apart.", "one."}) {
    const auto found = names.tensors.find(std::string(module) + "experts.gate_up_proj");
    ASSERT_NE(found, names.tensors.end()) << module;
    const TensorEntry& entry = found->second;
    EXPECT_EQ(entry.shape, (std::vector<int64_t>{kExperts, 2 * kWidth, kHidden})) << module;
    EXPECT_EQ(RowsOfView(*entry.view), std::vector(expected.begin(), expected.end())) << module;
  }
}

}  // namespace
}  // namespace braid
