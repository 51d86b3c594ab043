// The limits of the network side: a table of those that clients meet, from which the constants,
// /server_info and docs/api.md are made, and constants that no client meets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace braid::limits {

struct Limit {
  std::string_view name;  // unique: "target_bytes"
  int64_t value = 0;      // the largest that is accepted
  std::string_view unit;  // "bytes"; with `what`: "bytes of the request target"
  std::string_view what;
  int status = 0;             // of the answer to a request above the limit; 0: none is refused
  std::string_view enforced;  // the file below src/ that checks it
  // What the value depends on, for documents; empty: it is the same on every server by default.
  std::string_view depends = {};
};

// Those that are the same on every server.
inline constexpr Limit kHttpLimits[] = {
    {"target_bytes", 8 << 10, "bytes", "of the request target", 414, "server/http/framing.cc"},
    {"headers", 100, "headers", "of a request", 431, "server/http/framing.cc"},
    {"header_bytes", 8 << 10, "bytes", "of one header", 431, "server/http/framing.cc"},
    {"all_headers_bytes", 32 << 10, "bytes", "of all headers", 431, "server/http/framing.cc"},
    {"chunk_extension_bytes", 256, "bytes", "of a chunk's extension", 400,
     "server/http/connection.cc"},
    {"requests_per_connection", 10000, "requests", "over one connection, which is then closed", 0,
     "server/http/connection.cc"},
    {"concurrent_requests_per_connection", 1, "requests",
     "of one connection that are worked on at once; later ones wait", 0,
     "server/http/connection.cc"},
    {"unsent_bytes", 4 << 20, "bytes", "that a client leaves unread before its stream is cut off",
     0, "server/http/connection.cc"},
    {"request_id_bytes", 128, "bytes",
     "of X-Request-Id and of `request_id`; a longer header is replaced, a longer field gets 400", 0,
     "server/http/framing.cc"},
};

// Not constant: a name without a row ends the compilation.
int64_t NoSuchLimit(std::string_view name);

// The value of a row.
consteval int64_t ValueOf(std::span<const Limit> rows, std::string_view name) {
  for (const Limit& row : rows) {
    if (row.name == name) return row.value;
  }
  return NoSuchLimit(name);
}

inline constexpr size_t kTargetBytesMax = ValueOf(kHttpLimits, "target_bytes");
inline constexpr size_t kHeadersMax = ValueOf(kHttpLimits, "headers");
inline constexpr size_t kHeaderBytesMax = ValueOf(kHttpLimits, "header_bytes");
inline constexpr size_t kHeadBytesMax = ValueOf(kHttpLimits, "all_headers_bytes");
inline constexpr size_t kChunkExtensionBytesMax = ValueOf(kHttpLimits, "chunk_extension_bytes");
inline constexpr int32_t kRequestsPerConnectionMax =
    ValueOf(kHttpLimits, "requests_per_connection");
inline constexpr size_t kUnsentBytesMax = ValueOf(kHttpLimits, "unsent_bytes");
inline constexpr size_t kRequestIdBytesMax = ValueOf(kHttpLimits, "request_id_bytes");

inline constexpr size_t kBodyBytesPerSecond = 64 << 10;  // a client slower than this is refused
inline constexpr size_t kPipelinedBytesMax = 64 << 10;   // read ahead while an answer is made
inline constexpr size_t kWriteBytesMax = 256 << 10;      // one write

// What an open connection takes, between requests: its coroutines, with TLS the buffers and state
// of OpenSSL too. Connections have half as much memory as bodies, and those below the minimum are
// always accepted (record 14).
inline constexpr int64_t kConnectionBytes = 24 << 10;
inline constexpr int64_t kTlsConnectionBytes = 112 << 10;
inline constexpr int64_t kConnectionsMin = 64;

constexpr int64_t ConnectionsIn(int64_t bodies_bytes, bool tls) {
  return std::max(kConnectionsMin,
                  bodies_bytes / 2 / (tls ? kTlsConnectionBytes : kConnectionBytes));
}

// Preparing a request takes a multiple of its body's memory; of bodies above kBulkBodyBytes one is
// prepared at a time (record 14).
inline constexpr int64_t kPrepareTimesBody = 48;
inline constexpr size_t kBulkBodyBytes = 128 << 10;

}  // namespace braid::limits
