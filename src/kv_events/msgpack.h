// MessagePack: writes the few types that events are made of, each in its shortest form, and reads
// all that others may send. The format: https://github.com/msgpack/msgpack/blob/master/spec.md.
// Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braid::kv {

class MsgpackWriter {
 public:
  void Array(size_t items) {
    if (items < 16) {
      Byte(static_cast<uint8_t>(0x90 | items));
    } else if (items <= 0xffff) {
      Tagged<uint16_t>(0xdc, items);
    } else {
      Tagged<uint32_t>(0xdd, items);
    }
  }
  void Text(std::string_view text) {
    if (text.size() < 32) {
      Byte(static_cast<uint8_t>(0xa0 | text.size()));
    } else if (text.size() <= 0xff) {
      Tagged<uint8_t>(0xd9, text.size());
    } else if (text.size() <= 0xffff) {
      Tagged<uint16_t>(0xda, text.size());
    } else {
      Tagged<uint32_t>(0xdb, text.size());
    }
    bytes_.append(text);
  }
  void Unsigned(uint64_t value) {
    if (value < 128) {
      Byte(static_cast<uint8_t>(value));
    } else if (value <= 0xff) {
      Tagged<uint8_t>(0xcc, value);
    } else if (value <= 0xffff) {
      Tagged<uint16_t>(0xcd, value);
    } else if (value <= 0xffffffff) {
      Tagged<uint32_t>(0xce, value);
    } else {
      Tagged<uint64_t>(0xcf, value);
    }
  }
  void Double(double value) { Tagged<uint64_t>(0xcb, std::bit_cast<uint64_t>(value)); }
  void Nil() { Byte(0xc0); }

  std::string Take() { return std::move(bytes_); }

 private:
  void Byte(uint8_t byte) { bytes_.push_back(static_cast<char>(byte)); }
  // Most significant byte first.
  template <class T>
  void Tagged(uint8_t tag, uint64_t value) {
    Byte(tag);
    for (int shift = 8 * (static_cast<int>(sizeof(T)) - 1); shift >= 0; shift -= 8) {
      Byte(static_cast<uint8_t>(value >> shift));
    }
  }

  std::string bytes_;
};

// Reads value by value. Arrays and maps come as their heads; what they have follows.
class MsgpackReader {
 public:
  explicit MsgpackReader(std::string_view bytes) : rest_(bytes) {}

  enum class Kind : uint8_t { kNil, kBool, kInteger, kDouble, kText, kArray, kMap };
  struct Value {
    Kind kind = Kind::kNil;
    uint64_t number = 0;    // an integer in two's complement, a bool, or how many values follow
    double real = 0;        // of kDouble
    std::string_view text;  // of kText, which bytes are too
  };
  // nullopt: the bytes end too early, or are none of these kinds.
  std::optional<Value> Next();
  // Past a value with all that it has. False if it is malformed.
  bool Skip();

 private:
  std::optional<uint64_t> Number(size_t bytes);
  std::optional<Value> Text(std::optional<uint64_t> size);
  std::optional<Value> Tagged(uint8_t tag);

  std::string_view rest_;
};

}  // namespace braid::kv
