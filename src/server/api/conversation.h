// Conversations of other APIs in the one form that the rest of the server knows: OpenAI's chat
// messages and tools. Pure functions of JSON; errors carry the path of the request as it was sent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/api/api_error.h"

namespace braid {

// Appends messages in chat form.
class ChatBuilder {
 public:
  ChatBuilder(json::array* messages, std::vector<std::string>* paths)
      : messages_(*messages), paths_(*paths) {}

  // Where in the body the next message stands, for errors about it.
  void At(std::string path) { path_ = std::move(path); }

  void System(std::string_view text);
  void User(std::string_view text);
  void ToolResult(std::string_view call_id, std::string_view text);
  // Thinking, text and calls of one assistant turn become one message.
  void AssistantText(std::string_view text);
  void AssistantThought(std::string_view text);
  void AssistantCall(std::string_view call_id, std::string_view name, std::string_view arguments);

 private:
  void Add(json::object message);
  json::object& Assistant();
  void Append(std::string_view key, std::string_view text);
  json::array& messages_;
  std::vector<std::string>& paths_;  // of the messages
  std::string path_;
};

// Joins `system`, which stood at `path`, and the system messages at the beginning to one, with a
// blank line between: templates expect one. `paths` is parallel to the messages.
void JoinLeadingSystem(const std::string& system, std::string_view path, json::array* messages,
                       std::vector<std::string>* paths);

// A list of flat tools, {"name", "description", "parameters"}, as chat tools; `schema` names the
// key that holds the parameters' schema. Tools that are not `ours`, which the API's own
// servers would run, are skipped.
Result<json::array, ApiError> ChatTools(const json::value& value, const std::string& path,
                                        std::string_view schema,
                                        bool (*ours)(const json::object& tool));

// The text of a string or of a list of parts {"type": one of `types`, "text"}; other parts are
// refused. `types` has blanks between.
Result<std::string, ApiError> TextOfParts(const json::value& content, std::string_view types,
                                          const std::string& path);

}  // namespace braid
