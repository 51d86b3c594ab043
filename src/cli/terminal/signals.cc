// Signals are blocked and read from a signalfd.
#include "cli/terminal/signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"

namespace braid {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  CHECK(descriptor_ >= 0, "signalfd failed");
}

SignalQueue::~SignalQueue() { ::close(descriptor_); }

int SignalQueue::Wait(int milliseconds) {
  pollfd wanted{.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (::poll(&wanted, 1, milliseconds) <= 0) return 0;
  signalfd_siginfo got;
  if (::read(descriptor_, &got, sizeof(got)) != static_cast<ssize_t>(sizeof(got))) return 0;
  return static_cast<int>(got.ssi_signo);
}

}  // namespace braid
