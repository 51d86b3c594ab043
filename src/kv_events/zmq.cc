// See the header.
#include "kv_events/zmq.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace braid::kv {

Result<Zmq> Zmq::Load() {
  constexpr const char* kLibrary = "libzmq.so.5";
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("ZeroMQ 4 is needed for KV events, and {} cannot be loaded: {}. "
                             "Install it (Debian: libzmq5)",
                             kLibrary, ::dlerror()),
                 "kv_events"};
  }
  Zmq zmq{};
  std::string missing;
  const auto find = [&](const char* name, auto& to) {
    void* symbol = ::dlsym(library, name);
    if (symbol == nullptr) missing = name;
    to = reinterpret_cast<std::decay_t<decltype(to)>>(symbol);
  };
  find("zmq_ctx_new", zmq.ctx_new);
  find("zmq_ctx_term", zmq.ctx_term);
  find("zmq_socket", zmq.socket);
  find("zmq_close", zmq.close);
  find("zmq_setsockopt", zmq.setsockopt);
  find("zmq_getsockopt", zmq.getsockopt);
  find("zmq_bind", zmq.bind);
  find("zmq_connect", zmq.connect);
  find("zmq_send", zmq.send);
  find("zmq_recv", zmq.recv);
  find("zmq_poll", zmq.poll);
  find("zmq_errno", zmq.error);
  find("zmq_strerror", zmq.error_text);
  if (!missing.empty()) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} has no {}; ZeroMQ 4 is needed", kLibrary, missing), "kv_events"};
  }
  return zmq;
}

}  // namespace braid::kv
