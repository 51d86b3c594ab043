// Random numbers for weights, scaled so that the model behaves like a trained one. Values are
// quantiles looked up by 16 random bits, a function of (seed, tensor, index): threads, shards and
// formats do not change them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint/safetensors_writer.h"
#include "model/spec.h"

namespace braid {

struct Draw {
  double mean = 0;
  double deviation = 1;  // of a normal draw; half the width of a uniform one
  bool uniform = false;
  DType dtype = DType::kBF16;  // of the tensor where it is not quantised
};
// The normal distribution's quantile of p in (0, 1), within [-6, 6].
double NormalQuantile(double p);

// By the tensor's name and shape.
Draw DrawOf(const TensorPlan& tensor, const ModelSpec& spec);

class RandomWeights {
 public:
  // `given`, by the tensor's name: all elements of tensors that are not random.
  RandomWeights(const ModelSpec& spec, uint64_t seed,
                std::map<std::string, std::vector<float>> given = {});

  // Elements [begin, begin + count) of a tensor, each a bf16 number; `begin` is a multiple of 4.
  void Fill(const TensorPlan& tensor, int64_t begin, int64_t count, float* out) const;
  void Fill(const TensorPlan& tensor, int64_t begin, int64_t count, uint16_t* out) const;
  // The largest magnitude that a tensor may have.
  float Largest(const TensorPlan& tensor) const;

 private:
  static constexpr int kQuantileBits = 12;
  static constexpr size_t kQuantiles = size_t{1} << kQuantileBits;
  using Table = std::array<double, kQuantiles>;
  static std::unique_ptr<Table> NormalQuantiles();
  static std::unique_ptr<Table> UniformQuantiles();
  template <class T, class Convert>
  void FillAs(const TensorPlan& tensor, int64_t begin, int64_t count, T* out,
              Convert convert) const;

  const ModelSpec& spec_;
  uint64_t seed_;
  std::map<std::string, std::vector<float>> given_;
  std::unique_ptr<Table> normal_;
  std::unique_ptr<Table> uniform_;
};

}  // namespace braid
