// How coroutines of the server and of the router wait for the network.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace braid {

// With it an error is the first value that co_await gives, not an exception.
inline constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace braid
