// Every field is known or an error, as in the router's configuration.
#include "router/registration/registration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"

namespace braid {
namespace {

constexpr size_t kFingerprintBytesMax = 4096, kProgramBytesMax = 64, kHandoffBytesMax = 270;
constexpr size_t kPrefillsMax = 256;
constexpr int64_t kLeaseMsMax = 600'000;
constexpr JsonLimits kLimits{.depth_max = 4, .bytes_max = kRegistrationBytesMax};

Error Wrong(std::string_view field, std::string_view right) {
  return {ErrorCode::kInvalid, fmt::format("{}: must be {}", field, right), std::string(field)};
}

bool IsPlain(std::string_view text, size_t bytes_max, bool lines) {
  return text.size() <= bytes_max && std::ranges::all_of(text, [&](char c) {
           return (c >= ' ' && c < 127) || (lines && c == '\n');
         });
}

// HOST:PORT, with brackets around a host that has colons.
bool IsHostPort(std::string_view text) {
  EngineAddress address;
  return text.size() <= kHandoffBytesMax &&
         ReadEngineUrl(fmt::format("http://{}", text), "handoff", &address).ok();
}

Status ReadText(std::string_view name, std::string_view text, Registration* out) {
  if (name == "url") return ReadEngineUrl(text, "url", &out->address);
  if (name == "kv_events") return ReadEventsUrl(text, "kv_events", &out->address.events.events);
  if (name == "kv_events_replay") {
    return ReadEventsUrl(text, "kv_events_replay", &out->address.events.replay);
  }
  if (name == "program") {
    if (!IsPlain(text, kProgramBytesMax, false)) return Wrong(name, "at most 64 characters");
    out->program = text;
    return {};
  }
  if (name == "fingerprint") {
    if (text.empty() || !IsPlain(text, kFingerprintBytesMax, true)) {
      return Wrong(name, "lines of \"name: value\", at most 4096 characters");
    }
    out->fingerprint = text;
    return {};
  }
  if (name == "handoff") {
    if (!IsHostPort(text)) return Wrong(name, "HOST:PORT");
    out->handoff = text;
    return {};
  }
  if (text != "prefill" && text != "decode" && text != "both") {
    return Wrong(name, "one of prefill, decode and both");
  }
  out->prefills = text == "prefill";
  return {};
}

Status ReadField(std::string_view name, const json::value& field, Registration* out,
                 int64_t* version) {
  constexpr std::string_view kTexts[] = {"url",  "program",   "fingerprint",     "handoff",
                                         "role", "kv_events", "kv_events_replay"};
  const bool text = std::ranges::count(kTexts, name) > 0;
  if (text && !field.is_string()) return Wrong(name, "a text");
  if (text) return ReadText(name, std::string_view(field.get_string()), out);
  if (name == "version" || name == "generation") {
    if (!field.is_int64() || field.get_int64() < 1) return Wrong(name, "an integer from 1");
    (name == "version" ? *version : out->generation) = field.get_int64();
    return {};
  }
  if (name != "leaves") {
    return Wrong(fmt::format("{:.64}", name),
                 "one of version, generation, url, role, handoff, program, fingerprint, kv_events, "
                 "kv_events_replay and leaves");
  }
  if (!field.is_bool()) return Wrong(name, "true or false");
  out->leaves = field.get_bool();
  return {};
}

}  // namespace

Result<Registration> ParseRegistration(std::string_view name, std::string_view body) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(body, "body", kLimits));
  if (!value.is_object()) return Wrong("body", "an object with version, generation, url and more");
  Registration registration;
  registration.address.name = name;
  registration.address.port = 0;
  if (!IsEngineName(name)) return Wrong("the name", "1 to 64 letters, digits, -, _ or .");
  int64_t version = 0;
  for (const auto& [key, field] : value.get_object()) {
    RETURN_IF_ERROR(ReadField(key, field, &registration, &version));
  }
  if (version != kRegistrationVersion) {
    return Wrong("version", fmt::format("{}, got {}: engine and router speak different versions",
                                        kRegistrationVersion, version));
  }
  if (registration.generation == 0) return Wrong("generation", "there: an integer from 1");
  if (registration.address.port == 0) return Wrong("url", "there: http://HOST:PORT");
  if (registration.fingerprint.empty()) return Wrong("fingerprint", "there");
  if (registration.prefills == registration.handoff.empty()) {
    return Wrong("handoff", "there with \"role\": \"prefill\", and only then");
  }
  return registration;
}

std::string EncodeRegistration(const Registration& registration) {
  json::object object{{"version", kRegistrationVersion},
                      {"generation", registration.generation},
                      {"url", "http://" + registration.address.authority()},
                      {"role", registration.prefills ? "prefill" : "both"},
                      {"program", registration.program},
                      {"fingerprint", registration.fingerprint}};
  if (registration.prefills) object["handoff"] = registration.handoff;
  const kv::EventSource& events = registration.address.events;
  if (!events.events.empty()) object["kv_events"] = events.events;
  if (!events.replay.empty()) object["kv_events_replay"] = events.replay;
  if (registration.leaves) object["leaves"] = true;
  return json::serialize(object);
}

Result<RegistrationLease> ParseLease(std::string_view body) {
  ASSIGN_OR_RETURN(const json::value value,
                   ParseJson(body, "answer", {.depth_max = 4, .bytes_max = size_t{1} << 20}));
  const json::object* object = value.if_object();
  const json::value* lease = object == nullptr ? nullptr : object->if_contains("lease_ms");
  if (lease == nullptr || !lease->is_int64() || lease->get_int64() < 1 ||
      lease->get_int64() > kLeaseMsMax) {
    return Wrong("lease_ms", "an integer from 1 to 600000");
  }
  RegistrationLease result{.lease_ms = static_cast<int32_t>(lease->get_int64()), .prefills = {}};
  const json::value* prefills = object->if_contains("prefills");
  if (prefills == nullptr) return result;
  const json::array* list = prefills->if_array();
  if (list == nullptr || list->size() > kPrefillsMax) {
    return Wrong("prefills", "a list of at most 256 texts");
  }
  for (const json::value& entry : *list) {
    const bool fits = entry.is_string() && IsHostPort(std::string_view(entry.get_string()));
    if (!fits) return Wrong("prefills", "a list of HOST:PORT");
    result.prefills.emplace_back(entry.get_string());
  }
  return result;
}

std::string EncodeLease(const RegistrationLease& lease) {
  json::array prefills;
  for (const std::string& at : lease.prefills) prefills.emplace_back(at);
  return json::serialize(
      json::object{{"lease_ms", lease.lease_ms}, {"prefills", std::move(prefills)}});
}

}  // namespace braid
