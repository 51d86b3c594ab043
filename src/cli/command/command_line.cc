// From argv to a command: help, suggestions for mistyped words, exit codes. CLI11 throws, and fmt
// where a file takes no more; what they throw is caught here. Main thread.
#include <fmt/format.h>
#include <openssl/crypto.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "base/nearest.h"
#include "cli/command/command.h"
#include "cli/command/version.h"
#include "text/grammar/grammar_trial.h"

namespace braid {
namespace {

constexpr int kUsageError = 2;

std::string FullName(const CommandEntry& entry) {
  return entry.group.empty() ? std::string(entry.name)
                             : fmt::format("{} {}", entry.group, entry.name);
}

void PrintOverview() {
  fmt::print(
      "braid {}: serves hybrid linear-attention mixture-of-experts models\n\n"
      "usage: braid COMMAND [ARGUMENTS]\n\n",
      kVersion);
  for (const CommandEntry& entry : Commands()) {
    fmt::print("  {:<14} {}\n", FullName(entry), entry.summary);
  }
  fmt::print("  {:<14} {}\n\n", "help", "This list, or the help of one command");
  fmt::print(
      "braid help COMMAND shows flags and examples. Every flag can also be set through the\n"
      "environment: --max-model-len is BRAID_MAX_MODEL_LEN.\n");
}

// The entry that `words` begin with; null if none.
const CommandEntry* FindCommand(const std::vector<std::string>& words) {
  for (const CommandEntry& entry : Commands()) {
    const bool grouped = !entry.group.empty();
    if (words.size() < (grouped ? 2u : 1u)) continue;
    if (grouped ? words[0] == entry.group && words[1] == entry.name : words[0] == entry.name) {
      return &entry;
    }
  }
  return nullptr;
}

// "; did you mean X?" where a known word is near; else `otherwise`.
std::string Suggestion(const std::string& word, const std::vector<std::string>& known,
                       const char* otherwise = "") {
  // A third of the letters may be wrong, and always one.
  const std::string* nearest = NearestName(word, known, std::max<size_t>(1, word.size() / 3));
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : otherwise;
}

int UnknownCommand(const std::vector<std::string>& words) {
  std::vector<std::string> known{"help"};
  std::vector<std::string> members;  // of the group that the first word names
  for (const CommandEntry& entry : Commands()) {
    known.emplace_back(entry.group.empty() ? entry.name : entry.group);
    if (entry.group == words[0]) members.emplace_back(entry.name);
  }
  if (!members.empty()) {
    fmt::print(stderr, "braid {}: {}, one of {} is needed{}\n", words[0],
               words.size() > 1 ? fmt::format("unknown \"{}\"", words[1]) : "no command",
               fmt::join(members, ", "), words.size() > 1 ? Suggestion(words[1], members) : "");
    return kUsageError;
  }
  fmt::print(stderr, "braid: unknown command \"{}\"{}\n", words[0],
             Suggestion(words[0], known, "; braid help lists all"));
  return kUsageError;
}

// What CLI11 left over, with the nearest flag.
std::string DescribeExtras(const CLI::App& app) {
  std::vector<std::string> known{"--help"};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::vector<std::string> extras = app.remaining();
  for (const std::string& extra : extras) {
    if (!extra.starts_with("-")) continue;
    const std::string flag = extra.substr(0, extra.find('='));
    return fmt::format("unknown flag {}{}", flag, Suggestion(flag, known));
  }
  return extras.empty() ? "too many arguments"
                        : fmt::format("one argument too many: \"{}\"", extras.front());
}

// "--api-key=" with nothing behind it: CLI11 would take the next word for the value. Empty if none.
std::string FlagWithoutValue(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      return word.substr(0, word.size() - 1);
    }
  }
  return "";
}

int RunCommand(const CommandEntry& entry, std::vector<std::string> words) {
  const std::string name = FullName(entry);
  if (const std::string flag = FlagWithoutValue(words); !flag.empty()) {
    fmt::print(stderr, "braid {}: {}= has no value: give it one, or leave the flag out\n", name,
               flag);
    return kUsageError;
  }
  CLI::App app(std::string(entry.summary) + ".", "braid " + name);
  app.footer(fmt::format("\nExamples:\n{}", entry.examples));
  app.get_formatter()->column_width(34);
  const CommandPointer command = entry.make();
  Flags flags(app);
  command->AddFlags(flags);
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "braid {}: {}\n(braid help {} shows all flags)\n", name, DescribeExtras(app),
               name);
    return kUsageError;
  } catch (const CLI::ParseError& error) {
    // The library calls MODEL by its other name.
    const bool model = error.what() == std::string_view("--model is required");
    fmt::print(stderr, "braid {}: {}\n(braid help {} shows all flags)\n", name,
               model ? "MODEL is required" : error.what(), name);
    return kUsageError;
  }
  if (const Status given = flags.Check(); !given) {
    fmt::print(stderr, "braid {}: {}\n", name, given.error().message);
    return kUsageError;
  }
  const Status status = command->Run();
  std::fflush(stdout);
  if (status) return 0;
  const Error& error = status.error();
  std::string flag = error.field;  // or the key of a file
  std::ranges::replace(flag, '_', '-');
  const bool named = error.message.find(error.field) != std::string::npos ||
                     error.message.find(flag) != std::string::npos;
  fmt::print(stderr, "braid {}: {}{}\n", name, named ? "" : error.field + ": ", error.message);
  return 1;
}

// The machine's openssl.cnf may be for another version of OpenSSL than the one in this binary, and
// would then make TLS fail. It is read only where OPENSSL_CONF asks for it.
void InitCrypto() {
  if (std::getenv("OPENSSL_CONF") == nullptr) {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  }
}

int RunWords(std::vector<std::string> words) {
  if (words.empty()) {
    PrintOverview();
    return kUsageError;
  }
  if (words[0] == kTrialWord) return RunTrialProcess(kTrialControl, kTrialVocabulary);
  if (words[0] == "--version" || words[0] == "-v") words[0] = "version";
  const bool help = words[0] == "help" || words[0] == "--help" || words[0] == "-h";
  if (help) words.erase(words.begin());
  if (words.empty()) {
    PrintOverview();
    return 0;
  }
  const CommandEntry* entry = FindCommand(words);
  if (entry == nullptr) {
    const bool group_help = words.size() > 1 && (words[1] == "--help" || words[1] == "-h");
    if (group_help || (help && words.size() == 1)) {
      bool found = false;
      for (const CommandEntry& member : Commands()) {
        if (member.group != words[0]) continue;
        fmt::print("  braid {:<16} {}\n", FullName(member), member.summary);
        found = true;
      }
      if (found) return 0;
    }
    return UnknownCommand(words);
  }
  words.erase(words.begin(), words.begin() + (entry->group.empty() ? 1 : 2));
  if (help) words = {"--help"};
  return RunCommand(*entry, std::move(words));
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  InitLog(LogLevel::kWarning, false);
  InitCrypto();
  int code = 1;
  std::string lost;
  try {
    code = RunWords({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      lost = "cannot write all of the output";
    }
  } catch (const std::system_error& failure) {
    lost = failure.what();
  }
  if (lost.empty()) return code;
  std::fputs(fmt::format("braid: {}\n", lost).c_str(), stderr);
  return std::max(code, 1);
}

}  // namespace braid
