// See the header.
#include "kv_events/zmq.h"

#include "base/system/shared_library.h"

namespace braid::kv {

Result<Zmq> Zmq::Load() {
  constexpr const char* kFiles[] = {"libzmq.so.5"};
  ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::Load({.product = "ZeroMQ 4",
                                                               .purpose = "for KV events",
                                                               .package = "libzmq5",
                                                               .files = kFiles}));
  Zmq zmq{};
  library.Find("zmq_ctx_new", zmq.ctx_new);
  library.Find("zmq_ctx_term", zmq.ctx_term);
  library.Find("zmq_socket", zmq.socket);
  library.Find("zmq_close", zmq.close);
  library.Find("zmq_setsockopt", zmq.setsockopt);
  library.Find("zmq_getsockopt", zmq.getsockopt);
  library.Find("zmq_bind", zmq.bind);
  library.Find("zmq_connect", zmq.connect);
  library.Find("zmq_send", zmq.send);
  library.Find("zmq_recv", zmq.recv);
  library.Find("zmq_poll", zmq.poll);
  library.Find("zmq_errno", zmq.error);
  library.Find("zmq_strerror", zmq.error_text);
  RETURN_IF_ERROR(library.FoundAll());
  return zmq;
}

}  // namespace braid::kv
