// A schema as a client may send it, sorted into what grammars enforce and what they do not. What is
// dropped stood where its pointer says, what is left is enforceable in full, and sorting it again
// changes nothing.
#include "base/check.h"
#include "base/json.h"
#include "text/grammar/schema_limits.h"
#include "text/grammar/schema_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<json::value> schema = ParseJson(text, "schema");
  if (!schema || !CheckSchema(*schema)) return 0;
  const Result<EnforceableSchema> part = EnforceablePart(*schema);
  const Result<json::value> whole = EnforceableWhole(*schema);
  if (!part) {
    CHECK(!whole && !part.error().message.empty());
    return 0;
  }
  CHECK(whole.ok() == part->dropped.empty());
  for (const UnenforceableKeyword& keyword : part->dropped) {
    boost::system::error_code error;
    CHECK(schema->find_pointer(keyword.pointer, error) != nullptr || error, "nothing stands at {}",
          keyword.pointer);
    CHECK(!keyword.reason.empty());
  }
  const Result<EnforceableSchema> again = EnforceablePart(part->schema);
  CHECK(again && again->dropped.empty(), "what was left is not enforceable");
  CHECK(again->schema == part->schema, "sorting twice is not sorting once");
  return 0;
}
