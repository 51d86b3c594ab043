// The trial process: one thread that waits for orders and forks a child for each. It compiles
// nothing itself, so nothing that a grammar does can hold it up.
#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "base/system/priority.h"
#include "base/system/sanitizer.h"
#include "text/grammar/grammar_trial.h"
#include "text/grammar/trial_message.h"

namespace braid {
namespace {

constexpr int kStepsBelow = 10;
constexpr int kMasksTried = 8;
// Less than the threads have that compile what passed (compile_queue.cc).
constexpr rlim_t kStackBytesMax = rlim_t{8} << 20;

struct Running {
  pid_t child = -1;
  int answers = -1;  // the socket of the server's thread
  int alive = -1;    // a pipe that the child holds open while it lives
};

struct Incoming {
  TrialOrder order;
  int answers = -1, source = -1;
};

// nullopt: the server has ended or sent an invalid message.
std::optional<Incoming> Receive(int control) {
  Incoming incoming;
  iovec part{.iov_base = &incoming.order, .iov_len = sizeof(incoming.order)};
  std::array<int, 2> descriptors{-1, -1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  const ssize_t size = ::recvmsg(control, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (size != static_cast<ssize_t>(sizeof(incoming.order)) || head == nullptr ||
      head->cmsg_len != CMSG_LEN(sizeof(descriptors))) {
    return std::nullopt;
  }
  std::memcpy(descriptors.data(), CMSG_DATA(head), sizeof(descriptors));
  incoming.answers = descriptors[0];
  incoming.source = descriptors[1];
  return incoming;
}

// A file in memory as text; it stays mapped.
std::string_view Mapped(int file, size_t bytes) {
  if (bytes == 0) return {};
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return {};
  return {static_cast<const char*>(data), bytes};
}

int64_t AddressSpaceBytes() {
  int64_t pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * ::sysconf(_SC_PAGESIZE);
}

int64_t HeapBytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) {
    return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
  }
  const struct mallinfo2 heap = ::mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

// Past either limit the system ends the process: of CPU time with SIGPROF; without memory the
// libraries abort.
void LimitSelf(const TrialOrder& order) {
  GiveWay(kStepsBelow);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const rlimit stack{kStackBytesMax, kStackBytesMax};
  ::setrlimit(RLIMIT_STACK, &stack);
  const auto bytes = static_cast<rlim_t>(AddressSpaceBytes() + order.memory_bytes);
  const rlimit memory{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &memory);
  const auto seconds = static_cast<rlim_t>(order.cpu_ms / 1000 + 2);
  const rlimit cpu{seconds, seconds};
  ::setrlimit(RLIMIT_CPU, &cpu);
  itimerval timer{};
  timer.it_value.tv_sec = order.cpu_ms / 1000;
  timer.it_value.tv_usec = order.cpu_ms % 1000 * 1000;
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

// A few tokens along the grammar, as an answer would go.
Status Follow(const GrammarMatcher& matcher, size_t words) {
  ASSIGN_OR_RETURN(GrammarMatcher stream, matcher.Copy());
  std::vector<uint32_t> mask(words);
  for (int i = 0; i < kMasksTried; ++i) {
    RETURN_IF_ERROR(stream.Mask(mask));
    const auto word = std::find_if(mask.begin(), mask.end(), [](uint32_t w) { return w != 0; });
    if (word == mask.end()) break;
    const auto index = static_cast<int32_t>(word - mask.begin());
    const TokenId token = index * 32 + __builtin_ctz(*word);
    if (!stream.Accept(token)) break;
  }
  return {};
}

[[noreturn]] void Compile(const Grammars& grammars, size_t words, const Incoming& incoming) {
  const TrialOrder& order = incoming.order;
  const std::string_view source = Mapped(incoming.source, order.source_bytes);
  LimitSelf(order);
  const int64_t heap_bytes = HeapBytes();
  Result<GrammarMatcher> matcher = grammars.Compile(order.kind, source);
  TrialReport report{.compiled = matcher.ok()};
  Status status = matcher ? Status() : matcher.error();
  if (matcher) {
    report.held_bytes = std::max<int64_t>(HeapBytes() - heap_bytes, 0);
    status = Follow(*matcher, words);
    report.compiled = status.ok();
  }
  if (!status) {
    report.code = status.error().code;
    const std::string& message = status.error().message;
    report.message_bytes = static_cast<uint16_t>(std::min(message.size(), kTrialMessageBytesMax));
    std::memcpy(report.message, message.data(), report.message_bytes);
  }
  (void)::send(incoming.answers, &report, sizeof(report), MSG_NOSIGNAL);
  ::_exit(0);
}

class Trials {
 public:
  Trials(int control, const Grammars& grammars, size_t words)
      : control_(control), grammars_(grammars), words_(words), parent_(::getpid()) {}

  void Run() {
    std::vector<pollfd> polled;
    while (true) {
      polled.assign(1, {.fd = control_, .events = POLLIN, .revents = 0});
      for (const Running& running : running_) {
        polled.push_back({.fd = running.alive, .events = POLLIN, .revents = 0});
        polled.push_back({.fd = running.answers, .events = POLLRDHUP, .revents = 0});
      }
      if (::poll(polled.data(), polled.size(), -1) < 0) continue;
      for (size_t i = running_.size(); i-- > 0;) {
        if (polled[2 * i + 2].revents != 0) ::kill(running_[i].child, SIGKILL);
        if (polled[2 * i + 1].revents != 0) End(i);
      }
      if (polled[0].revents == 0) continue;
      const std::optional<Incoming> incoming = Receive(control_);
      if (!incoming) return;
      Begin(*incoming);
    }
  }

 private:
  void Begin(const Incoming& incoming) {
    int alive[2];
    if (::pipe2(alive, O_CLOEXEC) == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent_) ::_exit(0);
        Compile(grammars_, words_, incoming);
      }
      ::close(alive[1]);
      if (child > 0) {
        running_.push_back({.child = child, .answers = incoming.answers, .alive = alive[0]});
      } else {
        ::close(alive[0]);
        ::close(incoming.answers);
      }
    } else {
      ::close(incoming.answers);
    }
    ::close(incoming.source);
  }

  void End(size_t index) {
    const Running running = running_[index];
    running_.erase(running_.begin() + static_cast<int64_t>(index));
    TrialEnd end;
    rusage used{};
    if (::wait4(running.child, &end.wait_status, 0, &used) == running.child) {
      end.cpu_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000 +
                   used.ru_utime.tv_usec + used.ru_stime.tv_usec;
      (void)::send(running.answers, &end, sizeof(end), MSG_NOSIGNAL);
    }
    ::close(running.answers);
    ::close(running.alive);
  }

  const int control_;
  const Grammars& grammars_;
  const size_t words_;
  const pid_t parent_;
  std::vector<Running> running_;
};

// Discards what a crashing child writes.
void CloseOutputs() {
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup2(nothing, STDOUT_FILENO);
  ::dup2(nothing, STDERR_FILENO);
  ::close(nothing);
}

}  // namespace

int RunTrialProcess(int control, int vocabulary) {
  // Its server's signals are not its own: it ends when the server closes the socket.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "braid-trial");
  struct stat file{};
  if (::fstat(vocabulary, &file) != 0) return 1;
  const std::string_view packed = Mapped(vocabulary, static_cast<size_t>(file.st_size));
  const Result<Grammars> grammars = Grammars::Unpack(packed);
  if (!grammars) {
    fmt::print(stderr, "braid grammar-trial: {}\n", grammars.error().message);
    return 1;
  }
  CloseOutputs();
  uint32_t tokens = 0;
  std::memcpy(&tokens, packed.data(), sizeof(tokens));
  Trials(control, *grammars, (size_t{tokens} + 31) / 32).Run();
  return 0;
}

}  // namespace braid
