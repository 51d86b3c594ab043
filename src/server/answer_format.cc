// The choice of format.
#include "server/answer_format.h"

#include "server/messages_format.h"
#include "server/openai_format.h"
#include "server/responses_format.h"

namespace braid {

std::unique_ptr<AnswerFormat> MakeAnswerFormat(const Generation& generation, AnswerShape shape) {
  if (shape.route == kMessages) return std::make_unique<MessagesFormat>(generation);
  if (shape.route == kResponses) {
    return std::make_unique<ResponsesFormat>(generation, std::move(shape.request_echo),
                                             std::move(shape.store));
  }
  return std::make_unique<OpenAiFormat>(generation, std::move(shape));
}

}  // namespace braid
