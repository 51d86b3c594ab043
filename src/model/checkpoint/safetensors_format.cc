// Event handlers for Boost.JSON's push parser. Each knows the one grammar it accepts and stops at
// the first event that does not belong there.
#include "model/checkpoint/safetensors_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <optional>

#include "base/json.h"
#include "base/math.h"

namespace braid {
namespace {

using boost::json::error_code;
using boost::json::string_view;

// What both grammars have together: joins strings that arrive in parts, refuses every event.
class Events {
 public:
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);

  const std::string& problem() const { return problem_; }

 protected:
  bool Stop(error_code& ec, std::string problem) {
    problem_ = std::move(problem);
    ec = boost::json::error::syntax;
    return false;
  }
  // Appends a part of a string that is kept whole up to `bytes_max`.
  bool Append(string_view part, size_t bytes_max, error_code& ec) {
    if (text_.size() + part.size() <= bytes_max) {
      text_.append(part.data(), part.size());
      return true;
    }
    return Stop(ec, fmt::format("a string of more than {} bytes, beginning \"{}\"", bytes_max,
                                text_.substr(0, 40)));
  }
  std::string TakeText() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  std::string problem_;
};

struct TypeName {
  std::string_view name;
  DType type;
};
constexpr TypeName kTypeNames[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16},        {"BF16", DType::kBF16},
    {"F64", DType::kF64}, {"I8", DType::kI8},          {"U8", DType::kU8},
    {"I32", DType::kI32}, {"I64", DType::kI64},        {"BOOL", DType::kBool},
    {"I16", DType::kI16}, {"F8_E4M3", DType::kF8E4M3}, {"F8_E8M0", DType::kF8E8M0}};

std::optional<DType> ParseDType(std::string_view name) {
  for (const TypeName& known : kTypeNames) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

// Names go into messages and into maps: no control characters.
bool IsPlainName(std::string_view name) {
  return !name.empty() && std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

// dtype and shape need exactly the bytes between the offsets, in checked arithmetic.
std::string CheckExtent(const HeaderTensor& tensor) {
  if (tensor.begin > tensor.end) {
    return fmt::format("data_offsets [{}, {}] run backwards", tensor.begin, tensor.end);
  }
  std::optional<int64_t> bytes = SizeOf(tensor.dtype);
  for (int64_t dim : tensor.shape) {
    if (bytes) bytes = CheckedMul(*bytes, dim);
  }
  if (!bytes) return "the shape has more than 2^63 bytes";
  if (*bytes != tensor.end - tensor.begin) {
    return fmt::format("dtype and shape need {} bytes and data_offsets hold {}", *bytes,
                       tensor.end - tensor.begin);
  }
  return {};
}

class HeaderEvents : public Events {
 public:
  explicit HeaderEvents(const HeaderTensorSink& sink) : sink_(sink) {}
  const Error* sink_error() const { return sink_error_ ? &*sink_error_ : nullptr; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& ec) {
    if (depth_ >= 2 || key_ != Key::kNone) return Unexpected("an object", ec);
    ++depth_;
    return true;
  }
  bool on_object_end(size_t, error_code& ec) {
    --depth_;
    if (depth_ == 0 || in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    return FinishTensor(ec);
  }

  bool on_key_part(string_view part, size_t, error_code& ec) {
    return Append(part, kTensorNameBytesMax, ec);
  }
  bool on_key(string_view part, size_t, error_code& ec) {
    if (!Append(part, kTensorNameBytesMax, ec)) return false;
    std::string key = TakeText();
    if (in_metadata_) {
      key_ = Key::kMetadata;
      return true;
    }
    if (depth_ == 1) return BeginEntry(std::move(key), ec);
    return BeginMember(key, ec);
  }

  bool on_string_part(string_view part, size_t, error_code& ec) {
    return key_ == Key::kMetadata || Append(part, kTensorNameBytesMax, ec);
  }
  bool on_string(string_view part, size_t, error_code& ec) {
    if (key_ == Key::kMetadata) {
      key_ = Key::kNone;
      return true;
    }
    if (!Append(part, kTensorNameBytesMax, ec)) return false;
    if (key_ != Key::kDType) return Unexpected("a string", ec);
    const std::string name = TakeText();
    const std::optional<DType> type = ParseDType(name);
    if (!type) {
      return Stop(ec,
                  fmt::format("\"{}\": the dtype \"{}\" is not known; BF16, F16 and F32 are what "
                              "weights have",
                              tensor_.name, name));
    }
    tensor_.dtype = *type;
    key_ = Key::kNone;
    return true;
  }

  bool on_array_begin(error_code& ec) {
    if ((key_ != Key::kShape && key_ != Key::kOffsets) || in_array_)
      return Unexpected("a list", ec);
    in_array_ = true;
    return true;
  }
  bool on_array_end(size_t, error_code& ec) {
    in_array_ = false;
    if (key_ == Key::kOffsets && offsets_ != 2)
      return Unexpected("a list that is not two numbers", ec);
    key_ = Key::kNone;
    return true;
  }

  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t value, string_view, error_code& ec) {
    if (!in_array_) return Unexpected("a number", ec);
    if (value < 0) return Unexpected("a negative number", ec);
    if (key_ == Key::kShape) {
      if (tensor_.shape.size() == kTensorRankMax) {
        return Stop(ec,
                    fmt::format("\"{}\": more than {} dimensions", tensor_.name, kTensorRankMax));
      }
      tensor_.shape.push_back(value);
      return true;
    }
    if (offsets_ == 2) return Unexpected("a third number", ec);
    (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
    ++offsets_;
    return true;
  }
  bool on_uint64(uint64_t, string_view, error_code& ec) {
    return Unexpected("a number of 2^63 or more", ec);
  }
  bool on_double(double, string_view, error_code& ec) { return Unexpected("a fraction", ec); }
  bool on_bool(bool, error_code& ec) { return Unexpected("a boolean", ec); }
  bool on_null(error_code& ec) { return Unexpected("null", ec); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  enum class Key : uint8_t { kNone, kEntry, kMetadata, kDType, kShape, kOffsets };

  bool BeginEntry(std::string name, error_code& ec) {
    if (name == "__metadata__") {
      if (seen_metadata_) return Stop(ec, "\"__metadata__\" appears twice");
      in_metadata_ = seen_metadata_ = true;
    } else if (!IsPlainName(name)) {
      return Stop(ec, "a tensor's name is empty or has control characters");
    }
    tensor_ = {.name = std::move(name)};
    seen_ = 0;
    offsets_ = 0;
    key_ = Key::kNone;
    return true;
  }

  bool BeginMember(const std::string& key, error_code& ec) {
    key_ = key == "dtype"          ? Key::kDType
           : key == "shape"        ? Key::kShape
           : key == "data_offsets" ? Key::kOffsets
                                   : Key::kNone;
    if (key_ == Key::kNone) {
      return Stop(ec, fmt::format("\"{}\": the key \"{}\" is not one of dtype, shape, data_offsets",
                                  tensor_.name, key));
    }
    const unsigned bit = 1u << static_cast<unsigned>(key_);
    if (seen_ & bit)
      return Stop(ec, fmt::format("\"{}\": \"{}\" appears twice", tensor_.name, key));
    seen_ |= bit;
    return true;
  }

  bool FinishTensor(error_code& ec) {
    constexpr unsigned kAll = 1u << static_cast<unsigned>(Key::kDType) |
                              1u << static_cast<unsigned>(Key::kShape) |
                              1u << static_cast<unsigned>(Key::kOffsets);
    if (seen_ != kAll) {
      return Stop(ec, fmt::format("\"{}\": needs dtype, shape and data_offsets", tensor_.name));
    }
    if (std::string problem = CheckExtent(tensor_); !problem.empty()) {
      return Stop(ec, fmt::format("\"{}\": {}", tensor_.name, problem));
    }
    Status status = sink_(tensor_);
    if (status) return true;
    sink_error_ = status.error();
    return Stop(ec, "");
  }

  bool Unexpected(std::string_view what, error_code& ec) {
    return Stop(ec, depth_ == 0
                        ? fmt::format("{} where an object must be", what)
                        : fmt::format("\"{}\": {} where it does not belong", tensor_.name, what));
  }

  const HeaderTensorSink& sink_;
  std::optional<Error> sink_error_;
  HeaderTensor tensor_;
  Key key_ = Key::kNone;
  int depth_ = 0;
  int offsets_ = 0;
  unsigned seen_ = 0;
  bool in_array_ = false;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
};

// Entries of the object "weight_map"; everything beside it is skipped.
class WeightMapEvents : public Events {
 public:
  explicit WeightMapEvents(const WeightMapSink& sink) : sink_(sink) {}
  const Error* sink_error() const { return sink_error_ ? &*sink_error_ : nullptr; }
  bool seen_map() const { return seen_map_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& ec) {
    if (depth_ == 2 && in_map_) return Unexpected("an object", ec);
    ++depth_;
    return true;
  }
  bool on_object_end(size_t, error_code&) {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }
  bool on_array_begin(error_code& ec) {
    if (depth_ == 0 || in_map_) return Unexpected("a list", ec);
    ++depth_;
    return true;
  }
  bool on_array_end(size_t, error_code&) {
    --depth_;
    return true;
  }
  bool on_key_part(string_view part, size_t, error_code& ec) {
    return Append(part, kTensorNameBytesMax, ec);
  }
  bool on_key(string_view part, size_t, error_code& ec) {
    if (!Append(part, kTensorNameBytesMax, ec)) return false;
    key_ = TakeText();
    if (depth_ != 1 || key_ != "weight_map") return true;
    if (seen_map_) return Stop(ec, "\"weight_map\" appears twice");
    in_map_ = seen_map_ = true;
    return true;
  }
  bool on_string_part(string_view part, size_t, error_code& ec) {
    return !in_map_ || Append(part, kTensorNameBytesMax, ec);
  }
  bool on_string(string_view part, size_t, error_code& ec) {
    if (!in_map_) return depth_ > 0 || Unexpected("a string", ec);
    if (depth_ != 2) return Unexpected("a string", ec);
    if (!Append(part, kTensorNameBytesMax, ec)) return false;
    Status status = sink_(key_, TakeText());
    if (status) return true;
    sink_error_ = status.error();
    return Stop(ec, "");
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t, string_view, error_code& ec) { return Scalar(ec); }
  bool on_uint64(uint64_t, string_view, error_code& ec) { return Scalar(ec); }
  bool on_double(double, string_view, error_code& ec) { return Scalar(ec); }
  bool on_bool(bool, error_code& ec) { return Scalar(ec); }
  bool on_null(error_code& ec) { return Scalar(ec); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  bool Scalar(error_code& ec) {
    return (depth_ > 0 && !in_map_) || Unexpected("a value that is no file name", ec);
  }
  bool Unexpected(std::string_view what, error_code& ec) {
    return Stop(ec, in_map_
                        ? fmt::format("weight_map \"{}\": {} where a file name must be", key_, what)
                        : fmt::format("{} where an object must be", what));
  }

  const WeightMapSink& sink_;
  std::optional<Error> sink_error_;
  std::string key_;
  int depth_ = 0;
  bool in_map_ = false;
  bool seen_map_ = false;
};

template <class Handler>
Status Parse(std::string_view text, const std::string& source,
             boost::json::basic_parser<Handler>& parser) {
  error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (const Error* error = parser.handler().sink_error()) return *error;
  if (const std::string& problem = parser.handler().problem(); !problem.empty()) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: {}", source, problem)};
  }
  if (!ec && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    ec = boost::json::error::extra_data;
  }
  if (!ec) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: not valid JSON near byte {}: {}", source, used, ec.message())};
}

boost::json::parse_options Options() {
  boost::json::parse_options options;
  options.max_depth = 16;
  return options;
}

}  // namespace

std::string_view SafetensorsName(DType type) {
  return std::ranges::find(kTypeNames, type, &TypeName::type)->name;
}

Status ReadSafetensorsHeader(std::string_view text, const std::string& source,
                             const HeaderTensorSink& sink) {
  boost::json::basic_parser<HeaderEvents> parser(Options(), sink);
  return Parse(text, source + ": header", parser);
}

Status ReadWeightMap(std::string_view text, const std::string& source, const WeightMapSink& sink) {
  boost::json::basic_parser<WeightMapEvents> parser(Options(), sink);
  RETURN_IF_ERROR(Parse(text, source, parser));
  if (!parser.handler().seen_map()) {
    return Error{
        ErrorCode::kInvalid,
        fmt::format("{}: no \"weight_map\"; it must map tensor names to file names", source),
        "weight_map"};
  }
  return {};
}

}  // namespace braid
