// poll(2) waits for input and for the descriptor of the signals.
#include "cli/terminal/input.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace braid {

Arrived ReadInput(SignalQueue& signals, std::string& to) {
  while (true) {
    pollfd files[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                      {.fd = signals.descriptor(), .events = POLLIN, .revents = 0}};
    if (::poll(files, 2, -1) < 0) continue;
    if ((files[1].revents & POLLIN) != 0 && signals.Wait(0) != 0) return Arrived::kSignal;
    if (files[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Arrived::kEnd;
    to.append(bytes, static_cast<size_t>(got));
    return Arrived::kBytes;
  }
}

std::optional<std::string> ReadAllInput(SignalQueue& signals) {
  std::string all;
  while (true) {
    const Arrived arrived = ReadInput(signals, all);
    if (arrived == Arrived::kSignal) return std::nullopt;
    if (arrived == Arrived::kEnd) return all;
  }
}

}  // namespace braid
