// Encoding and decoding of event logs; see the header. One list of fields per type, in `Fields`,
// serves both directions.
#include "scheduler/event_log.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/config.h"
#include "scheduler/plan_hash.h"

namespace braid {
namespace {

constexpr std::string_view kMagic = "BRAIDLOG";
constexpr size_t kHeaderBytes = 12, kChecksumBytes = 4;

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
  kTransferDone,
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
  template <class Tag, class Rep>
  void operator()(StrongId<Tag, Rep>& v) {
    (*this)(v.value);
  }
  template <class T>
  void operator()(std::vector<T>& v) {
    v.resize(Size(1));
    for (T& item : v) (*this)(item);
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
  code(r.request, r.accepted, r.token, r.logprob, r.prompt_logprobs, r.error);
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
void Fields(TransferDone& e, Coder& code) {
  code(e.request, e.token, e.logprob, e.error);
}
template <class Coder>
void Fields(Tick& e, Coder& code) {
  code(e.now_us);
}
template <class Coder>
void Fields(FlushCache&, Coder&) {}
template <class Coder>
void Fields(ResetCache&, Coder&) {}
template <class Coder>
void Fields(PlanMark& p, Coder& code) {
  code(p.step, p.hash);
}

Kind KindOf(const Submit&) { return Kind::kSubmit; }
Kind KindOf(const Abort&) { return Kind::kAbort; }
Kind KindOf(const StepDone&) { return Kind::kStepDone; }
Kind KindOf(const TransferDone&) { return Kind::kTransferDone; }
Kind KindOf(const Tick&) { return Kind::kTick; }
Kind KindOf(const FlushCache&) { return Kind::kFlushCache; }
Kind KindOf(const ResetCache&) { return Kind::kResetCache; }
Kind KindOf(const PlanMark&) { return Kind::kPlan; }
Kind KindOf(const LogStart&) { return Kind::kStart; }

template <class T>
void AppendRecord(const T& value, std::string& out) {
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
bool Decode(std::string_view payload, T& value) {
  Decoder decode(payload);
  decode(value);
  return decode.Whole();
}

template <class T>
std::optional<LogRecord> DecodeEvent(std::string_view payload) {
  T event;
  if (!Decode(payload, event)) return {};
  return LogRecord(Event(std::move(event)));
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "event logs are little-endian");

Result<std::unique_ptr<EventLogWriter>> EventLogWriter::Create(const std::string& path,
                                                               const LogStart& start) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return Error{ErrorCode::kInternal,
                 fmt::format("the event log {} cannot be written: {}", path, std::strerror(errno))};
  }
  std::unique_ptr<EventLogWriter> log(new EventLogWriter(file, path));
  log->pending_ = kMagic;
  log->pending_.append(reinterpret_cast<const char*>(&kEventLogVersion), sizeof(kEventLogVersion));
  AppendRecord(start, log->pending_);
  RETURN_IF_ERROR(log->Flush());
  return log;
}

EventLogWriter::~EventLogWriter() {
  Status ignored = Flush();
  if (file_ != nullptr) std::fclose(file_);
}

void EventLogWriter::Add(const Event& event) {
  if (file_ == nullptr) return;
  std::visit([&](const auto& e) { AppendRecord(e, pending_); }, event);
}

void EventLogWriter::Add(const Plan& plan) {
  if (file_ != nullptr) AppendRecord(PlanMark{plan.step, HashPlan(plan)}, pending_);
}

Status EventLogWriter::Flush() {
  if (file_ == nullptr || pending_.empty()) return {};
  const bool written = std::fwrite(pending_.data(), 1, pending_.size(), file_) == pending_.size() &&
                       std::fflush(file_) == 0;
  pending_.clear();
  if (written) return {};
  const std::string reason = std::strerror(errno);
  std::fclose(std::exchange(file_, nullptr));
  return Error{ErrorCode::kInternal, fmt::format("the event log {} ends here: {}", path_, reason)};
}

Result<EventLogReader> EventLogReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  EventLogReader reader(std::move(file));
  RETURN_IF_ERROR(reader.ReadStart());
  return reader;
}

Status EventLogReader::ReadStart() {
  const auto bytes = file_.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto bad = [&](std::string what) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: {}", file_.path(), what)};
  };
  if (!text.starts_with(kMagic) || text.size() < kHeaderBytes) {
    return bad("this is no event log; `braid serve --event-log FILE` writes one");
  }
  uint32_t version = 0;
  std::memcpy(&version, text.data() + kMagic.size(), sizeof(version));
  if (version != kEventLogVersion) {
    return bad(fmt::format("an event log of version {}; this program reads version {}", version,
                           kEventLogVersion));
  }
  at_ = kHeaderBytes;
  uint8_t kind = 0;
  std::string_view payload;
  RETURN_IF_ERROR(TakeRecord(kind, payload));
  if (kind == 0) return bad("the event log ends before its start record does");
  if (static_cast<Kind>(kind) != Kind::kStart || !Decode(payload, start_)) {
    return Damaged("it is not a start");
  }
  return {};
}

Error EventLogReader::Damaged(const char* what) const {
  return {ErrorCode::kInvalid,
          fmt::format("{}: the record before byte {} is damaged: {}", file_.path(), at_, what)};
}

Status EventLogReader::TakeRecord(uint8_t& kind, std::string_view& payload) {
  const auto bytes = file_.bytes().subspan(at_);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  kind = 0;
  if (text.empty()) return {};
  uint64_t size = 0;
  const size_t length_bytes = TakeVarint(text.substr(1), size);
  if (length_bytes == 0 && text.size() > 10) return Damaged("its length is no number");
  const size_t before = 1 + length_bytes;
  if (length_bytes == 0 || size > text.size() || before + size + kChecksumBytes > text.size()) {
    truncated_ = true;
    return {};
  }
  payload = text.substr(before, static_cast<size_t>(size));
  uint32_t checksum = 0;
  std::memcpy(&checksum, payload.data() + payload.size(), sizeof(checksum));
  at_ += before + payload.size() + kChecksumBytes;
  const auto found = static_cast<uint8_t>(text[0]);
  if (checksum != Checksum(found, payload)) return Damaged("its checksum does not agree");
  kind = found;
  if (kind == 0) return Damaged("its kind is 0");
  return {};
}

Result<std::optional<LogRecord>> EventLogReader::Next() {
  uint8_t kind = 0;
  std::string_view payload;
  RETURN_IF_ERROR(TakeRecord(kind, payload));
  std::optional<LogRecord> record;
  switch (static_cast<Kind>(kind)) {
    case Kind::kEnd:
      return std::optional<LogRecord>();
    case Kind::kSubmit:
      record = DecodeEvent<Submit>(payload);
      break;
    case Kind::kAbort:
      record = DecodeEvent<Abort>(payload);
      break;
    case Kind::kStepDone:
      record = DecodeEvent<StepDone>(payload);
      break;
    case Kind::kTransferDone:
      record = DecodeEvent<TransferDone>(payload);
      break;
    case Kind::kTick:
      record = DecodeEvent<Tick>(payload);
      break;
    case Kind::kFlushCache:
      record = DecodeEvent<FlushCache>(payload);
      break;
    case Kind::kResetCache:
      record = DecodeEvent<ResetCache>(payload);
      break;
    case Kind::kPlan: {
      PlanMark mark;
      if (Decode(payload, mark)) record = LogRecord(mark);
      break;
    }
    case Kind::kStart:
      break;
  }
  if (!record) return Damaged("it does not hold what its kind says");
  return record;
}

}  // namespace braid
