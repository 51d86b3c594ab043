// A relay, because the choice is made on the network thread.
#include "router/choice_answer.h"

#include <fmt/core.h>

#include "server/api/api_error.h"
#include "server/routes/json_response.h"

namespace braid {

asio::awaitable<Relay::End> ChoiceAnswer::Run(ClientOutput&) {
  std::vector<int32_t> tried;
  if (!subset_.empty()) tried = fleet_.Outside(subset_);
  const Fleet::Chosen chosen = fleet_.Choose(prompt_, tried);
  if (chosen.engine == nullptr) {
    fleet_.metrics().CountRejection();
    const std::string why = fleet_.WhyNone(tried);
    co_return End{.response = ErrorResponse(
                      {503,
                       fmt::format("no engine can take the request: {}",
                                   why.empty() ? "none is at an address of the subset" : why),
                       {},
                       "no_engine"})};
  }
  const EngineAddress& address = chosen.engine->address;
  tried.push_back(chosen.engine->number);
  json::array fallbacks;
  for (const std::string& other : fleet_.Others(tried)) {
    if (std::ssize(fallbacks) + 1 < fleet_.config().attempts) fallbacks.emplace_back(other);
  }
  HttpResponse response{
      .body = json::serialize(json::object{{"engine", address.name},
                                           {"url", fmt::format("http://{}", address.authority())},
                                           {"reason", NameOf(chosen.choice.reason)},
                                           {"reused_tokens", chosen.choice.reused_tokens},
                                           {"computed_tokens", chosen.choice.computed_tokens},
                                           {"fallbacks", fallbacks}}),
      .headers =
          fmt::format("x-gateway-destination-endpoint: {}\r\n", chosen.engine->destination())};
  co_return End{.response = std::move(response)};
}

}  // namespace braid
