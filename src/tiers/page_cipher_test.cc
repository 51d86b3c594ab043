// Keys in files, and the room that an encrypted part takes.
#include "tiers/page_cipher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <string>
#include <utility>

#include "tiers/part_file.h"

namespace braid {
namespace {

std::array<std::byte, 32> Key(int byte = 0xaf) {
  std::array<std::byte, 32> bytes;
  bytes.fill(static_cast<std::byte>(byte));
  return bytes;
}

TEST(PageCipher, DigitsOfEitherCaseAreTheKeysBytes) {
  const std::string path = testing::TempDir() + "/key." + std::to_string(::getpid());
  for (const auto& [digits, byte] : {std::pair("af", 0xaf), {"AF", 0xaf}, {"aF", 0xaf},
                                     {"09", 0x09}, {"90", 0x90}, {"6b", 0x6b}}) {
    std::string text;
    for (int i = 0; i < 32; ++i) text += digits;
    std::ofstream(path) << text;
    const Result<PageCipher> cipher = PageCipher::Load(path);
    ASSERT_TRUE(cipher) << cipher.error().message;
    EXPECT_EQ(cipher->id(), PageCipher(Key(byte)).id()) << digits;
  }
  ::unlink(path.c_str());
}

// What one version has written the next can read.
TEST(PageCipher, MakesTheBytesOfItsFormat) {
  const PageCipher cipher(Key());
  EXPECT_EQ(cipher.id(), "78ae53823b324f26");
  EXPECT_EQ(cipher.Hide({1, 2}), (PageKey{0xf11d126fd4b93202, 0x19e66c0b2bb76fc0}));
  PageCipher::Nonce nonce;
  nonce.fill(std::byte{7});
  PageCipher::Stream stream(cipher, nonce, "bound", true);
  std::array<std::byte, 8> bytes{};
  stream.Add(bytes, bytes.data());
  EXPECT_EQ(bytes[0], std::byte{0x76});
  EXPECT_EQ(stream.End()[0], std::byte{0x8b});
}

TEST(PartFile, AnEncryptedPartHasRoomForItsTag) {
  const PageCipher cipher(Key());
  FileLayer files;
  EXPECT_EQ(PartFile(files, "f", nullptr).BytesOf(100), 100);
  EXPECT_EQ(PartFile(files, "f", &cipher).BytesOf(100), 116);
}

}  // namespace
}  // namespace braid
