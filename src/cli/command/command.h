// A command of the binary: its flags, and Run, which is called once they are read. One object per
// run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/command/flags.h"

namespace braid {

class Command {
 public:
  virtual ~Command() = default;
  virtual void AddFlags(Flags& flags) = 0;
  // The error's message goes to stderr and the process ends with 1.
  virtual Status Run() = 0;
};

using CommandPointer = std::unique_ptr<Command>;

struct CommandEntry {
  std::string_view group;  // "bench" for `braid bench offline`, empty for `braid serve`
  std::string_view name;
  std::string_view summary;
  std::string_view examples;
  CommandPointer (*make)();
};

// All commands, in the order in which help lists them.
std::span<const CommandEntry> Commands();

// Exit code: 0, 1 (the command failed), 2 (the command line is wrong).
int RunCommandLine(int argc, const char* const* argv);

}  // namespace braid
