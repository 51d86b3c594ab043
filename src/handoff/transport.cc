// Active messages of UCX 1.13. Messages go as the data of one id, pages as the data of another,
// with their heads as headers. Large data is received by rendezvous: it comes when the receiver has
// said where to, so no peer ever holds an address of this process.
#include "handoff/transport.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "handoff/ucx.h"

namespace braid::handoff {
namespace {

constexpr unsigned kMessageId = 1, kDataId = 2;
// What may wait of a stranger: a partner's first messages come right behind its proof.
constexpr size_t kStrangerWaitingMax = 64, kStrangerWaitingBytesMax = size_t{64} << 10;
constexpr int64_t kProgressUs = 10'000;
constexpr int kOpenTries = 20, kOpenPauseMs = 50;

ucs_sock_addr_t Sockaddr(const NetAddress& address) {
  return {reinterpret_cast<const sockaddr*>(&address.bytes), address.size};
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(const Ucx& ucx, Owner& owner) : ucx_(ucx), owner_(owner) {}
  ~UcxTransport() override;
  Status Open();

  Result<uint16_t> Listen(const HostPort& at) override;
  Result<ConnectionId> Connect(const HostPort& to) override;
  void Trust(ConnectionId connection) override;
  void Send(ConnectionId to, std::string message) override {
    auto* send = new Operation{.transport = this, .connection = to, .text = std::move(message)};
    Start(send, kMessageId);
  }
  void SendData(ConnectionId to, std::string header, Data data) override {
    Start(new Operation{.transport = this,
                        .connection = to,
                        .text = std::move(header),
                        .data = data,
                        .counts = true},
          kDataId);
  }
  void Close(ConnectionId connection) override;
  void Progress() override;
  void Wait(int32_t most_ms) override;
  void Wake() override {
    const uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof(one));
  }

 private:
  // A send or a receive, until UCX has ended it.
  struct Operation {
    UcxTransport* transport;
    ConnectionId connection;
    std::string text;
    Data data;
    bool counts = false;  // it is reported
  };
  // A message that waits for those before it.
  struct Waiting {
    void* descriptor = nullptr;  // of UCX, from which it is received; null: it is `text`
    std::string text;
    size_t size = 0;
  };
  struct Connection {
    ucp_ep_h endpoint = nullptr;
    std::string lost = {};  // not empty: to be reported
    bool trusted = false;
    // Messages that are being received, or that the owner has not been told.
    size_t coming = 0, coming_bytes = 0;
    std::deque<Waiting> waiting = {};
    size_t waiting_bytes = 0;  // of their texts
  };

  // Data for which there was no place yet.
  struct Held {
    ConnectionId from;
    std::string header;
    void* descriptor = nullptr;  // of UCX, from which it is received; null: it is in `data`
    std::vector<std::byte> data;
    size_t size = 0;
  };

  Status Check(ucs_status_t status, const char* what) const {
    if (status == UCS_OK) return {};
    return Error{ErrorCode::kUnavailable, fmt::format("UCX: {}: {}", what, ucx_.text(status))};
  }
  void EndListening();
  void Close(ucp_ep_h endpoint);
  Result<ConnectionId> Add(ucp_ep_params_t params);
  void Start(Operation* send, unsigned id);
  ConnectionId Find(ucp_ep_h endpoint) const;
  ucs_status_t TakeMessage(ConnectionId from, void* data, size_t bytes, bool rendezvous);
  ucs_status_t TakeData(ConnectionId from, std::string_view header, std::pair<void*, size_t> data,
                        bool rendezvous);
  ucs_status_t TakeAt(const Place& place, ConnectionId from, std::pair<void*, size_t> data,
                      bool rendezvous);
  void ReceiveWaiting(ConnectionId from, Connection& of);
  void Told(ConnectionId from, size_t bytes);
  void DropWaiting(Connection& of);
  void ReceiveHeld();
  void DropHeld(ConnectionId from);
  void EndMessage(Operation* receive, ucs_status_t status);
  void EndData(Operation* receive, ucs_status_t status);
  // Ends of operations, and losses, are reported in Progress and not inside calls of UCX.
  void Report();

  bool news() const {
    return !requests_.empty() || !sent_.empty() || !received_.empty() || !messages_.empty();
  }

  template <void (UcxTransport::*kEnd)(Operation*, ucs_status_t)>
  ucs_status_t Receive(Operation* receive, void* descriptor, void* to, size_t bytes);

  static void OnSend(void* request, ucs_status_t status, void* user) {
    auto* send = static_cast<Operation*>(user);
    UcxTransport* transport = send->transport;
    transport->ucx_.request_free(request);
    transport->EndSend(send, status);
  }
  void EndSend(Operation* send, ucs_status_t status) {
    if (send->counts) sent_.emplace_back(send->data.cookie, status == UCS_OK);
    delete send;
  }
  static void OnError(void* user, ucp_ep_h endpoint, ucs_status_t status) {
    auto* transport = static_cast<UcxTransport*>(user);
    for (auto& [id, connection] : transport->connections_) {
      if (connection.endpoint != endpoint) continue;
      connection.lost = transport->ucx_.text(status);
    }
  }
  static void OnRequest(ucp_conn_request_h request, void* user) {
    static_cast<UcxTransport*>(user)->requests_.push_back(request);
  }
  static ucs_status_t OnActiveMessage(void* user, const void*, size_t, void* data, size_t bytes,
                                      const ucp_am_recv_param_t* param) {
    auto* transport = static_cast<UcxTransport*>(user);
    const ConnectionId from = transport->Find(param->reply_ep);
    const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    return transport->TakeMessage(from, data, bytes, rendezvous);
  }
  static ucs_status_t OnActiveData(void* user, const void* header, size_t header_bytes, void* data,
                                   size_t bytes, const ucp_am_recv_param_t* param) {
    auto* transport = static_cast<UcxTransport*>(user);
    const ConnectionId from = transport->Find(param->reply_ep);
    const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    return transport->TakeData(from, {static_cast<const char*>(header), header_bytes},
                               {data, bytes}, rendezvous);
  }

  const Ucx ucx_;
  Owner& owner_;
  std::optional<NameLookup> names_{[this] { Wake(); }};
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  uint16_t port_ = 0;  // where it listens
  int efd_ = -1, wake_ = -1;
  bool idle_ = false;  // nothing was left to do when UCX was called last
  int64_t connected_ = 0;
  std::map<ConnectionId, Connection> connections_;
  std::list<Held> held_;  // in the order in which it came
  std::vector<ucp_conn_request_h> requests_;
  // To be reported.
  std::vector<std::pair<uint64_t, bool>> sent_, received_;
  std::vector<std::pair<ConnectionId, std::string>> messages_;
};

// The owner is told nothing from here on.
UcxTransport::~UcxTransport() {
  names_.reset();  // it wakes this
  for (auto& [id, connection] : std::exchange(connections_, {})) {
    DropHeld(id);
    DropWaiting(connection);
    Close(connection.endpoint);
  }
  while (worker_ != nullptr && ucx_.progress(worker_) != 0) continue;  // operations end
  if (listener_ != nullptr) EndListening();
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  if (context_ != nullptr) ucx_.cleanup(context_);
  if (wake_ >= 0) ::close(wake_);
}

// The thread of UCX 1.13 accepts connections, and uses the listener when the first bytes of one
// come, even if it has been destroyed. So connections that are not complete end first. Those that
// are complete and not answered are refused, which UCX does not do by itself.
void UcxTransport::EndListening() {
  // A millisecond each; one that was accepted meanwhile is found by the next.
  constexpr int kTriesLeast = 3, kTriesMost = 200;
  for (int i = 0; (ShutDownSockets(port_) > 0 || i < kTriesLeast) && i < kTriesMost; ++i) {
    while (ucx_.progress(worker_) != 0 || !requests_.empty()) {
      for (const ucp_conn_request_h request : std::exchange(requests_, {})) {
        (void)ucx_.listener_reject(listener_, request);
      }
    }
    ::poll(nullptr, 0, 1);
  }
  ucx_.listener_destroy(listener_);
}

Status UcxTransport::Open() {
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_ < 0)
    return Error{ErrorCode::kInternal, "eventfd: " + std::string(std::strerror(errno))};
  ucp_config_t* config = nullptr;
  RETURN_IF_ERROR(Check(ucx_.config_read(nullptr, nullptr, &config), "its configuration"));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  const ucs_status_t status = ucx_.init(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_.config_release(config);
  RETURN_IF_ERROR(Check(status, "start"));
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  RETURN_IF_ERROR(Check(ucx_.worker_create(context_, &worker, &worker_), "a worker"));
  RETURN_IF_ERROR(Check(ucx_.get_efd(worker_, &efd_), "a descriptor to wait for"));
  ucp_am_handler_param_t take{};
  take.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                    UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  take.flags = UCP_AM_FLAG_WHOLE_MSG;
  take.arg = this;
  take.id = kMessageId;
  take.cb = &OnActiveMessage;
  RETURN_IF_ERROR(Check(ucx_.set_am_handler(worker_, &take), "messages"));
  take.id = kDataId;
  take.cb = &OnActiveData;
  return Check(ucx_.set_am_handler(worker_, &take), "messages");
}

Result<uint16_t> UcxTransport::Listen(const HostPort& at) {
  ASSIGN_OR_RETURN(const std::vector<NetAddress> addresses, Resolve(at));
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = Sockaddr(addresses.front());
  params.conn_handler = {&OnRequest, this};
  const Status status = Check(ucx_.listener_create(worker_, &params, &listener_),
                              fmt::format("listen at {}:{}", at.host, at.port).c_str());
  if (!status) return status.error();
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  RETURN_IF_ERROR(Check(ucx_.listener_query(listener_, &attributes), "its port"));
  sockaddr_in in{};
  std::memcpy(&in, &attributes.sockaddr, sizeof(in));  // IPv6 has its port at the same place
  port_ = ntohs(in.sin_port);
  return port_;
}

Result<ConnectionId> UcxTransport::Connect(const HostPort& to) {
  ASSIGN_OR_RETURN(const std::optional<NetAddress> address, names_->Next(to));
  if (!address) return ConnectionId();
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = Sockaddr(*address);
  return Add(params);
}

Result<ConnectionId> UcxTransport::Add(ucp_ep_params_t params) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&OnError, this};
  Connection connection;
  RETURN_IF_ERROR(Check(ucx_.ep_create(worker_, &params, &connection.endpoint), "a connection"));
  const ConnectionId id(connected_++);
  connections_.emplace(id, std::move(connection));
  return id;
}

ConnectionId UcxTransport::Find(ucp_ep_h endpoint) const {
  for (const auto& [id, connection] : connections_) {
    if (connection.endpoint == endpoint && endpoint != nullptr) return id;
  }
  return {};
}

void UcxTransport::Start(Operation* send, unsigned id) {
  const auto at = connections_.find(send->connection);
  if (at == connections_.end() || !at->second.lost.empty()) {
    return EndSend(send, UCS_ERR_CONNECTION_RESET);
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_REPLY;
  param.cb.send = &OnSend;
  param.user_data = send;
  const bool page = id == kDataId;
  const void* data = page ? static_cast<const void*>(send->data.bytes) : send->text.data();
  const size_t bytes = page ? send->data.size : send->text.size();
  const ucs_status_ptr_t status =
      ucx_.am_send(at->second.endpoint, id, page ? send->text.data() : nullptr,
                   page ? send->text.size() : 0, data, bytes, &param);
  if (status == nullptr) return EndSend(send, UCS_OK);
  if (UCS_PTR_IS_ERR(status)) EndSend(send, UCS_PTR_STATUS(status));
}

template <void (UcxTransport::*kEnd)(UcxTransport::Operation*, ucs_status_t)>
ucs_status_t UcxTransport::Receive(Operation* receive, void* descriptor, void* to, size_t bytes) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = receive;
  param.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user) {
    auto* ended = static_cast<Operation*>(user);
    UcxTransport* transport = ended->transport;
    transport->ucx_.request_free(request);
    (transport->*kEnd)(ended, status);
  };
  const ucs_status_ptr_t status = ucx_.am_receive(worker_, descriptor, to, bytes, &param);
  if (status == nullptr) {
    (this->*kEnd)(receive, UCS_OK);
  } else if (UCS_PTR_IS_ERR(status)) {
    (this->*kEnd)(receive, UCS_PTR_STATUS(status));
  }
  return UCS_INPROGRESS;
}

void UcxTransport::Trust(ConnectionId connection) {
  const auto at = connections_.find(connection);
  if (at == connections_.end()) return;
  at->second.trusted = true;
  ReceiveWaiting(connection, at->second);
}

ucs_status_t UcxTransport::TakeMessage(ConnectionId from, void* data, size_t bytes,
                                       bool rendezvous) {
  const auto at = connections_.find(from);
  if (at == connections_.end() || !at->second.lost.empty()) return UCS_OK;  // dropped
  Connection& of = at->second;
  Waiting& message = of.waiting.emplace_back();
  message.size = bytes;
  if (rendezvous) {
    message.descriptor = data;
  } else {
    message.text.assign(static_cast<const char*>(data), bytes);
    of.waiting_bytes += bytes;
  }
  ReceiveWaiting(from, of);
  if (!of.trusted &&
      (of.waiting.size() > kStrangerWaitingMax || of.waiting_bytes > kStrangerWaitingBytesMax)) {
    of.lost = "it sends more than one message before it is paired";
  }
  return rendezvous ? UCS_INPROGRESS : UCS_OK;
}

// As many as may come at once. UCX has the rest, but for small ones.
void UcxTransport::ReceiveWaiting(ConnectionId from, Connection& of) {
  const size_t most = of.trusted ? kMessageBytesMax : kStrangerBytesMax;
  while (!of.waiting.empty() && of.lost.empty()) {
    const size_t size = of.waiting.front().size;
    if (size > most) {
      of.lost = fmt::format("it sends a message of {} bytes, at most {} are taken{}", size, most,
                            of.trusted ? "" : " before it is paired");
      return;
    }
    if (of.coming > 0 && (!of.trusted || size > most - of.coming_bytes)) return;
    Waiting next = std::move(of.waiting.front());
    of.waiting.pop_front();
    of.waiting_bytes -= next.text.size();
    ++of.coming;
    of.coming_bytes += size;
    auto* receive =
        new Operation{.transport = this, .connection = from, .text = std::move(next.text)};
    if (next.descriptor == nullptr) {
      EndMessage(receive, UCS_OK);
      continue;
    }
    receive->text.resize(size);
    (void)Receive<&UcxTransport::EndMessage>(receive, next.descriptor, receive->text.data(), size);
  }
}

// A message has been told, so another may come.
void UcxTransport::Told(ConnectionId from, size_t bytes) {
  const auto at = connections_.find(from);
  if (at == connections_.end()) return;
  --at->second.coming;
  at->second.coming_bytes -= bytes;
  ReceiveWaiting(from, at->second);
}

// Of a connection that is closed.
void UcxTransport::DropWaiting(Connection& of) {
  for (const Waiting& message : std::exchange(of.waiting, {})) {
    if (message.descriptor != nullptr) ucx_.am_release(worker_, message.descriptor);
  }
}

ucs_status_t UcxTransport::TakeData(ConnectionId from, std::string_view header,
                                    std::pair<void*, size_t> data, bool rendezvous) {
  const auto at = connections_.find(from);
  if (at == connections_.end() || header.size() > kHeaderBytesMax) return UCS_OK;  // dropped
  if (!at->second.trusted) {
    if (at->second.lost.empty()) at->second.lost = "it sends pages before it is paired";
    return UCS_OK;
  }
  const bool waits =
      std::ranges::any_of(held_, [&](const Held& held) { return held.from == from; });
  const Place place = waits ? Place{.later = true} : owner_.OnData(from, header, data.second);
  if (place.later) {
    Held& held = held_.emplace_back(from, std::string(header));
    held.size = data.second;
    if (rendezvous) {
      held.descriptor = data.first;
      return UCS_INPROGRESS;
    }
    const auto* begin = static_cast<const std::byte*>(data.first);
    held.data.assign(begin, begin + data.second);
    return UCS_OK;
  }
  return TakeAt(place, from, data, rendezvous);
}

// What waits first, of each connection until one waits on.
void UcxTransport::ReceiveHeld() {
  std::set<ConnectionId> waiting;
  for (auto at = held_.begin(); at != held_.end();) {
    const Place place = waiting.contains(at->from) ? Place{.later = true}
                                                   : owner_.OnData(at->from, at->header, at->size);
    if (place.later) {
      waiting.insert((at++)->from);
      continue;
    }
    Held now = std::move(*at);
    at = held_.erase(at);
    const bool rendezvous = now.descriptor != nullptr;
    void* data = rendezvous ? now.descriptor : now.data.data();
    const ucs_status_t status = TakeAt(place, now.from, {data, now.size}, rendezvous);
    if (rendezvous && status == UCS_OK) ucx_.am_release(worker_, now.descriptor);
  }
}

// Of a connection that is closed.
void UcxTransport::DropHeld(ConnectionId from) {
  std::erase_if(held_, [&](const Held& held) {
    if (held.from != from) return false;
    if (held.descriptor != nullptr) ucx_.am_release(worker_, held.descriptor);
    return true;
  });
}

// UCS_OK: the descriptor is not needed any more.
ucs_status_t UcxTransport::TakeAt(const Place& place, ConnectionId from,
                                  std::pair<void*, size_t> data, bool rendezvous) {
  if (place.data == nullptr) return UCS_OK;
  auto* receive = new Operation{.transport = this, .connection = from};
  receive->data.cookie = place.cookie;
  if (!rendezvous) {
    std::memcpy(place.data, data.first, data.second);
    EndData(receive, UCS_OK);
    return UCS_OK;
  }
  return Receive<&UcxTransport::EndData>(receive, data.first, place.data, data.second);
}

void UcxTransport::EndMessage(Operation* receive, ucs_status_t status) {
  const auto at = connections_.find(receive->connection);
  if (status == UCS_OK) {
    messages_.emplace_back(receive->connection, std::move(receive->text));
  } else if (at != connections_.end() && at->second.lost.empty()) {
    at->second.lost = ucx_.text(status);
  }
  delete receive;
}

void UcxTransport::EndData(Operation* receive, ucs_status_t status) {
  received_.emplace_back(receive->data.cookie, status == UCS_OK);
  delete receive;
}

void UcxTransport::Close(ConnectionId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  const ucp_ep_h endpoint = at->second.endpoint;
  DropWaiting(at->second);
  connections_.erase(at);
  DropHeld(id);
  Close(endpoint);
}

void UcxTransport::Close(ucp_ep_h endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucx_.ep_close(endpoint, &param);
  if (!UCS_PTR_IS_PTR(closing)) return;
  while (ucx_.request_status(closing) == UCS_INPROGRESS) ucx_.progress(worker_);
  ucx_.request_free(closing);
}

// Returns as soon as there is something to report: data that has come is still in the caches then.
// And soon in any case: the owner has more to do than to drop what comes.
void UcxTransport::Progress() {
  ReceiveHeld();
  const int64_t end_us = MonotonicUs() + kProgressUs;
  do {
    idle_ = ucx_.progress(worker_) == 0;
  } while (!idle_ && !news() && MonotonicUs() < end_us);
  for (const ucp_conn_request_h request : std::exchange(requests_, {})) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    if (const Result<ConnectionId> accepted = Add(params)) owner_.OnAccepted(*accepted);
  }
  Report();
}

void UcxTransport::Report() {
  for (const auto& [cookie, whole] : std::exchange(received_, {})) {
    owner_.OnReceived(cookie, whole);
  }
  for (const auto& [cookie, whole] : std::exchange(sent_, {})) owner_.OnSent(cookie, whole);
  for (const auto& [from, message] : std::exchange(messages_, {})) {
    if (!connections_.contains(from)) continue;
    owner_.OnMessage(from, message);
    Told(from, message.size());
  }
  std::vector<std::pair<ConnectionId, std::string>> lost;
  for (auto& [id, connection] : connections_) {
    if (!connection.lost.empty()) lost.emplace_back(id, connection.lost);
  }
  for (const auto& [id, why] : lost) {
    Close(id);
    owner_.OnLost(id, why);
  }
}

void UcxTransport::Wait(int32_t most_ms) {
  if (!idle_ || news() || ucx_.arm(worker_) == UCS_ERR_BUSY) return;
  pollfd wait[] = {{efd_, POLLIN, 0}, {wake_, POLLIN, 0}};
  ::poll(wait, 2, most_ms);
  uint64_t count = 0;
  (void)!::read(wake_, &count, sizeof(count));
}

}  // namespace

Result<HostPort> ParseHostPort(std::string_view text) {
  const Error bad{ErrorCode::kInvalid,
                  fmt::format("{} is not HOST:PORT, as in 10.0.0.1:7000", text)};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad;
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  HostPort at{std::string(host), 0};
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), at.port);
  if (host.empty() || error != std::errc() || end != port.data() + port.size()) return bad;
  return at;
}

Result<std::unique_ptr<Transport>> Transport::Create(Owner& owner) {
  ASSIGN_OR_RETURN(const Ucx ucx, LoadUcx());
  return CreateWith(ucx, owner);
}

// UCX lists the network interfaces and opens each of them. It fails when one of them goes in
// between, as those of containers do, so a failure may be over at the next try.
Result<std::unique_ptr<Transport>> Transport::CreateWith(const Ucx& ucx, Owner& owner) {
  Status status;
  for (int tries = 0; tries < kOpenTries; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(kOpenPauseMs));
    auto transport = std::make_unique<UcxTransport>(ucx, owner);
    status = transport->Open();
    if (status) return std::unique_ptr<Transport>(std::move(transport));
  }
  return status.error();
}

}  // namespace braid::handoff
