// Parsers of the structured fields that every generating endpoint shares.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "server/api/limits.h"
#include "server/api/parsers.h"
#include "server/http/framing.h"

namespace braid {

ApiError WrongType(const std::string& path, std::string_view right, const json::value& found) {
  return {400, fmt::format("{}: must be {}, got {}", path, right, JsonExcerpt(found)), path};
}

std::optional<int64_t> AsInteger(const json::value& value) {
  constexpr double kExactMax = int64_t{1} << 53;
  if (value.is_int64()) return value.get_int64();
  if (!value.is_double() || std::abs(value.get_double()) > kExactMax) return std::nullopt;
  if (std::floor(value.get_double()) != value.get_double()) return std::nullopt;
  return static_cast<int64_t>(value.get_double());
}

ApiStatus ParseTokenIds(const json::value& value, const std::string& path,
                        const RequestLimits& limits, std::vector<TokenId>* ids) {
  if (!value.is_array()) return WrongType(path, "a list of token ids", value);
  const json::array& array = value.get_array();
  ids->reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    if (!array[i].is_int64() || array[i].get_int64() < 0 ||
        array[i].get_int64() >= limits.vocabulary) {
      return WrongType(fmt::format("{}[{}]", path, i),
                       fmt::format("a token id from 0 to {}", limits.vocabulary - 1), array[i]);
    }
    ids->push_back(static_cast<TokenId>(array[i].get_int64()));
  }
  return {};
}

ApiStatus ParseModel(const json::value& value, const std::string& path, const RequestLimits&,
                     ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, "a string", value);
  request->model = value.get_string();
  return {};
}

// A string, a list of strings, a list of token ids, or a list of lists of token ids.
ApiStatus ParsePrompt(const json::value& value, const std::string& path,
                      const RequestLimits& limits, ApiRequest* request) {
  constexpr std::string_view kRight = "a string, a list of strings, or token ids";
  if (value.is_string()) {
    request->prompts.emplace_back(std::string(value.get_string()));
    return {};
  }
  if (!value.is_array() || value.get_array().empty()) return WrongType(path, kRight, value);
  const json::array& array = value.get_array();
  if (array[0].is_number()) {
    std::vector<TokenId> ids;
    RETURN_IF_ERROR(ParseTokenIds(value, path, limits, &ids));
    request->prompts.emplace_back(std::move(ids));
    return {};
  }
  if (static_cast<int64_t>(array.size()) > limits.answers_max) {
    return ApiError{400,
                    fmt::format("{}: has {} prompts, at most {} are accepted", path, array.size(),
                                limits.answers_max),
                    path};
  }
  for (size_t i = 0; i < array.size(); ++i) {
    std::string element = fmt::format("{}[{}]", path, i);
    if (array[i].kind() != array[0].kind()) return WrongType(element, "like prompt[0]", array[i]);
    if (array[i].is_string()) {
      request->prompts.emplace_back(std::string(array[i].get_string()));
    } else {
      std::vector<TokenId> ids;
      RETURN_IF_ERROR(ParseTokenIds(array[i], element, limits, &ids));
      request->prompts.emplace_back(std::move(ids));
    }
  }
  return {};
}

ApiStatus ParseTokens(const json::value& value, const std::string& path,
                      const RequestLimits& limits, ApiRequest* request) {
  return ParseTokenIds(value, path, limits, &request->tokens);
}

ApiStatus ParseStop(const json::value& value, const std::string& path, const RequestLimits&,
                    ApiRequest* request) {
  auto add = [&](const json::value& stop, const std::string& where) -> ApiStatus {
    if (!stop.is_string() || stop.get_string().empty() ||
        stop.get_string().size() > limits::kStopStringBytesMax) {
      return WrongType(where, fmt::format("a string of 1 to {} bytes", limits::kStopStringBytesMax),
                       stop);
    }
    request->stop.emplace_back(stop.get_string());
    return {};
  };
  if (!value.is_array()) return add(value, path);
  const json::array& array = value.get_array();
  if (array.size() > limits::kStopStringsMax) {
    return ApiError{400,
                    fmt::format("{}: has {} strings, at most {} are accepted", path, array.size(),
                                limits::kStopStringsMax),
                    path};
  }
  for (size_t i = 0; i < array.size(); ++i) {
    RETURN_IF_ERROR(add(array[i], fmt::format("{}[{}]", path, i)));
  }
  return {};
}

ApiStatus ParseStopTokens(const json::value& value, const std::string& path,
                          const RequestLimits& limits, ApiRequest* request) {
  if (value.is_array() && value.get_array().size() > limits::kStopTokensMax) {
    return ApiError{400,
                    fmt::format("{}: has {} ids, at most {} are accepted", path,
                                value.get_array().size(), limits::kStopTokensMax),
                    path};
  }
  return ParseTokenIds(value, path, limits, &request->stop_token_ids);
}

// {"TOKEN ID": BIAS, …}
ApiStatus ParseLogitBias(const json::value& value, const std::string& path,
                         const RequestLimits& limits, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object of token ids and numbers", value);
  const json::object& object = value.get_object();
  if (object.size() > limits::kLogitBiasMax) {
    return ApiError{400,
                    fmt::format("{}: has {} entries, at most {} are accepted", path, object.size(),
                                limits::kLogitBiasMax),
                    path};
  }
  for (const auto& [key, bias] : object) {
    TokenId id = -1;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    bool is_id =
        error == std::errc() && end == key.data() + key.size() && id >= 0 && id < limits.vocabulary;
    if (!is_id) {
      return WrongType(path, fmt::format("keyed by token ids from 0 to {}", limits.vocabulary - 1),
                       json::value(key));
    }
    boost::system::error_code not_number;
    double number = bias.is_number() ? bias.to_number<double>(not_number) : NAN;
    if (!(std::abs(number) <= limits::kLogitBiasAbsMax)) {
      return WrongType(fmt::format("{}.{}", path, std::string_view(key)),
                       fmt::format("a number from {} to {}", -limits::kLogitBiasAbsMax,
                                   limits::kLogitBiasAbsMax),
                       bias);
    }
    request->logit_bias.emplace_back(id, static_cast<float>(number));
  }
  std::sort(request->logit_bias.begin(), request->logit_bias.end());
  return {};
}

ApiStatus ParseStreamOptions(const json::value& value, const std::string& path,
                             const RequestLimits&, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object", value);
  request->include_usage = false;
  for (const auto& [key, option] : value.get_object()) {
    std::optional<bool>* target = key == "include_usage"            ? &request->include_usage
                                  : key == "continuous_usage_stats" ? &request->continuous_usage
                                                                    : nullptr;
    if (target == nullptr || option.is_null()) continue;
    if (!option.is_bool()) {
      return WrongType(fmt::format("{}.{}", path, std::string_view(key)), "true or false", option);
    }
    *target = option.get_bool();
  }
  return {};
}

// This server's own options: {"explain": true}.
ApiStatus ParseBraid(const json::value& value, const std::string& path, const RequestLimits&,
                     ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object, {\"explain\": true}", value);
  for (const auto& [key, option] : value.get_object()) {
    const std::string member = fmt::format("{}.{}", path, std::string_view(key));
    if (key != "explain") {
      return ApiError{400, member + ": is unknown; the only option is explain", member};
    }
    if (!option.is_bool()) return WrongType(member, "true or false", option);
    request->explain_reuse = option.get_bool();
  }
  return {};
}

ApiStatus ParseCacheSalt(const json::value& value, const std::string& path, const RequestLimits&,
                         ApiRequest* request) {
  if (!value.is_string() || value.get_string().empty() ||
      value.get_string().size() > limits::kCacheSaltBytesMax) {
    return WrongType(path, fmt::format("a string of 1 to {} bytes", limits::kCacheSaltBytesMax),
                     value);
  }
  request->cache_salt = value.get_string();
  return {};
}

ApiStatus ParseMetadata(const json::value& value, const std::string& path, const RequestLimits&,
                        ApiRequest* request) {
  if (!value.is_object() || value.get_object().size() > limits::kMetadataPairsMax) {
    return WrongType(
        path, fmt::format("an object of at most {} entries", limits::kMetadataPairsMax), value);
  }
  for (const auto& [key, text] : value.get_object()) {
    if (text.is_null()) continue;
    if (!text.is_string() || text.get_string().size() > limits::kMetadataBytesMax) {
      return WrongType(fmt::format("{}.{}", path, std::string_view(key)),
                       fmt::format("a string of at most {} bytes", limits::kMetadataBytesMax),
                       text);
    }
  }
  request->metadata = value.get_object();
  return {};
}

ApiStatus ParseText(const json::value& value, const std::string& path, const RequestLimits&,
                    ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, "a string", value);
  request->text = value.get_string();
  return {};
}

ApiStatus ParseParser(const json::value& value, const std::string& path, const RequestLimits&,
                      ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, "a parser's name", value);
  request->parser = value.get_string();
  return {};
}

ApiStatus ParseRequestId(const json::value& value, const std::string& path, const RequestLimits&,
                         ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, "the id of a request", value);
  const std::string_view id = value.get_string();
  // An empty one is the same as none.
  if (!id.empty() && !IsRequestId(id)) {
    return WrongType(path,
                     fmt::format("at most {} of the characters A-Z, a-z, 0-9, '.', '_', ':' and "
                                 "'-'",
                                 limits::kRequestIdBytesMax),
                     value);
  }
  request->request_id = id;
  return {};
}

// SGLang's and vLLM's words: requests stay where they are, or end first.
ApiStatus ParsePauseMode(const json::value& value, const std::string& path, const RequestLimits&,
                         ApiRequest* request) {
  if (value == "abort") {
    request->abort_all = true;
  } else if (value != "in_place" && value != "keep" && value != "retract") {
    return WrongType(path, "\"in_place\", \"keep\", \"retract\" or \"abort\"", value);
  }
  return {};
}

}  // namespace braid
