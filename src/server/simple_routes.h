// The routes that answer at once, without the engine.
#pragma once

#include "server/service.h"

namespace braid {

HttpResponse JsonResponse(const json::value& body);

HttpResponse ListModels(const ModelCard& card);
HttpResponse OneModel(const ModelCard& card, std::string_view id);
HttpResponse ServerInformation(const Service& service);

HttpResponse Tokenize(const ServerContext& context, const ApiRequest& request);
HttpResponse Detokenize(const ServerContext& context, const ApiRequest& request);
HttpResponse CountTokens(const ServerContext& context, const ApiRequest& request);
// What the parsers of tool calls and of thinking make of a text.
HttpResponse ParseCalls(const ServerContext& context, const ApiRequest& request);
HttpResponse SeparateReasoning(const ServerContext& context, const ApiRequest& request);
// Load for routers: running and waiting requests, use of the cache.
HttpResponse Loads(const Service& service);
HttpResponse ApplyTemplate(const ServerContext& context, const ApiRequest& request);

// 404 model_not_found unless `model` is empty or the one served.
ApiStatus CheckModel(const ModelCard& card, const std::string& model);

}  // namespace braid
