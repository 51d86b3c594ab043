// Splits generated text into reasoning and content at <think> and </think>, piece by piece. However
// the stream is cut, the concatenation of the pieces is the same. One per stream, one thread.
//
// A text has at most one block of reasoning, and only at its start: a tag further on is content.
// The newlines next to the tags belong to the tags ("<think>\nREASONING\n</think>\n\nCONTENT").
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace braid {

struct ReasoningTags {
  std::string_view open = "<think>";
  std::string_view close = "</think>";
};

// How a model marks its thinking: one row of data per format.
struct ReasoningFormat {
  std::string_view name;
  std::string_view aliases = {};   // other servers' names, with blanks between
  std::string_view evidence = {};  // a template of this format contains it
  ReasoningTags tags = {};
  bool opens_always = false;  // the answer begins inside, even where the prompt does not open it
  // False: thinking is not separated.
  bool separates() const { return !tags.close.empty(); }
};

// All formats (families/). The last is "none", which separates nothing; one before it fits every
// template.
std::span<const ReasoningFormat> ReasoningFormats();
// By name or alias; null if there is none.
const ReasoningFormat* FindReasoningFormat(std::string_view name);
// The first whose evidence is in the chat template.
const ReasoningFormat& DetectReasoningFormat(std::string_view chat_template);
// The names, with ", " between: for messages.
std::string ReasoningFormatNames();

// True if an answer to this prompt begins inside the thinking.
bool StartsInReasoning(const ReasoningFormat& format, std::string_view prompt);

// True if an answer that continues `content`, with which the prompt ends, begins inside the
// thinking: the prompt or the content opens it, and the content does not close it. `opens_always`
// does not count here: a message may be continued in its middle.
bool ContinuesReasoning(const ReasoningFormat& format, std::string_view prompt,
                        std::string_view content);

// True if the prompt ends with the opening tag (and blanks), so that generation begins inside it.
bool PromptOpensReasoning(std::string_view prompt, const ReasoningTags& tags);

class ReasoningSplitter {
 public:
  struct Piece {
    std::string reasoning;
    std::string content;
  };

  ReasoningSplitter(ReasoningTags tags, bool starts_inside);

  Piece Push(std::string_view text);

  // The end of the stream: text that was held back (half a tag, newlines) belongs to its current
  // part.
  Piece Flush();

  bool inside_reasoning() const { return stage_ == Stage::kOpening || stage_ == Stage::kReasoning; }

 private:
  enum class Stage {
    kStart,      // outside, only blanks so far: an opening tag may come
    kOpening,    // inside, no text so far: newlines and a repeated opening tag are dropped
    kReasoning,  // inside
    kClosing,    // after the closing tag: newlines are dropped
    kContent,    // everything passes
  };
  // One move of the machine; false when it needs more text.
  bool Step(Piece* piece);
  bool StepStart();
  bool StepOpening();
  bool StepReasoning(Piece* piece);

  ReasoningTags tags_;
  Stage stage_;
  std::string held_;    // text not yet looked at, or what may be the beginning of a tag
  std::string blanks_;  // before held_: blanks whose side is not yet known
};

}  // namespace braid
