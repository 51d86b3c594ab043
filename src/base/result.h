// Errors as values. Result<T> is either a value or an Error; Status is a Result without a value.
// They are for everything that a user, a file, a peer or a device can cause; base/check.h is for
// programmers' errors.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace braid {

enum class ErrorCode : uint8_t {
  kInvalid,      // the input is wrong and will stay wrong
  kNotFound,     // the thing named does not exist
  kUnavailable,  // not now: loading, draining, overloaded
  kExhausted,    // a limit or a resource is used up
  kInternal,     // a library or the operating system failed
};

// `message` says what is wrong and what would be right; `field` names the input (a JSON field, a
// config key, a tensor) and may be empty.
struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
  std::string field = {};
};

// `E` is what a failure says; a module with a richer form of errors names its own.
template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(E error) : v_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return v_.index() == 0; }
  bool ok() const { return v_.index() == 0; }
  T& operator*() & { return std::get<0>(v_); }
  const T& operator*() const& { return std::get<0>(v_); }
  T&& operator*() && { return std::get<0>(std::move(v_)); }
  T* operator->() { return &std::get<0>(v_); }
  const T* operator->() const { return &std::get<0>(v_); }
  const E& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, E> v_;
};

template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() = default;
  Result(E error) : error_(std::move(error)), failed_(true) {}

  explicit operator bool() const { return !failed_; }
  bool ok() const { return !failed_; }
  const E& error() const { return error_; }

 private:
  E error_;
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace braid

#define BRAID_CONCAT_INNER(a, b) a##b
#define BRAID_CONCAT(a, b) BRAID_CONCAT_INNER(a, b)
#define BRAID_ASSIGN_OR_RETURN_INNER(tmp, decl, expr) \
  auto tmp = (expr);                                  \
  if (!tmp) [[unlikely]]                              \
    return tmp.error();                               \
  decl = *std::move(tmp)

// ASSIGN_OR_RETURN(auto x, F()): x is the value of F(), or the function returns F()'s error.
#define ASSIGN_OR_RETURN(decl, expr) \
  BRAID_ASSIGN_OR_RETURN_INNER(BRAID_CONCAT(braid_result_, __LINE__), decl, expr)

#define RETURN_IF_ERROR(expr)       \
  do {                              \
    auto braid_status = (expr);     \
    if (!braid_status) [[unlikely]] \
      return braid_status.error();  \
  } while (false)
