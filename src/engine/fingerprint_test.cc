// What a fingerprint tells apart. What decides about bits in the program:
// tests/cli/numerics_test.py.
#include "engine/fingerprint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace braid {
namespace {

using ::testing::Ne;

TEST(Fingerprint, TheProgramsPartIsADigest) {
  EXPECT_EQ(kNumerics.size(), 32u);
  EXPECT_EQ(kNumerics.find_first_not_of("0123456789abcdef"), std::string_view::npos);
}

TEST(Fingerprint, AFileOfWeightsThatIsChangedInPlaceIsAnother) {
  const std::string directory = ::testing::TempDir() + "fingerprint" + std::to_string(::getpid());
  std::filesystem::create_directory(directory);
  const std::string path = directory + "/model.safetensors";
  std::ofstream(path) << "abc";
  const auto set_time = [&](int64_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  set_time(1000);
  const std::string before = *FilesLine(directory);
  EXPECT_EQ(*FilesLine(directory), before);
  std::ofstream(directory + "/notes.txt") << "no weights";
  EXPECT_EQ(*FilesLine(directory), before);
  std::ofstream(path) << "abd";
  set_time(1001);
  EXPECT_THAT(*FilesLine(directory), Ne(before));
  std::ofstream(path) << "abcd";
  set_time(1000);
  EXPECT_THAT(*FilesLine(directory), Ne(before));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace braid
