// See the header.
#include "handoff/ucx.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/system/shared_library.h"

namespace braid::handoff {

Result<Ucx> LoadUcx() {
  // Not to take SIGHUP for its debugger, nor crashes.
  ::setenv("UCX_DEBUG_SIGNO", "0", 0);
  ::setenv("UCX_HANDLE_ERRORS", "none", 0);
  ::setenv("UCX_LOG_LEVEL", "fatal", 0);     // errors are returned, and it logs to stdout
  ::setenv("UCX_TCP_CM_REUSEADDR", "y", 0);  // an engine may start again at its port
  // An acknowledgement of a PUT that comes when its connection has been given up ends the process
  // (tcp_ep.c of 1.13 asserts that it is awaited).
  ::setenv("UCX_TCP_PUT_ENABLE", "n", 0);
  constexpr const char* kFiles[] = {"libucs.so.0", "libucp.so.0"};
  ASSIGN_OR_RETURN(SharedLibrary library,
                   SharedLibrary::Load({.product = "UCX 1.13",
                                        .purpose = "to move pages between engines",
                                        .package = "libucx0",
                                        .files = kFiles,
                                        .global = true}));
  Ucx ucx{};
  library.Find("ucp_init_version", ucx.init);
  library.Find("ucp_cleanup", ucx.cleanup);
  library.Find("ucp_config_read", ucx.config_read);
  library.Find("ucp_config_release", ucx.config_release);
  library.Find("ucp_worker_create", ucx.worker_create);
  library.Find("ucp_worker_destroy", ucx.worker_destroy);
  library.Find("ucp_worker_progress", ucx.progress);
  library.Find("ucp_worker_get_efd", ucx.get_efd);
  library.Find("ucp_worker_arm", ucx.arm);
  library.Find("ucp_worker_set_am_recv_handler", ucx.set_am_handler);
  library.Find("ucp_listener_create", ucx.listener_create);
  library.Find("ucp_listener_destroy", ucx.listener_destroy);
  library.Find("ucp_listener_query", ucx.listener_query);
  library.Find("ucp_listener_reject", ucx.listener_reject);
  library.Find("ucp_ep_create", ucx.ep_create);
  library.Find("ucp_ep_close_nbx", ucx.ep_close);
  library.Find("ucp_am_send_nbx", ucx.am_send);
  library.Find("ucp_am_recv_data_nbx", ucx.am_receive);
  library.Find("ucp_am_data_release", ucx.am_release);
  library.Find("ucp_request_free", ucx.request_free);
  library.Find("ucp_request_check_status", ucx.request_status);
  library.Find("ucs_status_string", ucx.text);
  RETURN_IF_ERROR(library.FoundAll());
  return ucx;
}

int ShutDownSockets(uint16_t port) {
  int connections = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_in at{};  // IPv6 has its port at the same place
    socklen_t size = sizeof(at);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) continue;
    if ((at.sin_family != AF_INET && at.sin_family != AF_INET6) || ntohs(at.sin_port) != port) {
      continue;
    }
    connections += ::getpeername(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0;
    (void)::shutdown(fd, SHUT_RDWR);
  }
  return connections;
}

}  // namespace braid::handoff
