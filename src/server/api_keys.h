// Who may use the API: keys from a file, each with a name that is also its namespace in the prefix
// cache, and a limit. Thread-safe; the keys can be replaced while requests run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace braid {

struct ApiKey {
  std::string name;    // [A-Za-z0-9_-]{1,64}; the tenant
  std::string key;     // 8 to 512 printable bytes
  bool admin = false;  // may end other requests and see the server's inside
  int32_t requests_max =
      0;  // at the same time, running and waiting; 0: as many as the server takes
};

// {"keys": [{"name": …, "key": …, "admin": true, "requests_max": 4}, …]}; kInvalid with the path of
// what is wrong. Several keys may share a name.
Result<std::vector<ApiKey>> ParseApiKeys(std::string_view text, std::string_view what);

class ApiKeys {
 public:
  // Without keys everybody is the admin without a name.
  void Replace(std::vector<ApiKey> keys);
  // The owner of a key. Takes the same time whichever key it is, or none.
  std::optional<ApiKey> Find(std::string_view presented) const;

 private:
  mutable std::mutex mutex_;
  std::vector<ApiKey> keys_;
};

// The key in "Bearer KEY", or empty.
std::string_view BearerKey(std::string_view authorization);

// Counts each tenant's requests.
class TenantLoad {
 public:
  // A place among a tenant's requests, given back when it is destroyed.
  class Place {
   public:
    Place(TenantLoad& load, std::string tenant) : load_(load), tenant_(std::move(tenant)) {}
    ~Place() { load_.Leave(tenant_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    TenantLoad& load_;
    const std::string tenant_;
  };
  // Null if the tenant has `most` requests already (0: no limit).
  std::unique_ptr<Place> Enter(const std::string& tenant, int32_t most);

 private:
  void Leave(const std::string& tenant);

  std::mutex mutex_;
  std::map<std::string, int32_t> requests_;
};

}  // namespace braid
