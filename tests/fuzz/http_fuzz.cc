// Z-1: bytes sent to the HTTP server over a socket, whole and in pieces. However they are cut, the
// same requests arrive at the API behind it, and another parser, as proxies use it, reads the same
// requests in the same bytes: nobody can smuggle one past the other.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <http_parser.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "server/http/http_server.h"
#include "server/http/limits.h"

namespace braid {
namespace {

constexpr size_t kBodyBytesMax = 4096;
constexpr int64_t kPauseUs = 30;  // long enough, mostly, that a piece is read alone

// What must be the same however a request is read.
std::string Record(std::string_view method, std::string_view path, std::string_view body) {
  return fmt::format("{} {} [{}]", method, path, body);
}

// The requests that http_parser (Node's, before llhttp) finds, up to what it refuses.
class SecondParser {
 public:
  std::vector<std::string> Read(std::string_view bytes) {
    http_parser_init(&parser_, HTTP_REQUEST);
    parser_.data = this;
    http_parser_settings settings;
    http_parser_settings_init(&settings);
    settings.on_url = [](http_parser* p, const char* at, size_t size) {
      Self(p).target_.append(at, size);
      return 0;
    };
    settings.on_headers_complete = [](http_parser* p) {
      p->upgrade = 0;  // as a server that offers no other protocol
      return 0;
    };
    settings.on_body = [](http_parser* p, const char* at, size_t size) {
      Self(p).body_.append(at, size);
      return 0;
    };
    settings.on_message_complete = [](http_parser* p) {
      SecondParser& self = Self(p);
      const std::string_view target = self.target_;
      // The API sees HEAD as GET; the connection leaves the body out.
      auto method = static_cast<http_method>(p->method);
      if (method == HTTP_HEAD) method = HTTP_GET;
      self.found_.push_back(
          Record(http_method_str(method), target.substr(0, target.find('?')), self.body_));
      self.target_.clear();
      self.body_.clear();
      return 0;
    };
    http_parser_execute(&parser_, &settings, bytes.data(), bytes.size());
    const http_errno error = HTTP_PARSER_ERRNO(&parser_);
    gave_up_ = error == HPE_INVALID_METHOD || error == HPE_INVALID_TRANSFER_ENCODING;
    return std::move(found_);
  }

  // It stopped at a method that is not in its list, or at a header whose name goes on after
  // "Transfer-Encoding", which it takes for that one.
  bool gave_up() const { return gave_up_; }

 private:
  static SecondParser& Self(http_parser* p) { return *static_cast<SecondParser*>(p->data); }

  http_parser parser_;
  std::string target_, body_;
  std::vector<std::string> found_;
  bool gave_up_ = false;
};

// Answers at once, and keeps what it was asked.
class RecordingApi final : public HttpApi {
 public:
  size_t BodyBytesMax() const override { return kBodyBytesMax; }
  MemoryBudget& memory() override { return memory_; }
  bool IsQuick(const HttpRequest&) const override { return true; }
  bool IsProbe(std::string_view path) const override { return path == "/health"; }
  Reply Respond(HttpRequest request, Wake) override {
    Check(request);
    const std::lock_guard lock(mutex_);
    seen_.push_back(fmt::format("{} {} {} [{}] [{}] [{}]", request.method, request.path,
                                request.content_type, request.authorization, request.request_id,
                                request.body));
    records_.push_back(Record(request.method, request.path, request.body));
    return {.request_id = "id", .content = HttpResponse{}};
  }
  HttpResponse Refuse(int status, std::string message) override {
    CHECK(status >= 400 && status < 600 && !message.empty());
    return {.status = status, .body = std::move(message)};
  }
  std::vector<std::string> TakeSeen() {
    const std::lock_guard lock(mutex_);
    records_.clear();
    return std::exchange(seen_, {});
  }
  std::vector<std::string> records() {
    const std::lock_guard lock(mutex_);
    return records_;
  }

 private:
  static void Check(const HttpRequest& request) {
    constexpr std::string_view kBreaks("\r\n\0", 3);
    for (const std::string& field :
         {request.method, request.path, request.content_type, request.content_encoding,
          request.authorization, request.api_key, request.host, request.origin, request.fetch_site,
          request.asked_headers}) {
      CHECK(field.find_first_of(kBreaks) == std::string::npos, "a field of two lines");
    }
    CHECK(request.method.find(' ') == std::string::npos);
    CHECK(request.path.size() <= limits::kTargetBytesMax);
    CHECK(request.body.size() <= kBodyBytesMax);
  }

  MemoryBudget memory_{{.server_bytes = int64_t{1} << 30}};
  std::mutex mutex_;
  std::vector<std::string> seen_, records_;
};

class Target {
 public:
  Target() {
    options_.port = 0;
    auto server = HttpServer::Start(options_, api_);
    CHECK(server, "{}", server.error().message);
    server_ = std::move(*server);
  }

  // What the server took of `bytes`, sent in pieces that end at `cuts`.
  std::vector<std::string> Send(std::string_view bytes, const std::vector<size_t>& cuts) {
    const int out = Connect();
    size_t from = 0;
    bool open = true;
    for (size_t to : cuts) {
      open = open && SendAll(out, bytes.substr(from, to - from));
      from = to;
      usleep(kPauseUs);
    }
    if (open) SendAll(out, bytes.substr(from));
    shutdown(out, SHUT_WR);
    std::string answer;
    char buffer[4096];
    for (;;) {
      const ssize_t n = recv(out, buffer, sizeof(buffer), 0);
      if (n < 0 && errno == EINTR) continue;  // the fuzzer's clock
      if (n <= 0) break;
      answer.append(buffer, static_cast<size_t>(n));
    }
    close(out);
    CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "));
    SecondParser second;
    const std::vector<std::string> taken = api_.records(), others = second.Read(bytes);
    for (size_t i = 0; i < taken.size(); ++i) {
      if (i == others.size() && second.gave_up()) break;
      CHECK(i < others.size() && taken[i] == others[i], "request {} is {} here and {} elsewhere", i,
            taken[i], i < others.size() ? others[i] : "none");
    }
    return api_.TakeSeen();
  }

 private:
  int Connect() {
    const int out = socket(AF_INET, SOCK_STREAM, 0);
    const int yes = 1;
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(out, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return out;
  }
  static bool SendAll(int out, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(out, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;  // refused: the server closed it
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  HttpOptions options_;
  RecordingApi api_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const std::unique_ptr<Target> target = std::make_unique<Target>();
  if (size < 2) return 0;
  Rng rng(data[0]);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<std::string> whole = target->Send(bytes, {});
  std::vector<size_t> cuts;
  for (int i = 0; i < 4; ++i) {
    cuts.push_back(static_cast<size_t>(rng.Below(static_cast<int64_t>(bytes.size()))));
  }
  std::sort(cuts.begin(), cuts.end());
  const std::vector<std::string> pieces = target->Send(bytes, cuts);
  CHECK(whole == pieces, "{} requests in one piece, {} in several", whole.size(), pieces.size());
  return 0;
}
