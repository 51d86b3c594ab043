// What the network side of the server is configured with.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

struct TlsFiles {
  std::string certificate;  // PEM, the server's own certificate first
  std::string key;          // PEM, without a pass phrase
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  std::string admin_host = "127.0.0.1";
  int32_t admin_port = -1;          // >= 0: administration is possible there only
  TlsFiles tls = {};                // empty: no TLS
  int32_t connections_max = 16384;  // fewer where the file limit is lower
  int32_t connections_per_address_max = 1024;
  int32_t header_seconds_max = 10;
  int32_t body_seconds_base = 30;  // plus a second for each 64 KiB
  int32_t idle_seconds_max = 75;   // keep-alive
  int32_t write_seconds_max = 30;  // a write without progress for so long ends the connection
  // A whole answer that its client reads more slowly is cut off, write_seconds_max after its time.
  int64_t answer_bytes_per_second = 64 << 10;
  int32_t heartbeat_seconds = 15;
  int32_t prepare_threads = 2;
};

// "https://[::1]:8000": a server with these options that listens on `port`.
std::string UrlOf(const HttpOptions& options, uint16_t port);

}  // namespace braid
