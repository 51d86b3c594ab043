// A chat template, parsed and rendered on a conversation with a tool: a text or an error, within
// the template's limits of work.
#include "base/check.h"
#include "base/json.h"
#include "text/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const json::value context = json::parse(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
          {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
           {"name": "f", "arguments": {"a": true}}}]}, {"role": "tool", "content": "4"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
          "add_generation_prompt": true, "enable_thinking": false})");
  const Result<ChatTemplate> parsed =
      ChatTemplate::FromSource({reinterpret_cast<const char*>(data), size}, {{"bos_token", "<s>"}});
  if (!parsed) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  const Result<std::string> text = parsed->Render(context);
  CHECK(text || !text.error().message.empty());
  return 0;
}
