// Processes by fork; see the header.
#include "sim/isolated.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace braid {
namespace {

constexpr off_t kSaidMax = 4096;

[[noreturn]] void RunWork(const std::function<bool()>& work, int said, int32_t cpu_seconds_max) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (cpu_seconds_max > 0) {
    const auto seconds = static_cast<rlim_t>(cpu_seconds_max);
    const rlimit cpu{seconds, seconds};
    setrlimit(RLIMIT_CPU, &cpu);
  }
  dup2(said, STDERR_FILENO);
  std::_Exit(work() ? 0 : 1);
}

std::string LastLine(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  std::string text(static_cast<size_t>(std::clamp<off_t>(size, 0, kSaidMax)), '\0');
  const ssize_t got = pread(file, text.data(), text.size(),
                            std::max<off_t>(size - static_cast<off_t>(text.size()), 0));
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

IsolatedProcess::IsolatedProcess(const std::function<bool()>& work, int32_t cpu_seconds_max) {
  said_ = memfd_create("said", MFD_CLOEXEC);
  CHECK(said_ >= 0, "no file for what a process says");
  pid_ = fork();
  CHECK(pid_ >= 0, "cannot start a process");
  if (pid_ == 0) RunWork(work, said_, cpu_seconds_max);
}

IsolatedProcess::~IsolatedProcess() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  close(said_);
}

bool IsolatedProcess::Ended() {
  reaped_ = reaped_ || waitpid(pid_, &status_, WNOHANG) == pid_;
  return reaped_;
}

IsolatedEnd IsolatedProcess::Wait() {
  if (!reaped_) CHECK(waitpid(pid_, &status_, 0) == pid_);
  reaped_ = true;
  return {.clean = WIFEXITED(status_) && WEXITSTATUS(status_) == 0,
          .out_of_time = WIFSIGNALED(status_) &&
                         (WTERMSIG(status_) == SIGXCPU || WTERMSIG(status_) == SIGKILL),
          .said = LastLine(said_)};
}

}  // namespace braid
