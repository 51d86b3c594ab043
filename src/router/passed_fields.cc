// The heads of requests were checked by server/http/framing.h: every line has a name and a colon.
#include "router/passed_fields.h"

#include <algorithm>

#include "server/http/framing.h"

namespace braid {
namespace {

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Calls `take` with the name, the value and the whole of each line, until it returns false.
template <class Take>
void ForEachField(std::string_view fields, Take take) {
  while (!fields.empty()) {
    const std::string_view line = fields.substr(0, fields.find("\r\n"));
    fields.remove_prefix(std::min(fields.size(), line.size() + 2));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (!take(line.substr(0, colon), Trim(line.substr(colon + 1)), line)) return;
  }
}

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](auto other) { return EqualsIgnoringCase(name, other); });
}

bool StaysHere(std::string_view name) {
  constexpr std::string_view kFetch = "sec-fetch-", kAsked = "access-control-request-";
  return IsOneOf(name, {"host", "expect", "origin", "x-request-id"}) ||
         EqualsIgnoringCase(name.substr(0, kFetch.size()), kFetch) ||
         EqualsIgnoringCase(name.substr(0, kAsked.size()), kAsked);
}

}  // namespace

bool IsHopByHop(std::string_view name, std::string_view connection) {
  if (IsOneOf(name, {"connection", "content-length", "keep-alive", "proxy-authenticate",
                     "proxy-authorization", "proxy-connection", "te", "trailer",
                     "transfer-encoding", "upgrade"})) {
    return true;
  }
  while (!connection.empty()) {
    const std::string_view named = connection.substr(0, connection.find(','));
    connection.remove_prefix(std::min(connection.size(), named.size() + 1));
    if (EqualsIgnoringCase(Trim(named), name)) return true;
  }
  return false;
}

std::string_view FieldValue(std::string_view fields, std::string_view name) {
  std::string_view found;
  ForEachField(fields, [&](std::string_view field, std::string_view value, std::string_view) {
    if (!EqualsIgnoringCase(field, name)) return true;
    found = value;
    return false;
  });
  return found;
}

std::string FieldsForEngine(std::string_view fields) {
  const std::string_view connection = FieldValue(fields, "connection");
  std::string passed;
  passed.reserve(fields.size());
  ForEachField(fields, [&](std::string_view name, std::string_view, std::string_view line) {
    if (!IsHopByHop(name, connection) && !StaysHere(name)) passed.append(line).append("\r\n");
    return true;
  });
  return passed;
}

}  // namespace braid
