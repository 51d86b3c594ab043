// The choice of format.
#include "server/dialects/answer_format.h"

#include "server/dialects/anthropic_format.h"
#include "server/dialects/openai_format.h"
#include "server/dialects/responses_format.h"

namespace braid {

std::unique_ptr<AnswerFormat> MakeAnswerFormat(const Generation& generation, AnswerShape shape) {
  if (shape.endpoint == kMessages) return std::make_unique<MessagesFormat>(generation);
  if (shape.endpoint == kResponses) {
    return std::make_unique<ResponsesFormat>(generation, std::move(shape.request_echo),
                                             std::move(shape.store));
  }
  return std::make_unique<OpenAiFormat>(generation, std::move(shape));
}

}  // namespace braid
