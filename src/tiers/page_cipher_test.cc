// Keys in files, and the room that an encrypted part takes.
#include "tiers/page_cipher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <string>

#include "tiers/part_file.h"

namespace braid {
namespace {

std::array<std::byte, 32> Key() {
  std::array<std::byte, 32> bytes;
  bytes.fill(std::byte{0xaf});
  return bytes;
}

TEST(PageCipher, DigitsOfEitherCaseAreTheKeysBytes) {
  const std::string path = testing::TempDir() + "/key." + std::to_string(::getpid());
  for (const char* digits : {"af", "AF", "aF"}) {
    std::string text;
    for (int i = 0; i < 32; ++i) text += digits;
    std::ofstream(path) << text;
    const Result<PageCipher> cipher = PageCipher::Load(path);
    ASSERT_TRUE(cipher) << cipher.error().message;
    EXPECT_EQ(cipher->id(), PageCipher(Key()).id()) << digits;
  }
  ::unlink(path.c_str());
}

TEST(PartFile, AnEncryptedPartHasRoomForItsTag) {
  const PageCipher cipher(Key());
  FileLayer files;
  EXPECT_EQ(PartFile(files, "f", nullptr).BytesOf(100), 100);
  EXPECT_EQ(PartFile(files, "f", &cipher).BytesOf(100), 116);
}

}  // namespace
}  // namespace braid
