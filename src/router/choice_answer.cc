// A relay, because the choice is made on the network thread.
#include "router/choice_answer.h"

#include <fmt/core.h>

#include "server/api/api_error.h"
#include "server/routes/json_response.h"

namespace braid {

asio::awaitable<Relay::End> ChoiceAnswer::Run(ClientOutput&) {
  const Fleet::Chosen chosen = fleet_.Choose(prompt_, {});
  if (chosen.engine == nullptr) {
    fleet_.metrics().CountRejection();
    co_return End{.response = ErrorResponse(
                      {503,
                       fmt::format("no engine can take the request: {}", fleet_.WhyNone()),
                       {},
                       "no_engine"})};
  }
  const EngineAddress& address = chosen.engine->address;
  HttpResponse response{
      .body = json::serialize(json::object{{"engine", address.name},
                                           {"url", fmt::format("http://{}", address.authority())},
                                           {"reason", NameOf(chosen.choice.reason)},
                                           {"reused_tokens", chosen.choice.reused_tokens},
                                           {"computed_tokens", chosen.choice.computed_tokens}}),
      .headers = fmt::format("x-gateway-destination-endpoint: {}\r\n", address.authority())};
  co_return End{.response = std::move(response)};
}

}  // namespace braid
