// One request on its way: chooses an engine, sends the request there, passes the answer back. Until
// the client has got the first byte of an answer the request may go to another engine; after that a
// failure ends the stream with an error in the form of its API. Network thread, but for the
// constructor.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "router/event_cutter.h"
#include "router/fleet.h"
#include "router/prompts/prompt_keys.h"
#include "server/access/api_keys.h"
#include "server/api/api_error.h"
#include "server/http/relay.h"

namespace braid {

// What a request is to engines.
struct RelayOrder {
  std::string method, target;
  std::string fields;  // see FieldsForEngine
  std::string body;
  std::string request_id;
  int64_t received_us = 0;
  Endpoint endpoint = kChat;  // whose form errors have
  PromptKeys prompt = {};
  std::unique_ptr<TenantLoad::Place> place = nullptr;  // among its tenant's requests
};

// How it ended, for the log. Times as in RequestRecord.
struct RelayOutcome {
  int status = 0;
  int64_t first_byte_us = -1;
};

class EngineRelay final : public Relay {
 public:
  using Report = std::function<void(const RelayOutcome&)>;
  EngineRelay(Fleet& fleet, RelayOrder order, Report report)
      : fleet_(fleet), order_(std::move(order)), report_(std::move(report)) {}
  ~EngineRelay() override;

  asio::awaitable<End> Run(ClientOutput& client) override;
  void Stop(EndReason reason) override;

 private:
  enum class Try : uint8_t {
    kComplete,  // the client has the whole answer, or an error as its last event
    kCut,       // the answer broke off and nothing can follow
    kAgain,     // another engine may be tried
  };
  struct Answer;

  asio::awaitable<Try> TryEngine(const Fleet::Chosen& chosen, ClientOutput& client);
  asio::awaitable<bool> Ask(Stay& stay, Answer& answer);
  asio::awaitable<bool> ReadHead(Answer& answer);
  asio::awaitable<boost::system::error_code> ReadPiece(Answer& answer, size_t* bytes);
  asio::awaitable<Try> UseAnswer(Stay& stay, Answer& answer, ClientOutput& client);
  asio::awaitable<std::optional<ApiError>> ReadLacking(Answer& answer, ClientOutput& client);
  asio::awaitable<Try> PassOn(Stay& stay, Answer& answer, ClientOutput& client);
  asio::awaitable<bool> Give(std::string_view bytes, Stay& stay, Answer& answer,
                             ClientOutput& client);
  asio::awaitable<Try> Broken(ClientOutput& client, ApiError error);
  bool MayAskOther() const;
  int64_t AttemptsMax() const;
  // Whether it needs something stored at an engine that is not known.
  bool looks_for_stored() const {
    return !found_stored_ && (!order_.prompt.stored_id.empty() || order_.prompt.names_items);
  }
  void ReadIds(std::string_view bytes, const FleetEngine& engine);
  ApiError WhyEnded() const;
  std::string RequestHead(const FleetEngine& engine) const;

  Fleet& fleet_;
  RelayOrder order_;
  Report report_;
  RelayOutcome outcome_;
  Upstream* upstream_ = nullptr;  // the connection in use
  std::vector<int32_t> tried_;
  ApiError last_error_{.status = 502};
  EventCutter cutter_;
  std::string piece_;
  std::string seen_;           // of a stored response's beginning, until its id was in it
  int64_t sequence_ = 0;       // of the next event (Responses)
  bool began_ = false;         // the client has a head
  bool committed_ = false;     // and a part of the body that is not a comment
  bool streams_ = false;       // of events
  bool stopped_ = false;       // by Stop
  bool found_stored_ = false;  // the engine is that of the stored response
  bool missed_ = false;        // an engine was busy or could not be reached
};

}  // namespace braid
