// The interface of src/text to the Rust library: owned handles, strings in and out.
// The C header is included here and nowhere outside src/text; see rust/include/braid_text.h.
#pragma once

#include <braid_text.h>

#include <memory>
#include <string>
#include <string_view>

namespace braid {

inline braid_text_view RustView(std::string_view text) { return {text.data(), text.size()}; }

// Takes over a buffer that the library returned.
inline std::string TakeRustText(braid_text_buffer buffer) {
  std::string text(buffer.data == nullptr ? "" : buffer.data, buffer.size);
  braid_text_buffer_free(buffer);
  return text;
}

template <auto kFree>
struct RustFree {
  template <class T>
  void operator()(T* handle) const {
    kFree(handle);
  }
};

template <class T, auto kFree>
using RustHandle = std::unique_ptr<T, RustFree<kFree>>;

}  // namespace braid
