// The cases of `braid bench ops`: one op with the shapes of the mid model, its data, and what it
// costs at least. Families stand in ops_<kind>.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cli/bench/machine_limits.h"
#include "engine/engine_options.h"
#include "model/spec.h"
#include "ops/attention.h"
#include "ops/linear_attention.h"
#include "ops/op.h"
#include "ops/packed.h"

namespace braid {

class BenchDevice;  // cli/bench/bench_device.h

// The data of one case.
class OpRun {
 public:
  virtual ~OpRun() = default;
  // One execution. Data that must come from memory differs from one `turn` to the next: together
  // it is kColdBytes, more than the caches hold.
  virtual void Run(const ops::OpContext& context, int64_t turn) = 0;
  // Nanoseconds of the last Run that are the case's, where not all are; else below 0.
  virtual double counted_ns() const { return -1; }
  // The data to a device, where Run records from then on; false: the case is the CPU's alone.
  virtual bool Move(BenchDevice&) { return false; }
};
inline constexpr int64_t kColdBytes = int64_t{256} << 20;
inline constexpr int64_t kMidHidden = 2048;  // hidden size of the mid model

// What bounds a case besides the arithmetic.
enum class Source : uint8_t { kMemory, kCaches };

struct OpCase {
  std::string_view family;
  std::string name;
  // Format that its arithmetic is for; fp32 if it is fp32 whatever the weights are.
  ops::WeightFormat weights = ops::WeightFormat::kF32;
  double flops = 0;
  double bytes = 0;  // read or written at least once
  Source source = Source::kMemory;
  std::string_view part = "";  // of a forecast that this case stands for; empty: none
  bool of_format = false;      // the part's weights are in the format of --weights
  std::function<std::unique_ptr<OpRun>()> make;
};

// `sequences` sequences with `context` tokens behind them compute `tokens` more each. What is read
// from memory differs from turn to turn until it is `cold_bytes`; likewise below.
struct BenchStep {
  int64_t sequences, context, tokens;
  int64_t cold_bytes = kColdBytes;
  int64_t rows() const { return sequences * tokens; }
  std::string Text() const;
};
struct LinearShape {
  int64_t rows, n, k;
  ops::WeightFormat format;
  bool exact;
  int64_t copies = 0;  // of the weights, which take turns; 0: as many as are kColdBytes
};
struct ExpertsShape {
  int64_t hidden, experts, top_k, width, shared_width;
  int64_t cold_bytes = kColdBytes;
};
std::unique_ptr<OpRun> MakeLinearRun(const LinearShape& shape);
std::unique_ptr<OpRun> MakeExpertsRun(const ExpertsShape& shape, ops::WeightFormat format,
                                      int64_t rows);
// What a layer does to queries, keys and values before attention and to its results, besides
// products: none of it where there is no layer.
struct AttentionRows {
  bool of_layer = false;
  bool gated = false;  // results, by numbers behind each head's query
  int32_t rotary_pairs = 0;
};
void AddAttention(std::vector<OpCase>& cases, const ops::AttentionShape& shape, BenchStep step,
                  AttentionRows rows = {});
std::unique_ptr<OpRun> MakeConvRun(const ops::LinearAttentionShape& shape, const BenchStep& step);
std::unique_ptr<OpRun> MakeNormRun(int64_t rows, int64_t cols);
std::unique_ptr<OpRun> MakeGatedNormRun(int64_t rows, int64_t cols, int64_t head_dim);
std::unique_ptr<OpRun> MakeRouteRun(int64_t rows, int64_t experts, int64_t top_k);
std::unique_ptr<OpRun> MakeScalarGateRun(int64_t rows, int64_t hidden);
std::unique_ptr<OpRun> MakeSwigluRun(int64_t rows, int64_t width);
std::unique_ptr<OpRun> MakeEmbedRun(int64_t rows, int64_t vocabulary, int64_t hidden);
// As the executor chooses tokens: of each row all is summed, then the best one found.
std::unique_ptr<OpRun> MakeGreedyRun(int64_t rows, int64_t vocabulary);
void AddLinearAttention(std::vector<OpCase>& cases, const ops::LinearAttentionShape& shape,
                        const ops::LinearAttentionRule& rule, BenchStep step);

// What a forecast of the model is made of: each of its parts with the model's own shapes.
void AddModelCases(const ModelSpec& spec, const Machine& machine, ops::WeightFormat weights,
                   std::vector<OpCase>& cases);
void AddGemmCases(ops::WeightFormat weights, std::vector<OpCase>& cases);
void AddMixerCases(const Machine& machine, std::vector<OpCase>& cases);
void AddRowCases(std::vector<OpCase>& cases);
void AddPoolCases(int threads, std::vector<OpCase>& cases);

// A matrix with its memory, random values of about unit size.
struct BenchMatrix {
  BenchMatrix(int64_t rows, int64_t cols);
  void Move(BenchDevice& device);
  Buffer memory;
  Matrix view;
};

// `count` packed matrices [n, k]. Their panels are random, all the same.
struct BenchWeights {
  BenchWeights(ops::WeightFormat format, int64_t count, int64_t n, int64_t k);
  ops::PackedMatrix one(int64_t matrix) const;  // a single one of them
  void Move(BenchDevice& device);
  ops::PackedMatrix all;
  Buffer memory;
};

// How many copies of something make `cold`: at least 1, at most 4096.
int64_t ColdCopies(int64_t bytes, int64_t cold = kColdBytes);
// "1 row", "8 rows"
std::string Rows(int64_t rows);

}  // namespace braid
