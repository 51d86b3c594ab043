// The functions of libucp that transport.cc calls, loaded when the first transport is made, and
// what libucp leaves to its user. Any thread.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>

#include "base/result.h"

namespace braid::handoff {

struct Ucx {
  decltype(&ucp_init_version) init;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_progress) progress;
  decltype(&ucp_worker_get_efd) get_efd;
  decltype(&ucp_worker_arm) arm;
  decltype(&ucp_worker_set_am_recv_handler) set_am_handler;
  decltype(&ucp_listener_create) listener_create;
  decltype(&ucp_listener_destroy) listener_destroy;
  decltype(&ucp_listener_query) listener_query;
  decltype(&ucp_listener_reject) listener_reject;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close;
  decltype(&ucp_am_send_nbx) am_send;
  decltype(&ucp_am_recv_data_nbx) am_receive;
  decltype(&ucp_am_data_release) am_release;
  decltype(&ucp_request_free) request_free;
  decltype(&ucp_request_check_status) request_status;
  decltype(&ucs_status_string) text;
};

// kUnavailable, with the package that is missing, where there is no libucp.
Result<Ucx> LoadUcx();

// Shuts down the socket that listens at a port of this process and its connections, whose
// descriptors UCX does not tell. Returns how many connections there were.
int ShutDownSockets(uint16_t port);

}  // namespace braid::handoff
