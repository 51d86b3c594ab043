// A head says how many values follow; nothing is allocated by it.
#include "kv_events/msgpack.h"

namespace braid::kv {

std::optional<uint64_t> MsgpackReader::Number(size_t bytes) {
  if (rest_.size() < bytes) return {};
  uint64_t number = 0;
  for (size_t i = 0; i < bytes; ++i) number = number << 8 | static_cast<uint8_t>(rest_[i]);
  rest_.remove_prefix(bytes);
  return number;
}

std::optional<MsgpackReader::Value> MsgpackReader::Text(std::optional<uint64_t> size) {
  if (!size || rest_.size() < *size) return {};
  Value value{.kind = Kind::kText, .text = rest_.substr(0, *size)};
  rest_.remove_prefix(*size);
  return value;
}

// What stands behind a tag from 0xc0 to 0xdf.
std::optional<MsgpackReader::Value> MsgpackReader::Tagged(uint8_t tag) {
  const auto of = [](Kind kind, std::optional<uint64_t> number) -> std::optional<Value> {
    if (!number) return {};
    return Value{.kind = kind, .number = *number, .text = {}};
  };
  switch (tag) {
    case 0xc0:
      return Value{};
    case 0xc2:
    case 0xc3:
      return of(Kind::kBool, tag & 1);
    case 0xc4:
    case 0xd9:
      return Text(Number(1));
    case 0xc5:
    case 0xda:
      return Text(Number(2));
    case 0xc6:
    case 0xdb:
      return Text(Number(4));
    case 0xca: {
      const auto bits = Number(4);
      if (!bits) return {};
      return Value{.kind = Kind::kDouble,
                   .real = std::bit_cast<float>(static_cast<uint32_t>(*bits)),
                   .text = {}};
    }
    case 0xcb: {
      const auto bits = Number(8);
      if (!bits) return {};
      return Value{.kind = Kind::kDouble, .real = std::bit_cast<double>(*bits), .text = {}};
    }
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
      return of(Kind::kInteger, Number(size_t{1} << (tag - 0xcc)));
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3: {
      const size_t bytes = size_t{1} << (tag - 0xd0);
      const auto number = Number(bytes);
      if (!number) return {};
      const int shift = 64 - 8 * static_cast<int>(bytes);
      return of(Kind::kInteger,
                static_cast<uint64_t>(static_cast<int64_t>(*number << shift) >> shift));
    }
    case 0xdc:
      return of(Kind::kArray, Number(2));
    case 0xdd:
      return of(Kind::kArray, Number(4));
    case 0xde:
      return of(Kind::kMap, Number(2));
    case 0xdf:
      return of(Kind::kMap, Number(4));
    default:
      return {};
  }
}

std::optional<MsgpackReader::Value> MsgpackReader::Next() {
  const std::optional<uint64_t> first = Number(1);
  if (!first) return {};
  const auto tag = static_cast<uint8_t>(*first);
  if (tag < 0x80) return Value{.kind = Kind::kInteger, .number = tag, .text = {}};
  if (tag < 0x90) return Value{.kind = Kind::kMap, .number = tag & 15u, .text = {}};
  if (tag < 0xa0) return Value{.kind = Kind::kArray, .number = tag & 15u, .text = {}};
  if (tag < 0xc0) return Text(tag & 31u);
  if (tag < 0xe0) return Tagged(tag);
  return Value{.kind = Kind::kInteger,
               .number = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(tag))),
               .text = {}};
}

bool MsgpackReader::Skip() {
  // Each value takes at least a byte, so the loop ends with the bytes.
  for (uint64_t left = 1; left > 0; --left) {
    const std::optional<Value> value = Next();
    if (!value) return false;
    if (value->kind == Kind::kArray) left += value->number;
    if (value->kind == Kind::kMap) left += 2 * value->number;
  }
  return true;
}

}  // namespace braid::kv
