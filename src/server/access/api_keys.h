// Who may use the API: keys from a file, each with a name that is also its namespace in the prefix
// cache, and a limit. Thread-safe; the keys can be replaced while requests run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/access/rate_bucket.h"
#include "server/http/types.h"

namespace braid {

struct ApiKey {
  std::string name;               // [A-Za-z0-9_-]{1,64}; the tenant
  std::string key;                // 8 to 512 printable bytes
  bool admin = false;             // may call admin routes and see all requests
  bool engine = false;            // may register engines at a router
  int32_t requests_max = 0;       // at the same time, running and waiting; 0: no limit of its own
  int32_t tokens_per_minute = 0;  // of prompts and answers together; 0: any number
};

// {"keys": [{"name": …, "key": …, "admin": true, "engine": true, "requests_max": 4,
// "tokens_per_minute": 6000}, …]}. kInvalid with the path of the wrong value. Several keys may
// share a name.
Result<std::vector<ApiKey>> ParseApiKeys(std::string_view text, std::string_view what);
// Limits are a name's, so all of its keys have the same; the error names one that does not.
Status CheckLimits(const std::vector<ApiKey>& keys);

// The SHA-256 of a key. Digests have equal lengths, so the time of a comparison tells neither where
// two keys differ nor how long the right key is.
class KeyDigest {
 public:
  explicit KeyDigest(std::string_view key);
  bool Same(const KeyDigest& other) const;

 private:
  std::array<unsigned char, 32> bytes_{};
};

// Who sends a request: what its key is called and allows, without the key itself.
struct Caller {
  std::string name;  // the tenant; empty where there are no keys
  bool admin = false;
  bool engine = false;
  int32_t requests_max = 0;
  int32_t tokens_per_minute = 0;

  // Whether it may see and end the running requests of a tenant: its own, an admin everybody's.
  bool MaySee(std::string_view tenant) const { return admin || tenant == name; }
};

class ApiKeys {
 public:
  // Without keys everybody is an admin without a name.
  void Replace(std::vector<ApiKey> keys);
  bool empty() const;
  // The caller with a key. Compares it with every key, so that the time tells nothing.
  std::optional<Caller> Find(std::string_view presented) const;

 private:
  struct Entry {
    Caller owner;
    KeyDigest digest;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

// The key in "Bearer KEY", or empty.
std::string_view BearerKey(std::string_view authorization);
// The key of a request, in Authorization or x-api-key; empty: it has none.
std::string_view PresentedKey(const HttpRequest& request);

// Counts each tenant's requests and tokens.
class TenantLoad {
 public:
  // A place among a tenant's requests, given back when it is destroyed.
  class Place {
   public:
    Place(TenantLoad& load, std::string tenant, int64_t prompt_tokens)
        : load_(load), tenant_(std::move(tenant)), prompt_tokens_(prompt_tokens) {}
    ~Place() { load_.Leave(tenant_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    // Takes generated tokens from the tenant's budget.
    void Spend(int64_t tokens, int64_t now_us) { load_.Spend(tenant_, tokens, now_us); }
    // Gives those of the prompt back: the request did not begin. Once.
    void GiveTokensBack(int64_t now_us) { load_.Spend(tenant_, -prompt_tokens_, now_us); }
    const std::string& tenant() const { return tenant_; }

   private:
    TenantLoad& load_;
    const std::string tenant_;
    const int64_t prompt_tokens_;
  };
  struct Entry {
    std::unique_ptr<Place> place;     // null: refused
    int32_t retry_after_seconds = 0;  // > 0: for its tokens; else for its requests
  };
  // Refused if the tenant has as many requests as its key allows, or has used up its tokens of the
  // minute; else those of the prompt are taken.
  Entry Enter(const Caller& caller, int64_t prompt_tokens, int64_t now_us);

  // The share of a thread that a tenant's grammars may use, and the burst above it.
  static constexpr double kCompileShare = 0.25, kCompileBurstSeconds = 4;
  // The whole seconds until a tenant may have another compiled; 0: now.
  int32_t SecondsUntilCompile(const std::string& tenant, int64_t now_us);
  void SpendCompile(const std::string& tenant, int64_t work_us, int64_t now_us);

 private:
  struct Tenant {
    int32_t requests = 0;
    int32_t per_minute = 0;
    std::optional<RateBucket> tokens;
    std::optional<RateBucket> compile_seconds;
  };
  void Leave(const std::string& tenant);
  void Spend(const std::string& tenant, int64_t tokens, int64_t now_us);

  std::mutex mutex_;
  std::map<std::string, Tenant> tenants_;  // names come from the file of keys
};

}  // namespace braid
