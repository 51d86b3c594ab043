// What is said of routers before anything is loaded.
#include "cli/command/register_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// Of Check with these words; `used` says whether the engine registers.
Status Checked(std::vector<std::string> words, bool* used = nullptr) {
  CLI::App app;
  Flags flags(app);
  RegisterFlags of_routers;
  of_routers.AddTo(flags);
  std::ranges::reverse(words);
  app.parse(std::move(words));
  Status status = of_routers.Check();
  if (used != nullptr) *used = of_routers.used();
  return status;
}

TEST(RegisterFlags, RoutersAreUrlsAndTheRestNeedsOne) {
  const TestDirectory directory;
  directory.Write("key", "secret");
  directory.Write("long", std::string(513, 'k'));
  directory.Write("longest", std::string(512, 'k'));
  const std::string key = directory.path() + "/key", router = "http://10.0.0.1:8080";
  bool used = true;
  EXPECT_TRUE(Checked({}, &used));
  EXPECT_FALSE(used);
  EXPECT_TRUE(Checked({"--register", router + ",http://b:1", "--register-name", "gpu-1.a_b",
                       "--register-url", "http://10.0.0.2:8000", "--register-key-file", key},
                      &used));
  EXPECT_TRUE(used);
  EXPECT_TRUE(
      Checked({"--register", router, "--register-key-file", directory.path() + "/longest"}));
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--register", "10.0.0.1:8080"}, "--register"},
      {{"--register", router + ",https://b:1"}, "--register"},
      {{"--register-name", "a"}, "need --register http://HOST:PORT"},
      {{"--register-url", router}, "need --register http://HOST:PORT"},
      {{"--register-key-file", key}, "need --register http://HOST:PORT"},
      {{"--register", router, "--register-name", "a b"}, "--register-name: must be 1 to 64"},
      {{"--register", router, "--register-name", std::string(65, 'a')}, "--register-name: must"},
      {{"--register", router, "--register-url", "b"}, "--register-url"},
      {{"--register", router, "--register-key-file", key + "s"}, "cannot be read, or has more"},
      {{"--register", router, "--register-key-file", directory.path() + "/long"},
       "more than 512 bytes"},
  };
  for (const auto& [words, said] : wrong) {
    const Status status = Checked(words);
    ASSERT_FALSE(status) << words.back();
    EXPECT_THAT(status.error().message, HasSubstr(said));
  }
}

TEST(RegisterFlags, AModelsNameOfAnyBytesCanBeRegistered) {
  EXPECT_EQ(InPlainBytes("Qwen/3-8B ~"), "Qwen/3-8B ~");
  EXPECT_EQ(InPlainBytes("ä%\n\x7f"), "%C3%A4%25%0A%7F");
  Registration said;
  said.address = {.name = {}, .host = "10.0.0.2", .port = 8000, .key = {}, .events = {}};
  said.generation = 1;
  said.fingerprint = "the model's name: " + InPlainBytes("modèle 模型\x01") + "\n";
  const Result<Registration> told = ParseRegistration("a", EncodeRegistration(said));
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(told->fingerprint, said.fingerprint);
}

}  // namespace
}  // namespace braid
