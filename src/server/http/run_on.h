// How a coroutine has work done by a pool of threads.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace braid {

// Runs work() on a thread of the pool; the coroutine goes on on its own thread with the result, or
// with what work() threw. (co_spawn sends a coroutine that never waits through the pool's queue a
// second time, so that its result waits for the work that came after it.)
template <class Work>
boost::asio::awaitable<std::invoke_result_t<Work&>> RunOn(boost::asio::thread_pool& pool,
                                                          Work work) {
  namespace asio = boost::asio;
  using Result = std::optional<std::invoke_result_t<Work&>>;
  const auto start = [&](auto handler) {
    auto own = asio::make_work_guard(asio::get_associated_executor(handler));
    asio::post(pool, [&work, own = std::move(own), handler = std::move(handler)]() mutable {
      Result result;
      std::exception_ptr thrown;
      try {
        result = work();
      } catch (...) {
        thrown = std::current_exception();
      }
      asio::dispatch(own.get_executor(), [handler = std::move(handler), result = std::move(result),
                                          thrown]() mutable {
        std::move(handler)(thrown, std::move(result));
      });
    });
  };
  Result result = co_await asio::async_initiate<const asio::use_awaitable_t<>,
                                                void(std::exception_ptr, Result)>(
      start, asio::use_awaitable);
  co_return *std::move(result);
}

}  // namespace braid
