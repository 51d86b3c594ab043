// Encoding and decoding of records; see the header. One list of fields per type, in `Fields`,
// serves both directions.
#include "scheduler/event_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "scheduler/config.h"

namespace braid {
namespace {

constexpr size_t kChecksumBytes = 4;
constexpr size_t kItemsAtOnce = 1024;  // of a list, for which there is room before they are read

enum class Kind : uint8_t {
  kEnd,
  kStart,
  kSubmit,
  kAbort,
  kStepDone,
  kTick,
  kFlushCache,
  kPlan,
  kResetCache,
  kPagesMoved,
  kPauseRequested,
  kStopRequested,
  kPagesKnown,
  kMoveExperts,
  kArenasLost,
  kTime,
  kGrammarReady,
};

uint32_t Checksum(uint8_t kind, std::string_view payload) {
  uint64_t sum = kind + payload.size();
  for (size_t i = 0; i < payload.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, payload.data() + i, std::min<size_t>(8, payload.size() - i));
    sum = MixBits(sum + 0x9e3779b97f4a7c15ull + word);
  }
  return static_cast<uint32_t>(sum ^ (sum >> 32));
}

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Bytes taken; 0 when the text ends inside, or the number does not fit 64 bits.
size_t TakeVarint(std::string_view text, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < text.size() && i < 10; ++i) {
    const uint64_t byte = static_cast<unsigned char>(text[i]);
    if (i == 9 && byte > 1) return 0;
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) return i + 1;
  }
  return 0;
}

// Small magnitudes of either sign become small numbers.
uint64_t ZigZag(int64_t v) {
  return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63);
}
int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1); }

class Encoder {
 public:
  template <class A, class B, class... More>
  void operator()(const A& a, const B& b, const More&... more) {
    (*this)(a);
    (*this)(b);
    ((*this)(more), ...);
  }
  void operator()(int32_t v) { PutVarint(ZigZag(v), text); }
  void operator()(int64_t v) { PutVarint(ZigZag(v), text); }
  void operator()(uint64_t v) { Bits(&v, sizeof(v)); }
  void operator()(float v) { Bits(&v, sizeof(v)); }
  void operator()(bool v) { text.push_back(v ? 1 : 0); }
  void operator()(const std::string& v) {
    PutVarint(v.size(), text);
    text += v;
  }
  template <class T>
    requires std::is_enum_v<T>
  void operator()(T v) {
    text.push_back(static_cast<char>(v));
  }
  template <class Tag, class Rep>
  void operator()(StrongId<Tag, Rep> v) {
    (*this)(v.value);
  }
  template <class T>
  void operator()(const std::vector<T>& v) {
    PutVarint(v.size(), text);
    for (const T& item : v) (*this)(item);
  }
  template <class A, class B>
  void operator()(const std::pair<A, B>& v) {
    (*this)(v.first);
    (*this)(v.second);
  }
  template <class T>
    requires requires(T& v, Encoder& e) { Fields(v, e); }
  void operator()(const T& v) {
    Fields(const_cast<T&>(v), *this);  // only read
  }

  bool AtEnd() const { return false; }

  std::string text;

 private:
  void Bits(const void* data, size_t size) { text.append(static_cast<const char*>(data), size); }
};

// What does not fit sets `bad`; everything after that is skipped.
class Decoder {
 public:
  explicit Decoder(std::string_view text) : text_(text) {}
  bool Whole() const { return !bad_ && text_.empty(); }
  bool AtEnd() const { return text_.empty(); }

  template <class A, class B, class... More>
  void operator()(A& a, B& b, More&... more) {
    (*this)(a);
    (*this)(b);
    ((*this)(more), ...);
  }
  void operator()(int32_t& v) {
    int64_t wide = 0;
    (*this)(wide);
    v = static_cast<int32_t>(wide);
    bad_ |= v != wide;
  }
  void operator()(int64_t& v) { v = UnZigZag(Varint()); }
  void operator()(uint64_t& v) { Bits(&v, sizeof(v)); }
  void operator()(float& v) { Bits(&v, sizeof(v)); }
  void operator()(bool& v) {
    const uint8_t byte = Byte();
    v = byte == 1;
    bad_ |= byte > 1;
  }
  void operator()(std::string& v) {
    const size_t size = Size(1);
    v.assign(text_.substr(0, size));
    text_.remove_prefix(size);
  }
  void operator()(GroupKind& v) { Enum(v, GroupKind::kState); }
  void operator()(Placement& v) { Enum(v, Placement::kRoundRobin); }
  void operator()(FinishReason& v) { Enum(v, FinishReason::kSent); }
  void operator()(RequestRole& v) { Enum(v, RequestRole::kDecode); }
  void operator()(DraftSource& v) { Enum(v, DraftSource::kHead); }
  void operator()(ErrorCode& v) { Enum(v, ErrorCode::kInternal); }
  template <class Tag, class Rep>
  void operator()(StrongId<Tag, Rep>& v) {
    (*this)(v.value);
  }
  // A count alone makes no room: a partner's may be large, and its items not there.
  template <class T>
  void operator()(std::vector<T>& v) {
    const size_t size = Size(1);
    v.clear();
    v.reserve(std::min(size, kItemsAtOnce));
    while (v.size() < size && !bad_) (*this)(v.emplace_back());
  }
  template <class A, class B>
  void operator()(std::pair<A, B>& v) {
    (*this)(v.first);
    (*this)(v.second);
  }
  template <class T>
    requires requires(T& v, Decoder& d) { Fields(v, d); }
  void operator()(T& v) {
    Fields(v, *this);
  }

 private:
  uint8_t Byte() {
    uint8_t byte = 0;
    Bits(&byte, 1);
    return byte;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    const size_t taken = bad_ ? 0 : TakeVarint(text_, value);
    bad_ |= taken == 0;
    text_.remove_prefix(taken);
    return bad_ ? 0 : value;
  }
  // A count of items of at least so many bytes each.
  size_t Size(size_t least_bytes) {
    const uint64_t size = Varint();
    bad_ |= size > text_.size() / least_bytes;
    return bad_ ? 0 : static_cast<size_t>(size);
  }
  template <class T>
  void Enum(T& v, T last) {
    const uint8_t byte = Byte();
    bad_ |= byte > static_cast<uint8_t>(last);
    v = static_cast<T>(byte);
  }
  void Bits(void* data, size_t size) {
    bad_ |= text_.size() < size;
    if (bad_) return;
    std::memcpy(data, text_.data(), size);
    text_.remove_prefix(size);
  }

  std::string_view text_;
  bool bad_ = false;
};

template <class Coder>
void Fields(GroupGeometry& g, Coder& code) {
  code(g.name, g.kind, g.block_bytes, g.blocks_per_page);
}
template <class Coder>
void Fields(LogStart& s, Coder& code) {
  SchedulerConfig& c = s.config;
  code(s.model, c.cache.groups, c.cache.page_bytes, c.cache.pages);
  for (const Setting& setting : kSettings) {
    if (code.AtEnd()) return;  // the log is older than the setting, which has its default
    std::visit([&](auto member) { code(c.*member); }, setting.member);
  }
}
template <class Coder>
void Fields(SamplingParams& p, Coder& code) {
  code(p.temperature, p.top_k, p.top_p, p.min_p, p.repetition_penalty);
  code(p.presence_penalty, p.frequency_penalty, p.seed, p.logit_bias);
}
template <class Coder>
void Fields(Request& r, Coder& code) {
  code(r.id, r.prompt, r.sampling, r.stop.stop_tokens);
  code(r.stop.new_tokens_max, r.stop.new_tokens_min, r.logprobs);
  code(r.prompt_logprobs, r.priority, r.tenant, r.cache_salt, r.dp_rank);
  code(r.role, r.grammar, r.grammar_after);
  code(r.thinking.tokens_max, r.thinking.open, r.thinking.close, r.draft_tokens);
}
template <class Coder>
void Fields(TokenLogprob& t, Coder& code) {
  code(t.token, t.logprob, t.top);
}
template <class Coder>
void Fields(RowResult& r, Coder& code) {
  code(r.request, r.accepted, r.token, r.logprob, r.prompt_logprobs, r.error, r.error_code);
  code(r.accepted_logprobs, r.drafts, r.drafts_of);
}
template <class Coder>
void Fields(Submit& e, Coder& code) {
  code(e.request);
}
template <class Coder>
void Fields(Abort& e, Coder& code) {
  code(e.id, e.reason);
}
template <class Coder>
void Fields(StepDone& e, Coder& code) {
  code(e.step, e.rows, e.duration_us);
}
template <class Coder>
void Fields(PagesMoved& e, Coder& code) {
  code(e.move, e.error, e.lost, e.token, e.logprob, e.duration_us);
  // Of logs that are older: none.
  if (!code.AtEnd()) code(e.in_memory);
  if (!code.AtEnd()) code(e.disk_bytes, e.memory_bytes);
}
template <class Coder>
void Fields(Tick& e, Coder& code) {
  code(e.now_us);
}
template <class Coder>
void Fields(KnownPart& p, Coder& code) {
  code(p.key.low, p.key.high, p.kind);
}
template <class Coder>
void Fields(PagesKnown& e, Coder& code) {
  code(e.added, e.dropped);
}
template <class Coder>
void Fields(FlushCache& e, Coder& code) {
  code(e.tiers);
}
template <class Coder>
void Fields(ResetCache&, Coder&) {}
template <class Coder>
void Fields(ArenasLost& e, Coder& code) {
  code(e.error);
}
template <class Coder>
void Fields(GrammarReady& e, Coder& code) {
  code(e.request, e.error, e.error_code);
}
template <class Coder>
void Fields(PauseRequested& e, Coder& code) {
  code(e.paused);
}
template <class Coder>
void Fields(StopRequested& e, Coder& code) {
  code(e.now);
}
template <class Coder>
void Fields(MoveExperts& e, Coder& code) {
  code(e.slots);
}
template <class Coder>
void Fields(PlanMark& p, Coder& code) {
  code(p.step, p.hash);
}
template <class Coder>
void Fields(TimeMark& t, Coder& code) {
  code(t.at_us);
}

Kind KindOf(const Submit&) { return Kind::kSubmit; }
Kind KindOf(const Abort&) { return Kind::kAbort; }
Kind KindOf(const StepDone&) { return Kind::kStepDone; }
Kind KindOf(const PagesMoved&) { return Kind::kPagesMoved; }
Kind KindOf(const PagesKnown&) { return Kind::kPagesKnown; }
Kind KindOf(const Tick&) { return Kind::kTick; }
Kind KindOf(const FlushCache&) { return Kind::kFlushCache; }
Kind KindOf(const ResetCache&) { return Kind::kResetCache; }
Kind KindOf(const PauseRequested&) { return Kind::kPauseRequested; }
Kind KindOf(const StopRequested&) { return Kind::kStopRequested; }
Kind KindOf(const MoveExperts&) { return Kind::kMoveExperts; }
Kind KindOf(const ArenasLost&) { return Kind::kArenasLost; }
Kind KindOf(const GrammarReady&) { return Kind::kGrammarReady; }
Kind KindOf(const PlanMark&) { return Kind::kPlan; }
Kind KindOf(const TimeMark&) { return Kind::kTime; }
Kind KindOf(const LogStart&) { return Kind::kStart; }

template <class T>
void Append(const T& value, std::string& out) {
  Encoder encode;
  encode(value);
  const auto kind = static_cast<uint8_t>(KindOf(value));
  out.push_back(static_cast<char>(kind));
  PutVarint(encode.text.size(), out);
  const uint32_t checksum = Checksum(kind, encode.text);
  out += encode.text;
  out.append(reinterpret_cast<const char*>(&checksum), kChecksumBytes);
}

template <class T>
std::optional<AnyRecord> Decode(std::string_view payload) {
  T value;
  Decoder decode(payload);
  decode(value);
  std::optional<AnyRecord> record;
  if (!decode.Whole()) return record;
  if constexpr (std::is_constructible_v<Event, T>) {
    record.emplace(std::in_place_type<Event>, std::move(value));
  } else {
    record.emplace(std::in_place_type<T>, std::move(value));
  }
  return record;
}

std::optional<AnyRecord> DecodeAs(Kind kind, std::string_view payload) {
  switch (kind) {
    case Kind::kStart:
      return Decode<LogStart>(payload);
    case Kind::kSubmit:
      return Decode<Submit>(payload);
    case Kind::kAbort:
      return Decode<Abort>(payload);
    case Kind::kStepDone:
      return Decode<StepDone>(payload);
    case Kind::kPagesMoved:
      return Decode<PagesMoved>(payload);
    case Kind::kPagesKnown:
      return Decode<PagesKnown>(payload);
    case Kind::kTick:
      return Decode<Tick>(payload);
    case Kind::kFlushCache:
      return Decode<FlushCache>(payload);
    case Kind::kResetCache:
      return Decode<ResetCache>(payload);
    case Kind::kPauseRequested:
      return Decode<PauseRequested>(payload);
    case Kind::kStopRequested:
      return Decode<StopRequested>(payload);
    case Kind::kMoveExperts:
      return Decode<MoveExperts>(payload);
    case Kind::kArenasLost:
      return Decode<ArenasLost>(payload);
    case Kind::kGrammarReady:
      return Decode<GrammarReady>(payload);
    case Kind::kPlan:
      return Decode<PlanMark>(payload);
    case Kind::kTime:
      return Decode<TimeMark>(payload);
    case Kind::kEnd:
      break;
  }
  return {};
}

Error Damaged(const char* what) { return {ErrorCode::kInvalid, what}; }

}  // namespace

static_assert(std::endian::native == std::endian::little, "records are little-endian");

void AppendRecord(const LogStart& start, std::string& out) { Append(start, out); }
void AppendRecord(const PlanMark& mark, std::string& out) { Append(mark, out); }
void AppendRecord(const TimeMark& mark, std::string& out) { Append(mark, out); }
void AppendRecord(const Event& event, std::string& out) {
  std::visit([&](const auto& e) { Append(e, out); }, event);
}

Result<std::optional<AnyRecord>> RecordReader::Next() {
  const std::string_view text = text_.substr(at_);
  if (text.empty()) return std::optional<AnyRecord>();
  uint64_t size = 0;
  const size_t length_bytes = TakeVarint(text.substr(1), size);
  if (length_bytes == 0 && text.size() > 10) return Damaged("its length is no number");
  const size_t before = 1 + length_bytes;
  if (length_bytes == 0 || size > text.size() || before + size + kChecksumBytes > text.size()) {
    truncated_ = true;
    return std::optional<AnyRecord>();
  }
  const std::string_view payload = text.substr(before, static_cast<size_t>(size));
  uint32_t checksum = 0;
  std::memcpy(&checksum, payload.data() + payload.size(), sizeof(checksum));
  at_ += before + payload.size() + kChecksumBytes;
  const auto kind = static_cast<uint8_t>(text[0]);
  if (checksum != Checksum(kind, payload)) return Damaged("its checksum does not agree");
  if (kind == 0) return Damaged("its kind is 0");
  std::optional<AnyRecord> record = DecodeAs(static_cast<Kind>(kind), payload);
  if (!record) return Damaged("it does not hold what its kind says");
  return record;
}

}  // namespace braid
