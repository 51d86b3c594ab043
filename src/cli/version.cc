// `braid version`.
#include "cli/version.h"

#include <fmt/core.h>

#include "cli/command_factories.h"

namespace braid {
namespace {

class VersionCommand : public Command {
 public:
  void AddFlags(Flags&) override {}
  Status Run() override {
    fmt::print("braid {}\n", kVersion);
    return {};
  }
};

}  // namespace

CommandPointer MakeVersionCommand() { return std::make_unique<VersionCommand>(); }

}  // namespace braid
