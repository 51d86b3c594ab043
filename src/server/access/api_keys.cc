// Keys are compared by their SHA-256, in constant time.
#include "server/access/api_keys.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace braid {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kKeyBytesMin = 8;
constexpr size_t kKeyBytesMax = 512;
constexpr int64_t kRequestsMax = 1 << 20;
constexpr int64_t kTokensPerMinuteMax = 1 << 30;

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

bool IsKey(std::string_view text) {
  return text.size() >= kKeyBytesMin && text.size() <= kKeyBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

Error Wrong(const std::string& path, std::string_view right) {
  return {ErrorCode::kInvalid, fmt::format("{}: must be {}", path, right), path};
}

Result<ApiKey> ParseKey(const json::value& value, const std::string& path) {
  if (!value.is_object()) return Wrong(path, "an object with name and key");
  ApiKey key;
  for (const auto& [name, field] : value.get_object()) {
    const std::string at = fmt::format("{}.{}", path, std::string_view(name));
    if (name == "name" && field.is_string()) {
      key.name = field.get_string();
    } else if (name == "key" && field.is_string()) {
      key.key = field.get_string();
    } else if (name == "admin" && field.is_bool()) {
      key.admin = field.get_bool();
    } else if (name == "engine" && field.is_bool()) {
      key.engine = field.get_bool();
    } else if (name == "requests_max" && field.is_int64() && field.get_int64() >= 1 &&
               field.get_int64() <= kRequestsMax) {
      key.requests_max = static_cast<int32_t>(field.get_int64());
    } else if (name == "tokens_per_minute" && field.is_int64() && field.get_int64() >= 1 &&
               field.get_int64() <= kTokensPerMinuteMax) {
      key.tokens_per_minute = static_cast<int32_t>(field.get_int64());
    } else {
      // The value is not shown: it may be a key.
      return Wrong(at,
                   "one of name (a text), key (a text), admin and engine (true or false), "
                   "requests_max and tokens_per_minute (integers from 1)");
    }
  }
  if (!IsName(key.name)) return Wrong(path + ".name", "1 to 64 letters, digits, - or _");
  if (!IsKey(key.key)) return Wrong(path + ".key", "8 to 512 printable characters without blanks");
  return key;
}

}  // namespace

Result<std::vector<ApiKey>> ParseApiKeys(std::string_view text, std::string_view what) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text, what));
  const json::value* list = value.is_object() ? value.get_object().if_contains("keys") : nullptr;
  if (list == nullptr || !list->is_array() || list->get_array().empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: must be {{\"keys\": [{{\"name\": …, \"key\": …}}, …]}} with at "
                             "least one key",
                             what)};
  }
  std::vector<ApiKey> keys;
  for (const json::value& entry : list->get_array()) {
    ASSIGN_OR_RETURN(ApiKey key, ParseKey(entry, fmt::format("{}: keys[{}]", what, keys.size())));
    const bool twice = std::any_of(keys.begin(), keys.end(),
                                   [&](const ApiKey& other) { return other.key == key.key; });
    if (twice) return Wrong(fmt::format("{}: keys[{}].key", what, keys.size()), "unique");
    keys.push_back(std::move(key));
  }
  return keys;
}

Status CheckLimits(const std::vector<ApiKey>& keys) {
  std::map<std::string_view, const ApiKey*> first;
  for (const ApiKey& key : keys) {
    const ApiKey& other = *first.try_emplace(key.name, &key).first->second;
    if (key.requests_max == other.requests_max &&
        key.tokens_per_minute == other.tokens_per_minute) {
      continue;
    }
    return Error{ErrorCode::kInvalid,
                 fmt::format("the keys of {} have different limits: requests_max {} and {}, "
                             "tokens_per_minute {} and {} (0: none); limits hold for a name, so "
                             "all of its keys must have the same",
                             key.name, other.requests_max, key.requests_max,
                             other.tokens_per_minute, key.tokens_per_minute),
                 key.name};
  }
  return {};
}

KeyDigest::KeyDigest(std::string_view key) {
  const int done =
      EVP_Digest(key.data(), key.size(), bytes_.data(), nullptr, EVP_sha256(), nullptr);
  CHECK(done == 1, "OpenSSL cannot compute SHA-256");
}

bool KeyDigest::Same(const KeyDigest& other) const {
  return CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

void ApiKeys::Replace(std::vector<ApiKey> keys) {
  std::vector<Entry> entries;
  for (ApiKey& key : keys) {
    KeyDigest digest(key.key);
    entries.push_back({{.name = std::move(key.name),
                        .admin = key.admin,
                        .engine = key.engine,
                        .requests_max = key.requests_max,
                        .tokens_per_minute = key.tokens_per_minute},
                       digest});
  }
  std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
}

bool ApiKeys::empty() const {
  std::lock_guard lock(mutex_);
  return entries_.empty();
}

std::optional<Caller> ApiKeys::Find(std::string_view presented) const {
  const KeyDigest digest(presented);
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return Caller{.name = {}, .admin = true};
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.digest.Same(digest)) found = &entry;
  }
  return found == nullptr ? std::nullopt : std::optional(found->owner);
}

std::string_view BearerKey(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer =
      authorization.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  return bearer ? authorization.substr(kScheme.size()) : std::string_view();
}

std::string_view PresentedKey(const HttpRequest& request) {
  const std::string_view bearer = BearerKey(request.authorization);
  return bearer.empty() ? std::string_view(request.api_key) : bearer;
}

TenantLoad::Entry TenantLoad::Enter(const Caller& caller, int64_t prompt_tokens, int64_t now_us) {
  std::lock_guard lock(mutex_);
  Tenant& tenant = tenants_[caller.name];
  if (caller.requests_max > 0 && tenant.requests >= caller.requests_max) return {};
  if (tenant.per_minute != caller.tokens_per_minute) {
    tenant.per_minute = caller.tokens_per_minute;
    tenant.tokens.reset();
  }
  if (caller.tokens_per_minute > 0) {
    const double most = caller.tokens_per_minute;
    const auto wanted = static_cast<double>(prompt_tokens);
    if (!tenant.tokens) tenant.tokens.emplace(most / 60, most, now_us);
    if (!tenant.tokens->Has(wanted, now_us)) {
      return {nullptr, tenant.tokens->SecondsUntil(wanted, now_us)};
    }
    tenant.tokens->Take(wanted, now_us);
  }
  ++tenant.requests;
  return {std::make_unique<Place>(*this, caller.name, prompt_tokens)};
}

int32_t TenantLoad::SecondsUntilCompile(const std::string& tenant, int64_t now_us) {
  std::lock_guard lock(mutex_);
  std::optional<RateBucket>& seconds = tenants_[tenant].compile_seconds;
  return !seconds || seconds->Has(0, now_us) ? 0 : seconds->SecondsUntil(0, now_us);
}

void TenantLoad::SpendCompile(const std::string& tenant, int64_t work_us, int64_t now_us) {
  std::lock_guard lock(mutex_);
  std::optional<RateBucket>& seconds = tenants_[tenant].compile_seconds;
  if (!seconds) seconds.emplace(kCompileShare, kCompileBurstSeconds, now_us);
  seconds->Take(static_cast<double>(work_us) * 1e-6, now_us);
}

void TenantLoad::Leave(const std::string& tenant) {
  std::lock_guard lock(mutex_);
  --tenants_.at(tenant).requests;
}

void TenantLoad::Spend(const std::string& tenant, int64_t tokens, int64_t now_us) {
  std::lock_guard lock(mutex_);
  Tenant& entry = tenants_.at(tenant);
  if (entry.tokens) entry.tokens->Take(static_cast<double>(tokens), now_us);
}

}  // namespace braid
