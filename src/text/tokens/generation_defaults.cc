// One table: key, bounds, where it goes.
#include "text/tokens/generation_defaults.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {
namespace {

struct Range {
  double low;
  double high;
  bool low_included;
};

Error BadValue(const std::string& key, const json::value& value, std::string_view expected) {
  return {ErrorCode::kInvalid,
          "generation_config.json: " + key + " is " + JsonExcerpt(value) + ", expected " +
              std::string(expected),
          key};
}

Status ReadNumber(const json::object& file, const std::string& key, Range range,
                  std::optional<double>* out) {
  const json::value* value = file.if_contains(key);
  if (value == nullptr || value->is_null()) return {};
  const bool number = value->is_number();
  const double x = number ? value->to_number<double>() : 0;
  const bool inside = (range.low_included ? x >= range.low : x > range.low) && x <= range.high;
  if (!number || !inside) {
    return BadValue(key, *value,
                    fmt::format("a number in {}{}, {}]", range.low_included ? '[' : '(', range.low,
                                range.high));
  }
  *out = x;
  return {};
}

}  // namespace

Result<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir) {
  GenerationDefaults defaults;
  const std::string path = model_dir + "/generation_config.json";
  if (!FileExists(path)) return defaults;
  ASSIGN_OR_RETURN(const json::value root, ReadJsonFile(path));
  if (!root.is_object()) {
    return Error{ErrorCode::kInvalid,
                 path + " is " + std::string(JsonKindName(root)) + ", expected an object"};
  }
  const json::object& file = root.get_object();
  if (const json::value* value = file.if_contains("do_sample"); value && !value->is_null()) {
    if (!value->is_bool()) return BadValue("do_sample", *value, "true or false");
    defaults.do_sample = value->get_bool();
  }
  std::optional<double> top_k;
  RETURN_IF_ERROR(ReadNumber(file, "temperature", {0, 100, true}, &defaults.temperature));
  RETURN_IF_ERROR(ReadNumber(file, "top_p", {0, 1, false}, &defaults.top_p));
  RETURN_IF_ERROR(ReadNumber(file, "min_p", {0, 1, true}, &defaults.min_p));
  RETURN_IF_ERROR(
      ReadNumber(file, "repetition_penalty", {0, 10, false}, &defaults.repetition_penalty));
  RETURN_IF_ERROR(
      ReadNumber(file, "top_k", {-1, std::numeric_limits<int32_t>::max(), true}, &top_k));
  if (top_k) {
    if (*top_k != std::floor(*top_k)) return BadValue("top_k", file.at("top_k"), "a whole number");
    defaults.top_k = static_cast<int32_t>(*top_k);
  }
  return defaults;
}

}  // namespace braid
