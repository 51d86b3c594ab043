// A state machine over the text that is held. Held between pushes is what may be the beginning of a
// tag, the header of a call, which is bounded, and what follows where a value would end that no tag
// has closed; other values pass through.
#include "text/answer/tool_call.h"

#include <algorithm>
#include <utility>

#include "base/text/cut_text.h"
#include "base/text/trim.h"
#include "base/text/written_json.h"

namespace braid {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kBeforeBytesMax = 16384;  // of arguments that come before the name
constexpr size_t kScannedBytes = 4096;     // of them, looked at in one move
constexpr size_t kAsideBytesMax = 65536;   // of arguments that are no object

bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }

// Where the first of the tags (some may be empty) begins in `text`, whole or cut off by the end;
// text.size() if nowhere.
size_t FindTag(std::string_view text, std::span<const std::string_view> tags) {
  std::string firsts;
  for (std::string_view tag : tags) {
    if (!tag.empty() && firsts.find(tag[0]) == std::string::npos) firsts += tag[0];
  }
  for (size_t at = text.find_first_of(firsts); at != std::string_view::npos;
       at = text.find_first_of(firsts, at + 1)) {
    const std::string_view rest = text.substr(at);
    for (std::string_view tag : tags) {
      if (!tag.empty() && (rest.starts_with(tag) || tag.starts_with(rest))) return at;
    }
  }
  return text.size();
}

// "functions.get_weather:0" is get_weather.
std::string BareName(std::string_view header, const ToolFormat& format) {
  if (!format.name_prefix.empty() && header.starts_with(format.name_prefix)) {
    header.remove_prefix(format.name_prefix.size());
  }
  if (format.id_in_header) {
    const size_t colon = header.rfind(':');
    if (colon != std::string_view::npos &&
        header.find_first_not_of("0123456789", colon + 1) == std::string_view::npos) {
      header = header.substr(0, colon);
    }
  }
  return std::string(Trimmed(header));
}

// What a model means by arguments that are no object: the text of one is that object, null is none.
// Anything else stays as it is.
std::string ObjectMeant(std::string text) {
  const Result<json::value> value = ParseWrittenJson(text, "arguments");
  if (!value) return text;
  if (value->is_null()) return "{}";
  if (!value->is_string()) return text;
  const std::string inner(value->get_string());
  const Result<json::value> meant = ParseWrittenJson(inner, "arguments");
  return meant && meant->is_object() ? inner : text;
}

// The end of the JSON string that begins at text[0] == '"', or 0 if it has not ended.
size_t StringEnd(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return 0;
}

std::string Unquoted(std::string_view text) {
  const Result<json::value> value = ParseJson(text, "string");
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace

ToolCallParser::ToolCallParser(const ToolFormat& format, const ToolSchemas& schemas,
                               Options options)
    : format_(format), schemas_(schemas), options_(options) {}

void ToolCallParser::Push(std::string_view text, int32_t* calls, AnswerEvents* events) {
  calls_ = calls;
  events_ = events;
  const size_t done = InHeader() ? header_at_ : at_;
  text_.erase(0, done);
  at_ -= done;
  header_at_ = 0;
  text_ += text;
  while (Step()) {
  }
}

void ToolCallParser::Flush(bool cut, int32_t* calls, AnswerEvents* events) {
  Push({}, calls, events);
  while (!cut && stage_ == Stage::kValue && unclosed_end_ != std::string::npos) {
    EndUnclosedValue();
    while (Step()) {
    }
  }
  if (stage_ == Stage::kText) {
    EmitOutside(Take(Held().size()));
    if (!after_call_) AddEvent({options_.outside, std::exchange(blanks_, {})}, events_);
    return;
  }
  if (!begun_) {
    AddEvent({options_.outside, std::exchange(blanks_, {}) + opener_ + text_.substr(header_at_)},
             events_);
  } else if (stage_ == Stage::kClose) {
    EndCall();
  } else if (stage_ == Stage::kValue && value_started_) {
    EmitValue(Take(Held().size()));
  }
  if (begun_ && !cut) {
    if (!stray_.empty()) stray_ += Take(Held().size());
    CloseOpenCall();
  }
  if (!after_call_) AddEvent({options_.outside, std::exchange(blanks_, {})}, events_);
  stray_.clear();
  at_ = text_.size();
  seen_ = 0;
  unclosed_end_ = std::string::npos;
  stage_ = Stage::kText;
}

// The model ended its turn without the closing tags.
void ToolCallParser::CloseOpenCall() {
  if (stage_ == Stage::kValue) {
    if (streams_value_ && !value_started_) EmitArguments("\"");
    EndValue(false);
  }
  if (stage_ == Stage::kArguments && scanner_.started()) {
    if (scanner_.in_string()) return;  // the rest of the string is unknown
    EndJson();
  } else {
    EndArguments();
  }
  EndCall();
}

bool ToolCallParser::Step() {
  switch (stage_) {
    case Stage::kText:
      return StepText();
    case Stage::kHeader:
      return StepHeader();
    case Stage::kObject:
      return StepObject();
    case Stage::kMember:
      return StepMember();
    case Stage::kArguments:
      return StepArguments();
    case Stage::kSkip:
      return StepSkip();
    case Stage::kParameter:
      return StepParameter();
    case Stage::kKey:
      return StepKey();
    case Stage::kValue:
      return StepValue();
    case Stage::kClose:
      return StepClose();
  }
  return false;
}

std::string ToolCallParser::Take(size_t bytes) {
  std::string taken(Held().substr(0, bytes));
  at_ += taken.size();
  return taken;
}

void ToolCallParser::DropBlanks() {
  at_ += std::min(Held().find_first_not_of(kBlanks), Held().size());
}

bool ToolCallParser::MayBecome(std::string_view marker) const {
  return Held().size() < marker.size() && marker.starts_with(Held());
}

// Text outside calls, with the blanks at its end held back.
void ToolCallParser::EmitOutside(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  if (last == std::string_view::npos) {
    blanks_ += text;
    return;
  }
  std::string out = std::exchange(blanks_, {});
  out += text.substr(0, last + 1);
  blanks_ = text.substr(last + 1);
  after_call_ = false;
  AddEvent({options_.outside, std::move(out)}, events_);
}

void ToolCallParser::EmitArguments(std::string text) {
  if (stage_ == Stage::kValue && repeated_) return;  // JSON has each key once: the first stays
  if (begun_) return AddEvent({AnswerEvent::Kind::kCallArguments, std::move(text), call_}, events_);
  before_ += text;
}

// Arguments that the model writes as JSON.
void ToolCallParser::EmitJson(std::string text) {
  const bool object = aside_.empty() && (has_arguments_ || text.starts_with('{'));
  has_arguments_ = true;
  if (object) return EmitArguments(std::move(text));
  aside_ += text;
  if (aside_.size() <= kAsideBytesMax) return;
  EmitArguments(aside_);
  aside_.clear();
}

// They are whole but for what closes them.
void ToolCallParser::EndJson() {
  const std::string closers = scanner_.MissingClosers();
  EmitArguments(aside_.empty() ? closers : ObjectMeant(aside_ + closers));
  aside_.clear();
}

bool ToolCallParser::StepText() {
  const std::array<std::string_view, 4> tags = {format_.open[0], format_.open[1],
                                                format_.section[0], format_.section[1]};
  const size_t at = FindTag(Held(), tags);
  if (at > 0) EmitOutside(Take(at));
  for (size_t i = 0; i < tags.size(); ++i) {
    if (tags[i].empty() || !Held().starts_with(tags[i])) continue;
    Take(tags[i].size());
    if (i >= 2) {
      blanks_.clear();
      return true;
    }
    opener_ = tags[i];
    header_at_ = at_;
    before_.clear();
    aside_.clear();
    scanner_ = {};
    keys_.clear();
    has_arguments_ = false;
    begun_ = false;
    stage_ = Stage::kHeader;
    // Where the tag of the name itself opens the call.
    if (tags[i] == format_.name_begin) {
      at_ -= opener_.size();
      header_at_ = at_;
      opener_.clear();
    }
    return true;
  }
  return false;
}

// The tag is text after all; what followed it is looked at again.
bool ToolCallParser::NotACall() {
  stage_ = Stage::kText;
  at_ = header_at_;
  if (opener_.empty()) opener_ = Take(1);  // the tag of the name, still held
  EmitOutside(std::exchange(opener_, {}));
  return true;
}

bool ToolCallParser::Begin(std::string name, std::string id) {
  if (name.empty() || (options_.known_tools_only && !schemas_.Has(name))) return NotACall();
  begun_ = true;
  blanks_.clear();
  after_call_ = false;
  name_ = std::move(name);
  call_ = (*calls_)++;
  AddEvent({AnswerEvent::Kind::kCallBegin, name_, call_, std::move(id)}, events_);
  if (!before_.empty()) EmitArguments(std::exchange(before_, {}));
  return true;
}

void ToolCallParser::EndArguments() {
  if (!has_arguments_) {
    EmitArguments("{}");
  } else if (format_.body == ToolFormat::Body::kParameters) {
    EmitArguments("}");
  }
  has_arguments_ = true;
}

void ToolCallParser::EndCall() {
  AddEvent({AnswerEvent::Kind::kCallEnd, {}, call_}, events_);
  begun_ = false;
  after_call_ = true;
  seen_ = 0;
  stage_ = Stage::kText;
  if (!stray_.empty()) EmitOutside(std::exchange(stray_, {}));
}

bool ToolCallParser::StepHeader() {
  DropBlanks();
  if (HeaderBytes() > kHeaderBytesMax) return NotACall();
  if (format_.body == ToolFormat::Body::kJsonCall) {
    if (Held().empty()) return false;
    if (Held()[0] != '{') return NotACall();
    Take(1);
    stage_ = Stage::kObject;
    return true;
  }
  if (!format_.name_begin.empty()) {
    if (MayBecome(format_.name_begin)) return false;
    if (!Held().starts_with(format_.name_begin)) return NotACall();
  }
  return StepHeaderName(format_.name_end);
}

bool ToolCallParser::StepHeaderName(std::string_view end_tag) {
  // What decides is a matter of the header's first bytes, whether more has come already or not.
  const std::string_view seen = Held().substr(0, kHeaderBytesMax - HeaderBytes());
  const size_t from = std::min(format_.name_begin.size(), seen.size());
  // Without a tag the name is one word: it ends before a blank or a tag.
  const size_t end = end_tag.empty() ? seen.find_first_of("<\n", from) : seen.find(end_tag, from);
  if (end == std::string_view::npos) {
    return HeaderBytes() + Held().size() < kHeaderBytesMax ? false : NotACall();
  }
  const std::string header(Trimmed(Held().substr(from, end - from)));
  const std::string name = BareName(header, format_);
  if (name.find_first_of("<>\n{}\"") != std::string::npos) return NotACall();
  if (!Begin(name, format_.id_in_header ? header : std::string()) || !begun_) return true;
  at_ += end + end_tag.size();
  stage_ = format_.body == ToolFormat::Body::kParameters ? Stage::kParameter : Stage::kArguments;
  return true;
}

bool ToolCallParser::StepObject() {
  while (!Held().empty() && (IsBlank(Held()[0]) || Held()[0] == ',')) Take(1);
  if (Held().empty()) return false;
  if (Held()[0] == '"') {
    const size_t end = StringEnd(Held().substr(0, kHeaderBytesMax));
    if (end == 0 && Held().size() < kHeaderBytesMax) return false;
    if (end != 0) {
      member_ = Unquoted(Take(end));
      stage_ = Stage::kMember;
      return true;
    }
  }
  if (!begun_) return NotACall();
  if (Held()[0] == '}') Take(1);
  EndArguments();
  stage_ = Stage::kClose;
  return true;
}

bool ToolCallParser::StepMember() {
  while (!Held().empty() && (IsBlank(Held()[0]) || Held()[0] == ':')) Take(1);
  if (Held().empty()) return false;
  const bool arguments = member_ == "arguments" || member_ == "parameters";
  if (member_ == "name" && !begun_ && Held()[0] == '"') {
    const size_t end = StringEnd(Held().substr(0, kHeaderBytesMax));
    if (end == 0) return Held().size() < kHeaderBytesMax ? false : NotACall();
    const std::string name = Unquoted(Take(end));
    stage_ = Stage::kObject;
    return Begin(name, {});
  }
  scanner_ = {};
  stage_ = arguments && !has_arguments_ ? Stage::kArguments : Stage::kSkip;
  return true;
}

bool ToolCallParser::StepArguments() {
  std::string value;
  at_ += scanner_.Push(Held().substr(0, kScannedBytes), &value);
  if (!value.empty()) EmitJson(std::move(value));
  if (!begun_ && HeaderBytes() > kBeforeBytesMax) return NotACall();
  if (!scanner_.ended()) return !Held().empty();
  if (scanner_.started()) EndJson();
  if (format_.body == ToolFormat::Body::kJsonCall) {
    stage_ = Stage::kObject;
  } else {
    EndArguments();
    stage_ = Stage::kClose;
  }
  return true;
}

bool ToolCallParser::StepSkip() {
  std::string value;
  at_ += scanner_.Push(Held().substr(0, kScannedBytes), &value);
  if (!begun_ && HeaderBytes() > kBeforeBytesMax) return NotACall();
  if (!scanner_.ended()) return !Held().empty();
  stage_ = Stage::kObject;
  return true;
}

// Here begins another call.
bool ToolCallParser::Opens() const {
  return std::ranges::any_of(
      format_.open, [&](std::string_view tag) { return !tag.empty() && Held().starts_with(tag); });
}

bool ToolCallParser::StepParameter() {
  const std::array<std::string_view, 5> tags = {format_.key_begin, format_.body_end, format_.close,
                                                format_.open[0], format_.open[1]};
  if (stray_.empty()) DropBlanks();
  stray_ += Take(FindTag(Held(), tags));
  if (Opens()) {
    CloseOpenCall();
    return true;
  }
  if (Held().starts_with(format_.key_begin)) {
    stray_.clear();
    Take(format_.key_begin.size());
    stage_ = Stage::kKey;
    return true;
  }
  const bool body_end = !format_.body_end.empty() && Held().starts_with(format_.body_end);
  if (!body_end && !Held().starts_with(format_.close)) return false;
  stray_.clear();
  EndArguments();
  if (body_end) Take(format_.body_end.size());
  stage_ = Stage::kClose;
  return true;
}

bool ToolCallParser::StepKey() {
  const std::string_view seen = Held().substr(0, kHeaderBytesMax);
  const size_t end = FindTag(seen, {&format_.key_end, 1});
  const bool ended = seen.substr(end).starts_with(format_.key_end);
  const std::string key(Trimmed(seen.substr(0, end)));
  // A key is one line: this one was left unclosed.
  if (key.find('\n') != std::string::npos) {
    stage_ = Stage::kParameter;
    return true;
  }
  if (!ended) {
    if (Held().size() <= kHeaderBytesMax) return false;
    // No key is that long: whole characters are dropped, like all that does not belong here.
    Take(CutText(Held(), kHeaderBytesMax).size());
    stage_ = Stage::kParameter;
    return true;
  }
  key_ = key;
  Take(end + format_.key_end.size());
  repeated_ = std::find(keys_.begin(), keys_.end(), key_) != keys_.end();
  if (!repeated_) {
    EmitArguments((has_arguments_ ? ", " : "{") + TypedJson(key_, kStringKind) + ": ");
    keys_.push_back(key_);
  }
  has_arguments_ = true;
  streams_value_ = schemas_.KindsOf(name_, key_) == kStringKind;
  value_started_ = false;
  value_.clear();
  stage_ = Stage::kValue;
  return true;
}

// A piece of a value, without its tags.
void ToolCallParser::EmitValue(std::string_view text) {
  if (text.empty()) return;
  line_start_ = text.back() == '\n';
  if (!streams_value_) {
    value_ += text;
    return;
  }
  std::string out;
  // A newline at the end of the piece may be the one before the closing tag.
  std::string all = std::exchange(value_, {}) + std::string(text);
  if (line_start_) {
    value_ = "\n";
    all.pop_back();
  }
  for (char c : all) AppendJsonEscaped(c, &out);
  EmitArguments(std::move(out));
}

// The newline before a tag of another line is not part of the value.
void ToolCallParser::EndValue(bool closed) {
  if ((format_.value_newlines || !closed) && value_.ends_with('\n')) value_.pop_back();
  if (streams_value_) {
    EmitArguments(value_.empty() ? "\"" : "\\n\"");
  } else {
    EmitArguments(TypedJson(value_, schemas_.KindsOf(name_, key_)));
  }
  value_.clear();
  seen_ = 0;
  unclosed_end_ = std::string::npos;
  stage_ = Stage::kParameter;
}

void ToolCallParser::EndUnclosedValue() {
  if (unclosed_end_ != std::string::npos) EmitValue(Take(unclosed_end_));
  EndValue(false);
}

// A value is all text up to its closing tag, what tags there may be in it. If a model leaves it
// unclosed, it ends at the next line that begins with a key, or at the first tag that closes a
// call, when the next call or the end of the text comes before a closing tag.
bool ToolCallParser::StepValue() {
  if (!value_started_) {
    if (!format_.value_begin.empty()) {
      DropBlanks();
      if (Held().empty() || MayBecome(format_.value_begin)) return false;
      if (Held().starts_with(format_.value_begin)) Take(format_.value_begin.size());
    } else if (Held().empty()) {
      return false;
    }
    if (format_.value_newlines && Held().starts_with('\n')) Take(1);
    value_started_ = true;
    line_start_ = true;
    if (streams_value_) EmitArguments("\"");
  }
  const std::array<std::string_view, 6> tags = {format_.value_end, format_.key_begin,
                                                format_.body_end,  format_.close,
                                                format_.open[0],   format_.open[1]};
  const bool waits = unclosed_end_ != std::string::npos;
  const size_t at = seen_ + FindTag(Held().substr(seen_), tags);
  const bool line_start = at == 0 ? line_start_ : Held()[at - 1] == '\n';
  if (!waits) EmitValue(Take(at));
  seen_ = waits ? at : 0;
  const std::string_view rest = Held().substr(seen_);
  const auto* tag = std::ranges::find_if(
      tags, [&](std::string_view one) { return !one.empty() && rest.starts_with(one); });
  if (tag == tags.end()) return false;
  const bool key = tag == &tags[1], closes = tag == &tags[2] || tag == &tags[3];
  if (tag == &tags[0]) {
    EmitValue(Take(seen_));
    Take(tag->size());
    EndValue(true);
  } else if (key ? line_start : !closes && waits) {
    EndUnclosedValue();
  } else {
    if (closes && !waits) unclosed_end_ = 0;
    seen_ += tag->size();
  }
  return true;
}

bool ToolCallParser::StepClose() {
  // Blanks, a fence's end, a bracket too many, if a closing tag follows.
  seen_ = std::min(Held().find_first_not_of(" \t\r\n`}", seen_), Held().size());
  const std::string_view rest = Held().substr(seen_);
  if (rest.starts_with(format_.close)) {
    Take(seen_ + format_.close.size());
  } else if (format_.close.starts_with(rest)) {
    return false;
  } else if (format_.body == ToolFormat::Body::kJsonArguments) {
    TakeFence();
  }
  EndCall();
  return true;
}

// What the format writes between arguments and closing tag.
void ToolCallParser::TakeFence() {
  const std::string fence(
      Trimmed(format_.write_end.substr(0, format_.write_end.find(format_.close))));
  const size_t begin = std::min(Held().find_first_not_of(kBlanks), Held().size());
  if (!fence.empty() && Held().substr(begin).starts_with(fence)) Take(begin + fence.size());
}

}  // namespace braid
