// A small state machine. Everything it holds back between pushes is shorter than a tag, except
// blanks, which are kept apart so that no byte is looked at twice.
#include "text/answer/reasoning.h"

#include <algorithm>
#include <utility>

#include "text/chat/named_rows.h"

namespace braid {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool IsProperPrefix(std::string_view text, std::string_view of) {
  return text.size() < of.size() && of.starts_with(text);
}

// The length of the longest proper prefix of `tag` that `text` ends with.
size_t PartialTagAtEnd(std::string_view text, std::string_view tag) {
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (text.ends_with(tag.substr(0, size))) return size;
  }
  return 0;
}

size_t CountLeading(std::string_view text, std::string_view of) {
  return std::min(text.find_first_not_of(of), text.size());
}

}  // namespace

const ReasoningFormat* FindReasoningFormat(std::string_view name) {
  return FindByName(ReasoningFormats(), name);
}

const ReasoningFormat& DetectReasoningFormat(std::string_view chat_template) {
  for (const ReasoningFormat& format : ReasoningFormats()) {
    if (chat_template.find(format.evidence) != std::string_view::npos) return format;
  }
  return ReasoningFormats().back();
}

std::string ReasoningFormatNames() { return JoinNames(ReasoningFormats()); }

bool StartsInReasoning(const ReasoningFormat& format, std::string_view prompt) {
  if (!format.separates()) return false;
  if (PromptOpensReasoning(prompt, format.tags)) return true;
  const size_t last = prompt.find_last_not_of(kBlanks);
  const bool closed =
      last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(format.tags.close);
  return format.opens_always && !closed;
}

bool ContinuesReasoning(const ReasoningFormat& format, std::string_view prompt,
                        std::string_view content) {
  if (!format.separates()) return false;
  const std::string_view before = prompt.substr(0, prompt.size() - content.size());
  ReasoningSplitter splitter(format.tags, PromptOpensReasoning(before, format.tags));
  splitter.Push(content);
  return splitter.inside_reasoning();
}

bool PromptOpensReasoning(std::string_view prompt, const ReasoningTags& tags) {
  const size_t last = prompt.find_last_not_of(kBlanks);
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(tags.open);
}

ReasoningSplitter::ReasoningSplitter(ReasoningTags tags, bool starts_inside)
    : tags_(tags), stage_(starts_inside ? Stage::kOpening : Stage::kStart) {}

ReasoningSplitter::Piece ReasoningSplitter::Push(std::string_view text) {
  Piece piece;
  held_ += text;
  while (Step(&piece)) {
  }
  return piece;
}

ReasoningSplitter::Piece ReasoningSplitter::Flush() {
  Piece piece;
  (inside_reasoning() ? piece.reasoning : piece.content) = std::move(blanks_) + held_;
  blanks_.clear();
  held_.clear();
  return piece;
}

bool ReasoningSplitter::Step(Piece* piece) {
  switch (stage_) {
    case Stage::kStart:
      return StepStart();
    case Stage::kOpening:
      return StepOpening();
    case Stage::kReasoning:
      return StepReasoning(piece);
    case Stage::kClosing:
      held_.erase(0, CountLeading(held_, "\n"));
      if (held_.empty()) return false;
      stage_ = Stage::kContent;
      return true;
    case Stage::kContent:
      piece->content += std::exchange(blanks_, {});
      piece->content += std::exchange(held_, {});
      return false;
  }
  return false;
}

bool ReasoningSplitter::StepStart() {
  const size_t blanks = CountLeading(held_, kBlanks);
  blanks_ += held_.substr(0, blanks);
  held_.erase(0, blanks);
  if (IsProperPrefix(held_, tags_.open)) return false;
  if (held_.starts_with(tags_.open)) {
    blanks_.clear();
    held_.erase(0, tags_.open.size());
    stage_ = Stage::kOpening;
  } else {
    stage_ = Stage::kContent;
  }
  return true;
}

bool ReasoningSplitter::StepOpening() {
  held_.erase(0, CountLeading(held_, "\n"));
  if (IsProperPrefix(held_, tags_.open)) return false;
  if (held_.starts_with(tags_.open)) {
    held_.erase(0, tags_.open.size());
  } else {
    stage_ = Stage::kReasoning;
  }
  return true;
}

bool ReasoningSplitter::StepReasoning(Piece* piece) {
  const size_t close = held_.find(tags_.close);
  const bool closes = close != std::string::npos;
  const size_t end = closes ? close : held_.size() - PartialTagAtEnd(held_, tags_.close);
  const size_t last = held_.substr(0, end).find_last_not_of('\n');
  if (last != std::string::npos) {
    piece->reasoning += std::exchange(blanks_, {});
    piece->reasoning += held_.substr(0, last + 1);
  }
  blanks_ += held_.substr(last + 1, end - (last + 1));  // npos + 1 == 0
  held_.erase(0, end);
  if (!closes) return false;
  held_.erase(0, tags_.close.size());
  blanks_.clear();
  stage_ = Stage::kClosing;
  return true;
}

}  // namespace braid
