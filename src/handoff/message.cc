// Fields of fixed width, little-endian; a text is its length and its bytes. One list of fields per
// message, in `Fields`, serves both directions.
#include "handoff/message.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace braid::handoff {
namespace {

struct Writer {
  template <class T>
  void operator()(const T& v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof(v));
  }
  template <class Tag, class Rep>
  void operator()(StrongId<Tag, Rep> v) {
    (*this)(v.value);
  }
  void operator()(const std::string& v, size_t most) {
    const auto size = static_cast<uint32_t>(std::min(v.size(), most));
    (*this)(size);
    out.append(v, 0, size);
  }
  std::string out;
};

struct Reader {
  template <class T>
  void operator()(T& v) {
    bad |= text.size() < sizeof(v);
    if (bad) return;
    std::memcpy(&v, text.data(), sizeof(v));
    text.remove_prefix(sizeof(v));
  }
  template <class Tag, class Rep>
  void operator()(StrongId<Tag, Rep>& v) {
    (*this)(v.value);
    bad |= v.value < 0;
  }
  void operator()(std::string& v, size_t most) {
    uint32_t size = 0;
    (*this)(size);
    bad |= size > most || size > text.size();
    if (bad) return;
    v.assign(text.substr(0, size));
    text.remove_prefix(size);
  }
  std::string_view text;
  bool bad = false;
};

template <class Coder>
void Fields(Ask& m, Coder& code) {
  code(m.room);
  code(m.open_from);
  code(m.begin);
  code(m.request, kRequestBytesMax);
}
template <class Coder>
void Fields(Cancel& m, Coder& code) {
  code(m.room);
}
template <class Coder>
void Fields(Took& m, Coder& code) {
  code(m.room);
}
template <class Coder>
void Fields(PartHead& m, Coder& code) {
  code(m.room);
  code(m.part.group);
  code(m.part.index);
  code(m.checksum);
}
template <class Coder>
void Fields(Last& m, Coder& code) {
  code(m.room);
  code(m.parts);
  code(m.result, kResultBytesMax);
}
template <class Coder>
void Fields(Refusal& m, Coder& code) {
  code(m.room);
  code(m.reason, kReasonBytesMax);
}
template <class Coder>
void Fields(Ping&, Coder&) {}
template <class Coder>
void Fields(Hello& m, Coder& code) {
  code(m.version);
  code(m.fingerprint, kFingerprintBytesMax);
  code(m.nonce, kNonceBytesMax);
  code(m.proof, kNonceBytesMax);
}

template <class Coder>
void Fields(Unfit& m, Coder& code) {
  code(m.room);
  code(m.reason, kReasonBytesMax);
}

template <size_t... kKinds>
Body Default(size_t kind, std::index_sequence<kKinds...>) {
  Body body = Ping{};
  ((kind == kKinds ? void(body.emplace<kKinds>()) : void()), ...);
  return body;
}

}  // namespace

std::string Encode(const Message& message) {
  Writer write;
  write(static_cast<uint8_t>(message.body.index()));
  write(message.session);
  std::visit([&](const auto& m) { Fields(const_cast<std::decay_t<decltype(m)>&>(m), write); },
             message.body);
  return std::move(write.out);
}

std::optional<Message> Decode(std::string_view bytes) {
  constexpr size_t kKinds = std::variant_size_v<Body>;
  Reader read{bytes};
  uint8_t kind = 0;
  read(kind);
  if (read.bad || kind >= kKinds) return {};
  Message message;
  read(message.session);
  message.body = Default(kind, std::make_index_sequence<kKinds>());
  std::visit([&](auto& m) { Fields(m, read); }, message.body);
  if (read.bad || !read.text.empty()) return {};
  return message;
}

}  // namespace braid::handoff
