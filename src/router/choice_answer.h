// The answer to POST /route/…: which engine a request should go to, for gateways that send it there
// themselves. It counts as sent, so that the next ones with its beginning are told the same.
#pragma once

#include "router/fleet.h"
#include "router/prompts/prompt_keys.h"
#include "server/http/relay.h"

namespace braid {

class ChoiceAnswer final : public Relay {
 public:
  ChoiceAnswer(Fleet& fleet, PromptKeys prompt) : fleet_(fleet), prompt_(std::move(prompt)) {}

  asio::awaitable<End> Run(ClientOutput& client) override;
  void Stop(EndReason) override {}  // it never waits

 private:
  Fleet& fleet_;
  const PromptKeys prompt_;
};

}  // namespace braid
