// The tables of docs/api.md in Markdown, made from the tables that the server enforces. A test sees
// that the document has them; `make docs` writes them.
#pragma once

#include <string>

namespace braid {

// Every field of the generating routes: what it takes and what becomes of it.
std::string FieldsMarkdown();

// Name, meaning, value and status of every limit, with the values of a server without flags.
std::string LimitsMarkdown();

}  // namespace braid
