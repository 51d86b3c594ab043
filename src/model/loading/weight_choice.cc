// The choice of a format for each weight.
#include "model/loading/weight_choice.h"

namespace braid {
namespace {

ops::WeightFormat FormatOf(const WeightSpec& spec, ops::WeightFormat stored,
                           const WeightChoice& choice) {
  if (!choice.format || spec.quantisable == Quantisable::kNever) return stored;
  if (!ops::IsQuantised(*choice.format)) return *choice.format;
  if (spec.quantisable == Quantisable::kHead && !choice.head) return stored;
  return MayQuantise(spec) ? *choice.format : stored;
}

}  // namespace

bool MayQuantise(const WeightSpec& weight) {
  return weight.quantisable != Quantisable::kNever && weight.k <= 65536;
}

Weight LayoutOf(const WeightSpec& spec, ops::WeightFormat stored, const WeightChoice& choice) {
  if (spec.use == WeightUse::kVector) return {};
  return {
      .matrix = {
          .format = FormatOf(spec, stored, choice), .count = spec.count, .n = spec.n, .k = spec.k}};
}

int64_t PackedBytes(const WeightSpec& spec, const Weight& weight) {
  if (spec.use == WeightUse::kMatrix) return weight.matrix.bytes();
  return spec.n * spec.k * static_cast<int64_t>(sizeof(float));
}

}  // namespace braid
