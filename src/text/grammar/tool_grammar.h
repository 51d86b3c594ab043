// Grammars of whole answers, in the Lark form that GrammarLibrary takes: tool calls as a format
// writes them, GBNF as others know it, choices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/answer/tool_format.h"
#include "text/tokens/tokenizer.h"

namespace braid {

struct ToolGrammar {
  const ToolFormat& format;
  const json::array& tools;                // those that may be called
  bool parallel = true;                    // several calls, one after the other
  const json::value* otherwise = nullptr;  // a schema: the answer may also be JSON of it
  // The answer is text in which every opening tag begins a call of one of the tools. Arguments of
  // strict tools match their schemas; those of the others are any.
  bool lazy = false;
  std::vector<std::string_view> marks = {};  // with lazy: tags that may stand in the text
};

// Lark for an answer that is one or more calls of `tools` and nothing else, unless it is lazy.
// Arguments match each tool's "parameters"; those of a tool without are any object. kInvalid: the
// format cannot hold what a strict tool's schema says; the message begins with the JSON Pointer.
Result<std::string> ToolGrammarText(const ToolGrammar& grammar, const Tokenizer& tokenizer);

// Lark for one of the texts.
std::string ChoiceGrammarText(const std::vector<std::string>& choices);

// Lark for free text in which every trigger begins one of the structures: {"structures": [{"begin",
// "schema", "end"}, …], "triggers": […]}, each "begin" starting with a trigger.
std::string StructuralTagText(const json::value& tag, const Tokenizer& tokenizer);

// llama.cpp's GBNF and the EBNF that others take ("root ::= …") as Lark; text that has no "::=" is
// Lark already and stays as it is. kInvalid with the line.
Result<std::string> LarkFromGbnf(std::string_view source);

// A schema as the grammars take it: values are written on one line, as json.dumps writes them.
json::value OneLineSchema(json::value schema);

}  // namespace braid
