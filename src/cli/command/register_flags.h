// The flags of `serve` about routers that this engine registers at (docs/guides/router.md).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/command/flags.h"
#include "router/registration/announcer.h"

namespace braid {

// For a fingerprint, which routers take in printable ASCII only: other bytes, and %, as %XX.
std::string InPlainBytes(std::string_view text);

class RegisterFlags {
 public:
  void AddTo(Flags& flags);
  // Into what routers are told. kInvalid for wrong flags.
  Status Check();
  bool used() const { return !options_.routers.empty(); }

  // What is known once the engine listens.
  struct Engine {
    std::string host;  // that it listens at
    uint16_t port = 0;
    std::string version, fingerprint;
    kv::EventSource events;     // empty: it publishes none
    std::string handoff_host;   // of a prefill engine
    uint16_t handoff_port = 0;  // 0: it is none
    std::function<void(std::vector<std::string>)> on_prefills;
  };
  std::unique_ptr<Announcer> Start(Engine engine) const;

 private:
  std::string routers_, name_, url_, key_file_;
  AnnouncerOptions options_;
};

}  // namespace braid
