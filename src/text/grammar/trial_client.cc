// The server's side of trials: sockets with packets, and a poll that sees a cancelled request.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "text/grammar/grammar_trial.h"
#include "text/grammar/trial_message.h"

extern char** environ;

namespace braid {
namespace {

constexpr int kLookEveryMs = 20;
// A child that gets no CPU time: then there is no verdict on the grammar.
constexpr int64_t kWallTimesBudget = 10, kWallExtraMs = 10'000;
constexpr int64_t kEndWaitUs = 10'000'000;  // for a child that is killed

// A descriptor that spawning may put onto 3 and 4 without writing over others.
int Raised(int descriptor) {
  constexpr int kAbove = 16;
  const int raised = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kAbove);
  ::close(descriptor);
  return raised;
}

// A file in memory; -1: failed.
int FileOf(std::string_view bytes) {
  const int file = ::memfd_create("braid-grammar", MFD_CLOEXEC);
  if (file < 0) return -1;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written <= 0) {
      ::close(file);
      return -1;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Raised(file);
}

bool SendWithTwo(int socket, const TrialOrder& order, std::array<int, 2> descriptors) {
  iovec part{.iov_base = const_cast<TrialOrder*>(&order), .iov_len = sizeof(order)};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof(descriptors));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(order));
}

Error Over(std::string_view what) { return {ErrorCode::kExhausted, std::string(what)}; }

// How the child ended, as a verdict; `reported` holds what it said before.
Status StatusOf(const TrialEnd& end, const TrialReport& reported, const GrammarBudget& budget) {
  if (WIFEXITED(end.wait_status) && reported.tag == TrialReport::kTag) {
    if (reported.compiled) return {};
    return Error{reported.code, std::string(reported.message, reported.message_bytes)};
  }
  const int signal = WIFSIGNALED(end.wait_status) ? WTERMSIG(end.wait_status) : 0;
  switch (signal) {
    case SIGPROF:
    case SIGXCPU:
      return Over(
          fmt::format("compiling it takes more than {} ms of CPU time, the limit of a "
                      "grammar (--grammar-cpu-ms)",
                      budget.cpu_ms));
    case SIGABRT:
      return Over(
          fmt::format("compiling it takes more than {} MiB of memory, the limit of a "
                      "grammar (--grammar-memory)",
                      budget.memory_bytes >> 20));
    case SIGSEGV:
    case SIGBUS:
      return Over("it is nested too deeply to be compiled");
    default:
      return Error{ErrorCode::kUnavailable,
                   fmt::format("the trial of the grammar ended with status {}", end.wait_status)};
  }
}

}  // namespace

Result<std::unique_ptr<TrialProcess>> TrialProcess::Start(std::string_view packed_vocabulary,
                                                          GrammarBudget budget, Spawn spawn) {
  const int vocabulary = FileOf(packed_vocabulary);
  if (vocabulary < 0) return Error{ErrorCode::kInternal, "no file in memory for the vocabulary"};
  std::unique_ptr<TrialProcess> trial(new TrialProcess(budget, std::move(spawn), vocabulary));
  std::lock_guard lock(trial->mutex_);
  RETURN_IF_ERROR(trial->SpawnLocked());
  return trial;
}

TrialProcess::~TrialProcess() {
  std::lock_guard lock(mutex_);
  EndLocked();
  ::close(vocabulary_);
}

void TrialProcess::EndLocked() {
  if (control_ >= 0) ::close(control_);
  control_ = -1;
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

Status TrialProcess::SpawnLocked() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return Error{ErrorCode::kUnavailable, "no socket for the trial process"};
  }
  control_ = Raised(pair[0]);
  const int theirs = Raised(pair[1]);
  process_ = spawn_(theirs, vocabulary_);
  ::close(theirs);
  if (process_ > 0) return {};
  EndLocked();
  return Error{ErrorCode::kUnavailable, "the trial process could not be started"};
}

Result<int> TrialProcess::Begin(GrammarKind kind, std::string_view source) {
  const TrialOrder order{.kind = kind,
                         .cpu_ms = budget_.cpu_ms,
                         .memory_bytes = budget_.memory_bytes,
                         .source_bytes = source.size()};
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return Error{ErrorCode::kUnavailable, "no socket for a trial"};
  }
  const int file = FileOf(source);
  bool sent = false;
  if (file >= 0) {
    std::lock_guard lock(mutex_);
    sent = control_ >= 0 && SendWithTwo(control_, order, {pair[1], file});
    if (!sent) {
      LogWarning("the trial process has ended and is restarted");
      EndLocked();
      if (SpawnLocked()) sent = SendWithTwo(control_, order, {pair[1], file});
    }
    ::close(file);
  }
  ::close(pair[1]);
  if (sent) return pair[0];
  ::close(pair[0]);
  return Error{ErrorCode::kUnavailable, "the trial process does not accept the grammar"};
}

GrammarVerdict TrialProcess::Try(GrammarKind kind, std::string_view source,
                                 const std::atomic<bool>& cancelled) {
  constexpr int kAttempts = 2;  // the process may have been dying when it got the order
  for (int i = 0; i < kAttempts; ++i) {
    const Result<int> socket = Begin(kind, source);
    if (!socket) return {.status = socket.error()};
    std::optional<GrammarVerdict> verdict = Await(*socket, cancelled);
    ::close(*socket);  // makes the trial process end the child if it still runs
    if (verdict) return *std::move(verdict);
  }
  return {.status = Error{ErrorCode::kUnavailable, "the trial process ended during the trial"}};
}

std::optional<GrammarVerdict> TrialProcess::Await(int socket,
                                                  const std::atomic<bool>& cancelled) const {
  int64_t end_us = MonotonicUs() + (kWallTimesBudget * budget_.cpu_ms + kWallExtraMs) * 1000;
  TrialReport report{.tag = 0};
  std::optional<Error> given_up;
  while (true) {
    const bool late = MonotonicUs() > end_us;
    if (given_up && late) return GrammarVerdict{.status = *given_up};
    if (!given_up && (late || cancelled.load())) {
      given_up = Error{ErrorCode::kUnavailable, late ? "the trial of the grammar took too long"
                                                     : "no request waits for the grammar any more"};
      ::shutdown(socket, SHUT_WR);  // ends the child; the CPU time that it used still comes
      end_us = MonotonicUs() + kEndWaitUs;
    }
    pollfd wanted{.fd = socket, .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, kLookEveryMs) <= 0) continue;
    alignas(TrialReport) char packet[sizeof(TrialReport)];
    const ssize_t size = ::recv(socket, packet, sizeof(packet), 0);
    if (size == static_cast<ssize_t>(sizeof(TrialReport))) {
      std::memcpy(&report, packet, sizeof(report));
    } else if (size == static_cast<ssize_t>(sizeof(TrialEnd))) {
      TrialEnd end;
      std::memcpy(&end, packet, sizeof(end));
      return GrammarVerdict{.status = given_up ? *given_up : StatusOf(end, report, budget_),
                            .cpu_us = end.cpu_us,
                            .held_bytes = report.held_bytes};
    } else if (size == 0 || (size < 0 && errno != EINTR)) {
      if (!given_up) return std::nullopt;
      return GrammarVerdict{.status = *given_up};
    }
  }
}

int SpawnSelfAsTrial(int control, int vocabulary) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, control, kTrialControl);
  ::posix_spawn_file_actions_adddup2(&files, vocabulary, kTrialVocabulary);
  // Connections of clients would stay open in it.
  ::posix_spawn_file_actions_addclosefrom_np(&files, kTrialVocabulary + 1);
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string name = "braid", word(kTrialWord);
  char* arguments[] = {name.data(), word.data(), nullptr};
  pid_t process = -1;
  const int failed =
      ::posix_spawn(&process, "/proc/self/exe", &files, &attributes, arguments, environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  return failed == 0 ? process : -1;
}

}  // namespace braid
