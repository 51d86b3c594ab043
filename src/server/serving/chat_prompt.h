// Renders conversations with the model's chat template. If the template fails on a message or drops
// it, the error names the message. Preparation threads.
#pragma once

#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/service.h"

namespace braid {

// Whether the template is shown the tools.
bool OffersTools(const ApiRequest& request);

// The last message's content without blanks around it: a prompt that continues it ends with this.
std::string_view FinalContent(const ApiRequest& request);

// The prompt of a chat as the model's template writes it.
Result<std::string, ApiError> RenderChat(const ServerContext& context, const ApiRequest& request);
Result<std::string, ApiError> RenderChat(const ChatTemplate& chat, const ApiRequest& request);

}  // namespace braid
