// Connections, who is paired, and what partners say; see partners_state.h.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "base/system/secure_random.h"
#include "handoff/partners_state.h"

namespace braid::handoff {
namespace {

constexpr int64_t kReconnectUs = 1'000'000;
constexpr int32_t kDoublings = 3;       // of that, as connections fail
constexpr int32_t kStrangersSaid = 10;  // refusals in the log, a minute: anybody may connect
constexpr int64_t kMinuteUs = 60'000'000;
constexpr size_t kPeersMax = 64, kNonceBytes = 16;

}  // namespace

void Partners::State::Connect(int64_t now_us) {
  bool gone = false;
  {
    std::lock_guard lock(mutex);
    gone = leaves;
  }
  if (gone) return;
  for (auto& [text, prefill_engine] : prefills) {
    const auto is_it = [&](const auto& entry) { return entry.second.prefill == text; };
    const int64_t pause_us = kReconnectUs << std::min(prefill_engine.failures, kDoublings);
    if (now_us - prefill_engine.tried_us < pause_us || std::ranges::any_of(peers, is_it)) continue;
    const Result<ConnectionId> connection = transport->Connect(prefill_engine.at);
    if (connection && !connection->valid()) continue;  // its name is being looked up
    prefill_engine.tried_us = now_us;
    Peer made{.name = "prefill engine " + text,
              .prefill = text,
              .nonces = {},
              .session = {},
              .heard_us = now_us,
              .said_us = now_us};
    if (!connection) {
      Failed(made, "cannot be reached", connection.error().message);
      continue;
    }
    Peer& peer = peers[*connection] = std::move(made);
    peer.nonces.decode = SecureRandomHex(kNonceBytes);
    TellPeer(*connection, SessionId(0),
             Hello{kProtocolVersion, options.fingerprint, peer.nonces.decode, ""});
  }
}

bool Partners::State::IsNews(const Peer& peer, const std::string& what) {
  const auto at = peer.prefill ? prefills.find(*peer.prefill) : prefills.end();
  if (at != prefills.end()) return std::exchange(at->second.refused, what) != what;
  const int64_t now_us = MonotonicUs();
  if (now_us - strangers_since_us >= kMinuteUs) {
    strangers_since_us = now_us;
    strangers_said = 0;
  }
  return strangers_said++ < kStrangersSaid;
}

void Partners::State::Failed(Peer& peer, const std::string& what, const std::string& why) {
  peer.refused = true;
  const auto at = peer.prefill ? prefills.find(*peer.prefill) : prefills.end();
  if (at != prefills.end()) ++at->second.failures;
  if (IsNews(peer, why)) LogError("the {} {}: {}", peer.name, what, why);
}

void Partners::State::TellPeer(ConnectionId to, SessionId session, Body body) {
  if (const auto at = peers.find(to); at != peers.end()) at->second.said_us = MonotonicUs();
  transport->Send(to, Encode({session, std::move(body)}));
}

void Partners::State::Tell(SessionId to, Body body) {
  const auto at = sessions.find(to);
  if (at != sessions.end()) TellPeer(at->second, to, std::move(body));
}

void Partners::State::OnHello(ConnectionId from, Peer& peer, const Hello& hello) {
  if (peer.session.valid()) return;
  const bool decodes = options.side == Side::kDecode;
  const bool first = !decodes && peer.nonces.prefill.empty();
  if (first || decodes) {
    if (hello.version != kProtocolVersion) {
      return Refuse(from, fmt::format("the hand-off protocol's version is {} there and {} here",
                                      hello.version, kProtocolVersion));
    }
    const std::string differs = Difference(options.fingerprint, hello.fingerprint);
    if (!differs.empty()) return Refuse(from, differs);
  }
  if (first && driver == nullptr) {
    peer.refused = true;
    return TellPeer(from, SessionId(0), Refusal{RoomId(0), "its weights are being loaded"});
  }
  if (first) {
    peer.nonces.decode = hello.nonce;
    peer.nonces.prefill = SecureRandomHex(kNonceBytes);
    return TellPeer(from, SessionId(0),
                    Hello{kProtocolVersion, options.fingerprint, peer.nonces.prefill,
                          Prove(options.keys.front(), Side::kPrefill, peer.nonces)});
  }
  if (decodes) peer.nonces.prefill = hello.nonce;
  const std::string* key = &options.keys.front();
  if (decodes) {
    key = KeyProved(options.keys, hello.proof, peer.nonces);
  } else if (!SameProof(hello.proof, Prove(*key, Side::kDecode, peer.nonces))) {
    key = nullptr;
  }
  if (key == nullptr) {
    return Refuse(from, "the --handoff-key-file of the two engines differ");
  }
  if (decodes) {
    TellPeer(from, SessionId(0),
             Hello{kProtocolVersion, "", "", Prove(*key, Side::kDecode, peer.nonces)});
  }
  Paired(from, peer);
}

void Partners::State::Paired(ConnectionId from, Peer& peer) {
  peer.session = SessionOf(peer.nonces);
  sessions[peer.session] = from;
  transport->Trust(from);
  if (options.side == Side::kPrefill) {
    prefill.Joined(peer.session);
  } else {
    choice.Joined(peer.session);
  }
  if (const auto at = peer.prefill ? prefills.find(*peer.prefill) : prefills.end();
      at != prefills.end()) {
    at->second.refused.clear();
    at->second.failures = 0;
  }
  ++stats.partners;
  alone = false;
  LogInfo("paired with the {}", peer.name);
}

void Partners::State::Refuse(ConnectionId from, const std::string& why) {
  const std::string reason = why.substr(0, kReasonBytesMax);  // it has words of the other side
  TellPeer(from, SessionId(0), Refusal{RoomId(0), reason});
  Failed(peers.at(from), "is no partner", reason);
}

// Closing ends what is under way. That is reported afterwards: rooms whose pages are being read or
// written wait for it.
void Partners::State::Drop(ConnectionId connection, const std::string& why) {
  transport->Close(connection);
  OnLost(connection, why);
}

void Partners::State::OnAccepted(ConnectionId connection) {
  bool gone = options.side != Side::kPrefill;
  {
    std::lock_guard lock(mutex);
    gone |= leaves;
  }
  // Whoever is not paired keeps nobody out: the oldest of them makes way.
  if (!gone && peers.size() >= kPeersMax) {
    const auto stranger = std::ranges::find_if(
        peers, [](const auto& entry) { return !entry.second.session.valid(); });
    gone = stranger == peers.end();
    if (!gone) Drop(stranger->first, "others came");
  }
  if (gone) return transport->Close(connection);
  const int64_t now_us = MonotonicUs();
  peers[connection] = {.name = fmt::format("decode engine of connection {}", connection.value),
                       .prefill = {},
                       .nonces = {},
                       .session = {},
                       .heard_us = now_us,
                       .said_us = now_us};
}

void Partners::State::OnLost(ConnectionId connection, const std::string& why) {
  const auto at = peers.find(connection);
  if (at == peers.end()) return;
  Peer peer = at->second;
  peers.erase(at);
  if (!peer.session.valid()) {
    if (peer.prefill && !peer.refused && why != kStops) Failed(peer, "cannot be reached", why);
    return;
  }
  if (why == kStops) {
    LogInfo("the connection to the {} is closed: {}", peer.name, why);
  } else {
    LogWarning("the {} is lost: {}", peer.name, why);
  }
  --stats.partners;
  sessions.erase(peer.session);
  choice.Lost(peer.session);
  DecodeRooms::Effects arriving;
  decode.Lost(peer.session, fmt::format("the {} is lost: {}", peer.name, why), arriving);
  Apply(arriving);
  PrefillRooms::Effects leaving;
  prefill.Lost(peer.session, leaving);
  Apply(leaving);
}

void Partners::State::OnMessage(ConnectionId connection, std::string_view bytes) {
  const auto at = peers.find(connection);
  if (at == peers.end()) return;
  Peer& peer = at->second;
  const std::optional<Message> message = Decode(bytes);
  if (!message) return;
  if (!peer.session.valid()) {
    if (peer.refused) return;
    if (const auto* hello = std::get_if<Hello>(&message->body)) OnHello(connection, peer, *hello);
    if (const auto* refusal = std::get_if<Refusal>(&message->body); refusal && peer.prefill) {
      Failed(peer, "refuses this engine", refusal->reason);
    }
    return;
  }
  if (message->session != peer.session) return;
  peer.heard_us = MonotonicUs();
  DecodeRooms::Effects arriving;
  PrefillRooms::Effects leaving;
  const SessionId from = peer.session;
  if (options.side == Side::kDecode) {
    if (const auto* m = std::get_if<Last>(&message->body)) {
      decode.On(from, *m, peer.heard_us, arriving);
    }
    if (const auto* m = std::get_if<Refusal>(&message->body)) decode.On(from, *m, arriving);
    if (const auto* m = std::get_if<Unfit>(&message->body)) decode.On(from, *m, arriving);
  } else {
    if (const auto* m = std::get_if<Ask>(&message->body)) {
      prefill.On(from, *m, peer.heard_us, leaving);
    }
    if (const auto* m = std::get_if<Cancel>(&message->body)) prefill.On(from, *m, leaving);
    if (const auto* m = std::get_if<Took>(&message->body)) prefill.On(from, *m, leaving);
  }
  Apply(arriving);
  Apply(leaving);
}

Transport::Place Partners::State::OnData(ConnectionId connection, std::string_view header,
                                         size_t bytes) {
  const auto at = peers.find(connection);
  const std::optional<Message> message = Decode(header);
  if (at == peers.end() || !message || message->session != at->second.session) return {};
  const auto* head = std::get_if<PartHead>(&message->body);
  if (head == nullptr) return {};
  const auto arrival = arrivals.find(head->room);
  if (arrival == arrivals.end()) return {};
  const auto page = arrival->second.pages.find(head->part);
  if (page == arrival->second.pages.end() || page->second.size != bytes) return {};
  std::byte* to = this->bytes->Take(page->second);
  if (to == nullptr) return {.later = true};  // asked again and again: no word of the partner
  at->second.heard_us = MonotonicUs();
  if (!decode.BeginWrite(message->session, *head, at->second.heard_us)) {
    this->bytes->Free(to);
    return {};
  }
  writes[++cookies] = {head->room, head->part, head->checksum, page->second, to};
  return {to, cookies};
}

}  // namespace braid::handoff
