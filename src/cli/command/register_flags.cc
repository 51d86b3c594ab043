// The name of an engine is by default that of its machine and its port.
#include "cli/command/register_flags.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/system/file.h"
#include "cli/command/access_flags.h"

namespace braid {
namespace {

constexpr size_t kKeyBytesMax = 512;

std::string MachineName() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "engine";
  std::string text(name);
  std::ranges::replace_if(text, [](char c) { return !IsEngineName({&c, 1}); }, '-');
  return text.substr(0, 57);  // a port fits behind it
}

}  // namespace

std::string InPlainBytes(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    const bool is_plain = c >= ' ' && c < 127 && c != '%';
    plain += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return plain;
}

void RegisterFlags::AddTo(Flags& flags) {
  flags.Text("--register", routers_,
             "Routers at which this engine registers: http://HOST:PORT,… (docs/guides/router.md)");
  flags.Text("--register-name", name_, "Its name there (default: the machine's name and the port)");
  flags.Text("--register-url", url_,
             "Where routers reach it: http://HOST:PORT (default: the address from which it reaches "
             "them, and its port)");
  flags.NonEmpty("--register-key-file", key_file_,
                 "File with the key that routers ask engines for; read again each time");
}

Status RegisterFlags::Check() {
  for (const std::string& url : SplitList(routers_)) {
    RETURN_IF_ERROR(ReadEngineUrl(url, "--register", &options_.routers.emplace_back()));
  }
  if (!used()) {
    if (name_.empty() && url_.empty() && key_file_.empty()) return {};
    return Error{ErrorCode::kInvalid,
                 "--register-name, --register-url and --register-key-file need --register "
                 "http://HOST:PORT"};
  }
  if (!name_.empty() && !IsEngineName(name_)) {
    return Error{ErrorCode::kInvalid,
                 "--register-name: must be 1 to 64 letters, digits, -, _ or ."};
  }
  EngineAddress& address = options_.registration.address;
  address.port = 0;
  if (!url_.empty()) RETURN_IF_ERROR(ReadEngineUrl(url_, "--register-url", &address));
  options_.key_file = key_file_;
  if (key_file_.empty()) return {};
  return ReadFile(key_file_, kKeyBytesMax).ok()
             ? Status()
             : Error{
                   ErrorCode::kInvalid,
                   fmt::format("--register-key-file {}: cannot be read, or has more than {} bytes",
                               key_file_, kKeyBytesMax)};
}

std::unique_ptr<Announcer> RegisterFlags::Start(Engine engine) const {
  AnnouncerOptions options = options_;
  Registration& said = options.registration;
  if (said.address.port == 0) {
    said.address.host = std::move(engine.host);
    said.address.port = engine.port;
  }
  said.address.name = name_.empty() ? fmt::format("{}-{}", MachineName(), engine.port) : name_;
  said.generation = UnixMs();
  said.address.events = std::move(engine.events);
  said.program = std::move(engine.version);
  said.fingerprint = std::move(engine.fingerprint);
  options.handoff_host = std::move(engine.handoff_host);
  options.handoff_port = engine.handoff_port;
  options.on_prefills = std::move(engine.on_prefills);
  return Announcer::Start(std::move(options));
}

}  // namespace braid
