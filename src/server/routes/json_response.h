// A JSON object as a response.
#pragma once

#include "base/json.h"
#include "server/http/types.h"

namespace braid {

inline ReplyContent JsonResponse(const json::object& body) {
  return HttpResponse{.body = json::serialize(body)};
}

}  // namespace braid
