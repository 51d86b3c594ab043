// The answer to POST /route/…: which engine a request should go to, for gateways that send it there
// themselves. It counts as sent, so that the next ones with its beginning are told the same.
#pragma once

#include <string>

#include "router/fleet.h"
#include "router/prompts/prompt_keys.h"
#include "server/http/relay.h"

namespace braid {

class ChoiceAnswer final : public Relay {
 public:
  // `subset`: the destinations that it is bounded to, separated by commas; empty: it is not.
  ChoiceAnswer(Fleet& fleet, PromptKeys prompt, std::string subset)
      : fleet_(fleet), prompt_(std::move(prompt)), subset_(std::move(subset)) {}

  asio::awaitable<End> Run(ClientOutput& client) override;
  void Stop(EndReason) override {}  // it never waits

 private:
  Fleet& fleet_;
  const PromptKeys prompt_;
  const std::string subset_;
};

}  // namespace braid
