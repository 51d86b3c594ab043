// Z-3: text of a model, read in one piece and in several, in any format of tool calls. The events
// put together are the same, arguments are JSON where the format leaves that to the parser, and no
// byte of a text is made up. The first three bytes choose format, place and pieces.
#include <fmt/core.h>

#include "base/check.h"
#include "base/rng.h"
#include "text/answer/answer_parser.h"
#include "text/answer/test_answer.h"
#include "text/answer/tool_format.h"
#include "text/tokens/utf8.h"

namespace braid {
namespace {

const json::array& Tools() {
  static const json::array tools = json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties":
      {"s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"},
       "o": {"type": "object"}, "a": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "g"}}])")
                                       .as_array();
  return tools;
}

struct How {
  bool inside = false, cut = false;
};

JoinedAnswer Read(const AnswerSyntax& syntax, const How& how, std::string_view text, Rng* rng) {
  AnswerParser parser(syntax, how.inside);
  JoinedAnswer answer;
  while (rng != nullptr && !text.empty()) {
    const auto n = static_cast<size_t>(1 + rng->Below(8));
    Add(parser.Push(text.substr(0, n)), &answer);
    text.remove_prefix(std::min(n, text.size()));
  }
  if (!text.empty()) Add(parser.Push(text), &answer);
  Add(parser.Flush(how.cut), &answer);
  return answer;
}

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  if (size < 3) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (!IsValidUtf8(text)) return 0;  // the detokenizer repairs what it gives
  const std::span<const ToolFormat> formats = ToolFormats();
  const size_t format = data[0] % (formats.size() + 1);
  const AnswerSyntax syntax{.split_reasoning = (data[1] & 1) != 0,
                            .reasoning_tags = {},
                            .tools = format < formats.size() ? &formats[format] : nullptr,
                            .schemas = ToolSchemas(Tools())};
  const How how{.inside = (data[1] & 2) != 0, .cut = (data[1] & 4) != 0};
  const JoinedAnswer whole = Read(syntax, how, text, nullptr);
  Rng rng(data[2]);
  CHECK(whole == Read(syntax, how, text, &rng), "pieces change what a text says");
  CHECK(whole.text.size() + whole.reasoning.size() <= text.size());
  CHECK(IsValidUtf8(whole.text) && IsValidUtf8(whole.reasoning), "half a character");
  for (const JoinedCall& call : whole.calls) {
    CHECK(IsValidUtf8(call.name) && IsValidUtf8(call.arguments));
    if (!call.whole) continue;
    CHECK(!call.arguments.empty());
    if (syntax.tools->body != ToolFormat::Body::kParameters) continue;  // written by the model
    boost::system::error_code error;
    const json::value arguments = json::parse(call.arguments, error);
    CHECK(!error && arguments.is_object(), "arguments that are none: {}", call.arguments);
  }
  return 0;
}
