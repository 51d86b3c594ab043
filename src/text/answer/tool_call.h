// Finds tool calls in generated text, piece by piece, in the form that the model writes them
// (tool_format.h), and gives their arguments as JSON as they come. However the text is cut, the
// joined events are the same. Linear in the text. One per stream, one thread.
//
// Text that only looks like the beginning of a call stays text. A call of a tool that was not
// offered is still a call, so that the client can tell the model. Blanks before and between calls
// are dropped. What a model leaves unclosed ends where the next part of a call begins, or with the
// call; the text behind it stays text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_event.h"
#include "text/answer/json_scanner.h"
#include "text/answer/tool_format.h"
#include "text/grammar/tool_schemas.h"

namespace braid {

class ToolCallParser {
 public:
  static constexpr size_t kHeaderBytesMax = 4096;  // a longer name is text, a longer key nothing

  struct Options {
    AnswerEvent::Kind outside = AnswerEvent::Kind::kText;  // what the text around calls is
    bool known_tools_only = false;  // other names are text: for thinking, which may speak of tools
  };
  // `format` and `schemas` must outlive the object.
  ToolCallParser(const ToolFormat& format, const ToolSchemas& schemas, Options options);

  // The calls are numbered from *calls on, which counts them.
  void Push(std::string_view text, int32_t* calls, AnswerEvents* events);
  // The end of the text. `cut`: it ended because it was too long, so an open call stays open;
  // otherwise a call whose closing tags are missing is closed.
  void Flush(bool cut, int32_t* calls, AnswerEvents* events);

 private:
  enum class Stage : uint8_t {
    kText,
    kHeader,     // the opening tag was seen, the name not yet
    kObject,     // kJsonCall: inside the call's object, before a key
    kMember,     // kJsonCall: after a key
    kArguments,  // a JSON value that is passed on
    kSkip,       // kJsonCall: the value of another key
    kParameter,  // kParameters: before a key or the end
    kKey,
    kValue,
    kClose,  // behind the arguments: closing tags may come
  };

  // One move; false when it needs more text.
  bool Step();
  bool StepText();
  bool StepHeader();
  bool StepHeaderName(std::string_view end);
  bool StepObject();
  bool StepMember();
  bool StepArguments();
  bool StepSkip();
  bool StepParameter();
  bool StepKey();
  bool StepValue();
  bool StepClose();

  bool Begin(std::string name, std::string id);
  bool NotACall();
  void EndCall();
  void CloseOpenCall();
  void EndArguments();
  void EmitOutside(std::string_view text);
  void EmitArguments(std::string text);
  void EmitJson(std::string text);
  void EndJson();
  void EmitValue(std::string_view text);
  void EndValue(bool closed);
  void EndUnclosedValue();
  bool Opens() const;
  void TakeFence();
  std::string_view Held() const { return std::string_view(text_).substr(at_); }
  bool InHeader() const { return stage_ != Stage::kText && !begun_; }
  size_t HeaderBytes() const { return at_ - header_at_; }
  std::string Take(size_t bytes);
  void DropBlanks();
  // True if Held() may still become `marker`; needs more text then.
  bool MayBecome(std::string_view marker) const;

  const ToolFormat& format_;
  const ToolSchemas& schemas_;
  const Options options_;

  Stage stage_ = Stage::kText;
  // What has come and is not yet done with; from at_ on it was not yet looked at, and before that
  // are what was taken since the call's opening tag, until its name is known.
  std::string text_;
  size_t at_ = 0, header_at_ = 0;
  size_t seen_ = 0;     // kValue, kClose: bytes of Held() that need not be looked at again
  std::string blanks_;  // outside calls: dropped if a call follows
  std::string opener_;  // the tag that began it
  std::string name_;
  std::string member_;  // kJsonCall: the key
  std::string before_;  // kJsonCall: arguments that came before the name
  std::string aside_;   // arguments that are no object, until they are whole
  std::string key_;     // kParameters: of the value that is read
  std::vector<std::string> keys_;
  std::string value_;  // kParameters: a value that is not streamed, or the newline held back
  // kParameters: where in Held() the value ends if no closing tag comes; npos: nowhere yet.
  size_t unclosed_end_ = std::string::npos;
  bool line_start_ = false;  // what was emitted of the value is nothing, or ends with a newline
  std::string stray_;        // kParameters: text between parameters, or behind an unclosed call
  JsonScanner scanner_;
  bool after_call_ = false;  // nothing but blanks came since a call
  bool begun_ = false;       // the name is known
  bool has_arguments_ = false;
  bool repeated_ = false;  // the key was there before
  bool streams_value_ = false, value_started_ = false;
  int32_t call_ = -1;
  int32_t* calls_ = nullptr;
  AnswerEvents* events_ = nullptr;
};

}  // namespace braid
