// The engine's side of a registration: tells one or more routers again and again where it is, and
// at its end that it leaves. A thread of its own; no router delays another one or the engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/system/name_lookup.h"
#include "router/registration/registration.h"

namespace braid {

struct AnnouncerOptions {
  std::vector<EngineAddress> routers;  // names and keys are not used
  // File with the key that routers ask for, read again each time, so that it can be changed while
  // the engine runs; empty: there is none.
  std::string key_file;
  // What is said. In place of an address of the kind that stands for all of a machine's (::) others
  // are told the one from which their router is reached: of the engine, its events and its pages.
  Registration registration;
  std::string handoff_host;   // of a prefill engine
  uint16_t handoff_port = 0;  // 0: it is none
  // Gets the addresses of the prefill engines that any of the routers named last, with each lease,
  // on the announcer's thread; may be empty.
  std::function<void(std::vector<std::string>)> on_prefills;
  // Of the routers' names; several are at work at the same time.
  NameLookup::Resolver resolver = [](const HostPort& at) { return Resolve(at); };
};

class Announcer {
 public:
  static std::unique_ptr<Announcer> Start(AnnouncerOptions options);
  ~Announcer();  // leaves; takes at most about a second

 private:
  struct State;
  explicit Announcer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
