// The tables of docs/api.md in Markdown, made from the tables that the server enforces. A test sees
// that the document has them; `make docs` writes them.
#pragma once

#include <string>

namespace braid {

// Every route: its paths, who may call it, what it does.
std::string RoutesMarkdown();

// Every field of the generating endpoints: its values and its effect.
std::string FieldsMarkdown();

// Name, meaning, value and status of every limit, with the values of a server without flags.
std::string LimitsMarkdown();

}  // namespace braid
