// A connection to an engine, and small requests over one. Network thread only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/name_lookup.h"

namespace braid {

namespace asio = boost::asio;

class Upstream {
 public:
  using Endpoints = std::vector<asio::ip::tcp::endpoint>;
  // Of the head of an answer, and of what is read of its body at once.
  static constexpr size_t kBufferBytes = 64 << 10;

  explicit Upstream(const asio::any_io_executor& executor) : socket(executor) {}

  // Tries the addresses in turn, for `ms` in all. Why it failed; empty: it is open.
  asio::awaitable<std::string> Open(Endpoints endpoints, int32_t ms);
  // Whether the engine has closed a connection that was idle, or sent what nobody asked for.
  bool Stale();
  void Close();

  asio::ip::tcp::socket socket;
  boost::beast::flat_buffer buffer{kBufferBytes};
  int64_t idle_since_us = 0;
  bool reused = false;
};

using UpstreamPointer = std::unique_ptr<Upstream>;

// All addresses of a host. Waits for those of a name for `ms` at most, and delays no other
// coroutine; `names` outlives it. Why there are none; empty: they are in `out`.
asio::awaitable<std::string> FindEndpoints(NameLookup& names, const HostPort& at, int32_t ms,
                                           Upstream::Endpoints* out);

struct SmallAnswer {
  int status = 0;  // 0: there was none in time
  std::string body;
};

// A whole request, and its answer of at most a few MiB. After a status of 0 the connection is of no
// use.
asio::awaitable<SmallAnswer> AskSmall(Upstream& upstream, std::string request, int32_t ms);

// What an error in OpenAI's form says; of other answers the status of `path`.
std::string ErrorIn(const SmallAnswer& answer, std::string_view path);

}  // namespace braid
