// Every field is known or an error.
#include "router/router_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/json.h"

namespace braid {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kKeyBytesMax = 512;

Error WrongSetting(const std::string& path, std::string_view right) {
  return {ErrorCode::kInvalid, fmt::format("{}: must be {}", path, right), path};
}

bool IsWord(std::string_view text, size_t bytes_max, std::string_view others) {
  return !text.empty() && text.size() <= bytes_max && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

bool IsKey(std::string_view text) {
  return !text.empty() && text.size() <= kKeyBytesMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
}
constexpr std::string_view kEngineRule =
    "one of name, url, key, kv_events and kv_events_replay, each a text";
constexpr std::string_view kKeyRule = "up to 512 printable characters without blanks";

Result<EngineAddress> ReadEngine(const json::value& value, const std::string& path) {
  if (!value.is_object()) return WrongSetting(path, "an object with name and url");
  EngineAddress engine;
  bool has_url = false;
  for (const auto& [name, field] : value.get_object()) {
    const std::string at = fmt::format("{}.{}", path, std::string_view(name));
    if (!field.is_string()) return WrongSetting(at, kEngineRule);
    const std::string_view text = field.get_string();
    if (name == "name") {
      engine.name = text;
    } else if (name == "url") {
      RETURN_IF_ERROR(ReadEngineUrl(text, at, &engine));
      has_url = true;
    } else if (name == "key") {
      if (!IsKey(text)) return WrongSetting(at, kKeyRule);
      engine.key = text;
    } else if (name == "kv_events") {
      RETURN_IF_ERROR(ReadEventsUrl(text, at, &engine.events.events));
    } else if (name == "kv_events_replay") {
      RETURN_IF_ERROR(ReadEventsUrl(text, at, &engine.events.replay));
    } else {
      // The value is not shown: it may be a key.
      return WrongSetting(at, kEngineRule);
    }
  }
  if (!has_url) return WrongSetting(path + ".url", "there: http://HOST:PORT");
  if (engine.events.events.empty() && !engine.events.replay.empty()) {
    return WrongSetting(path + ".kv_events", "there, where kv_events_replay is");
  }
  if (!IsEngineName(engine.name)) {
    return WrongSetting(path + ".name", "1 to 64 letters, digits, -, _ or .");
  }
  return engine;
}

Status ReadEngines(const json::value& value, const std::string& path, RouterConfig* config) {
  if (!value.is_array() || value.get_array().size() > kEnginesMax) {
    return WrongSetting(path, fmt::format("a list of at most {} engines", kEnginesMax));
  }
  for (const json::value& entry : value.get_array()) {
    const std::string at = fmt::format("{}[{}]", path, config->engines.size());
    ASSIGN_OR_RETURN(EngineAddress engine, ReadEngine(entry, at));
    for (const EngineAddress& other : config->engines) {
      if (other.name == engine.name) return WrongSetting(at + ".name", "unique");
      if (other.authority() == engine.authority()) return WrongSetting(at + ".url", "unique");
    }
    config->engines.push_back(std::move(engine));
  }
  return {};
}

struct NumberField {
  std::string_view name;
  int32_t RouterConfig::* member;
  int32_t least, most;
};

constexpr NumberField kNumbers[] = {
    {"probe_ms", &RouterConfig::probe_ms, 10, 60'000},
    {"lease_ms", &RouterConfig::lease_ms, 20, 600'000},
    {"connect_ms", &RouterConfig::connect_ms, 10, 60'000},
    {"attempts", &RouterConfig::attempts, 1, 16},
};

Status ReadSetting(std::string_view name, const json::value& field, const std::string& at,
                   RouterConfig* config) {
  for (const NumberField& row : kNumbers) {
    if (row.name != name) continue;
    const int64_t number = field.is_int64() ? field.get_int64() : -1;
    if (number < row.least || number > row.most) {
      return WrongSetting(at, fmt::format("an integer from {} to {}", row.least, row.most));
    }
    config->*row.member = static_cast<int32_t>(number);
    return {};
  }
  if (name == "engines") return ReadEngines(field, at, config);
  if (name == "policy") {
    const auto* policy = field.is_string() ? std::ranges::find(kPolicyNames, field.get_string())
                                           : kPolicyNames.end();
    if (policy == kPolicyNames.end()) {
      return WrongSetting(at, fmt::format("one of {}", fmt::join(kPolicyNames, ", ")));
    }
    config->policy = static_cast<Policy>(policy - kPolicyNames.begin());
    return {};
  }
  if (name == "registration") {
    if (!field.is_bool()) return WrongSetting(at, "true or false");
    config->registration = field.get_bool();
    return {};
  }
  if (name == "engine_key") {
    const std::string_view text = field.is_string() ? std::string_view(field.get_string()) : "";
    if (!IsKey(text)) return WrongSetting(at, kKeyRule);
    config->engine_key = text;
    return {};
  }
  if (name == "session_header") {
    const std::string_view text = field.is_string() ? std::string_view(field.get_string()) : "";
    if (!IsWord(text, kNameBytesMax, "-_")) return WrongSetting(at, "the name of a header");
    config->session_header = text;
    for (char& c : config->session_header) c = static_cast<char>(std::tolower(c));
    return {};
  }
  return WrongSetting(at,
                      "one of engines, registration, engine_key, policy, probe_ms, lease_ms, "
                      "connect_ms, attempts and session_header");
}

}  // namespace

bool IsEngineName(std::string_view name) { return IsWord(name, kNameBytesMax, "-_."); }

Status ReadEngineUrl(std::string_view url, const std::string& path, EngineAddress* engine) {
  constexpr std::string_view kRight =
      "http://HOST:PORT without a path; https:// is not supported between router and engines";
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return WrongSetting(path, kRight);
  url.remove_prefix(kScheme.size());
  if (url.ends_with('/')) url.remove_suffix(1);
  const bool bracketed = url.starts_with('[');
  const size_t host_end = bracketed ? url.find(']') : url.find(':');
  const size_t colon = bracketed && host_end != std::string_view::npos ? host_end + 1 : host_end;
  if (colon == std::string_view::npos || colon >= url.size() || url[colon] != ':') {
    return WrongSetting(path, kRight);
  }
  engine->host = bracketed ? url.substr(1, host_end - 1) : url.substr(0, colon);
  const std::string_view digits = url.substr(colon + 1);
  const auto [end, code] = std::from_chars(digits.begin(), digits.end(), engine->port);
  if (code != std::errc() || end != digits.end() || engine->port == 0 ||
      !IsWord(engine->host, 255, bracketed ? ":.%" : ".-_")) {
    return WrongSetting(path, kRight);
  }
  return {};
}

Status ReadEventsUrl(std::string_view url, const std::string& path, std::string* address) {
  constexpr std::string_view kScheme = "tcp://";
  EngineAddress at;
  const bool right = url.starts_with(kScheme) &&
                     ReadEngineUrl("http" + std::string(url.substr(3)), path, &at).ok();
  if (!right || url.ends_with('/')) return WrongSetting(path, "tcp://HOST:PORT");
  *address = url;
  return {};
}

std::string EngineAddress::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<RouterConfig> ParseRouterConfig(std::string_view text, std::string_view what) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text, what));
  if (!value.is_object()) {
    return Error{
        ErrorCode::kInvalid,
        fmt::format("{}: must be {{\"engines\": [{{\"name\": …, \"url\": …}}, …]}}", what)};
  }
  RouterConfig config;
  for (const auto& [name, field] : value.get_object()) {
    const std::string_view key = name;
    RETURN_IF_ERROR(ReadSetting(key, field, fmt::format("{}: {}", what, key), &config));
  }
  if (config.engines.empty() && !config.registration) {
    return WrongSetting(fmt::format("{}: engines", what),
                        "a list of at least one engine, unless \"registration\" is true");
  }
  if (config.lease_ms < 2 * config.probe_ms) {
    return WrongSetting(
        fmt::format("{}: lease_ms", what),
        fmt::format("at least twice probe_ms ({}), got {}", config.probe_ms, config.lease_ms));
  }
  return config;
}

}  // namespace braid
