// Plain tensors, and functions that the decoders share.
#include "model/checkpoint/formats/storage_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace braid {
namespace {

bool IsFloat(DType type) {
  return type == DType::kF32 || type == DType::kF64 || type == DType::kF16 || type == DType::kBF16;
}

void StoreFloats(const float* values, int64_t count, DType as, std::byte* out) {
  if (as == DType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  CHECK(as == DType::kBF16 || as == DType::kF16);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = as == DType::kBF16 ? Bf16OfFloat(values[i]) : F16OfFloat(values[i]);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

}  // namespace

int64_t StoredWeight::bytes() const {
  int64_t sum = 0;
  for (const TensorEntry* part : parts) sum += part ? part->bytes : 0;
  return sum;
}

std::string_view StoredWeight::format_name() const {
  return format ? format->name : NameOf(parts[0]->dtype);
}

void StoredWeight::Read(int64_t first, int64_t count, DType as, std::byte* out) const {
  if (format == nullptr) {
    const TensorEntry& tensor = *parts[0];
    if (tensor.dtype == as) {
      std::memcpy(out, tensor.data + first * SizeOf(as), static_cast<size_t>(count * SizeOf(as)));
      return;
    }
    CHECK(as == DType::kF32);
    for (int64_t i = 0; i < count; ++i) {
      const float value = ElementAt(tensor, first + i);
      std::memcpy(out + 4 * i, &value, 4);
    }
    return;
  }
  CHECK(first % k == 0 && count % k == 0);
  if (as == DType::kF32) {
    format->decode(*this, first / k, count / k, reinterpret_cast<float*>(out));
    return;
  }
  std::vector<float> values(static_cast<size_t>(count));
  format->decode(*this, first / k, count / k, values.data());
  StoreFloats(values.data(), count, as, out);
}

const KeptCodes* KeptBy(const StoredWeight& stored) {
  const KeptCodes* kept = stored.format ? stored.format->kept : nullptr;
  while (kept && !kept->fit(stored)) kept = kept->next;
  return kept;
}

std::string PartName(const StorageFormat& format, std::string_view weight,
                     std::string_view suffix) {
  if (!format.replaces_weight) return fmt::format("{}{}", weight, suffix);
  constexpr std::string_view kWeight = ".weight";
  if (!weight.ends_with(kWeight)) return {};
  return fmt::format("{}{}", weight.substr(0, weight.size() - kWeight.size()), suffix);
}

float ElementAt(const TensorEntry& part, int64_t i) {
  const std::byte* at = part.data + i * SizeOf(part.dtype);
  switch (part.dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, at, 4);
      return value;
    }
    case DType::kF64: {
      double value;
      std::memcpy(&value, at, 8);
      return static_cast<float>(value);
    }
    case DType::kF16:
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return part.dtype == DType::kF16 ? FloatOfF16(bits) : FloatOfBf16(bits);
    }
    case DType::kF8E4M3:
      return FloatOfE4M3(static_cast<uint8_t>(*at));
    case DType::kF8E8M0:
    case DType::kU8:  // how writers without the type spell it
      return FloatOfE8M0(static_cast<uint8_t>(*at));
    default:
      CHECK(IsFloat(part.dtype), "{} is {}", part.name, NameOf(part.dtype));
      return 0;
  }
}

Error BeyondF16(std::string_view tensor) {
  return {ErrorCode::kInvalid,
          fmt::format("\"{}\" has a number beyond 65504, the largest of fp16: --weights bf16 can "
                      "hold it",
                      tensor),
          "--weights"};
}

Error NotFinite(std::string_view tensor, int64_t row) {
  return {ErrorCode::kInvalid,
          fmt::format("\"{}\" has a number that is NaN or infinite in row {}: the file is damaged, "
                      "or its training failed",
                      tensor, row)};
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string PartProblem(const TensorEntry& part, std::span<const DType> types,
                        std::span<const int64_t> shape) {
  if (std::ranges::count(types, part.dtype) == 0) {
    std::string names;
    for (DType type : types)
      names += fmt::format("{}{}", names.empty() ? "" : " or ", NameOf(type));
    return fmt::format("\"{}\" is {}; it must be {}", part.name, NameOf(part.dtype), names);
  }
  if (!std::ranges::equal(part.shape, shape)) {
    return fmt::format("\"{}\" has the shape {}; it must be {}", part.name, ShapeText(part.shape),
                       ShapeText(shape));
  }
  return {};
}

}  // namespace braid
