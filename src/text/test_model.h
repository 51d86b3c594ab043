// What the tests of this module share: the shipped tokenizer, small made-up checkpoints, wild text.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "text/tokens/tokenizer.h"

namespace braid {

inline const std::string kBraidTiny = BRAID_SOURCE_DIR "/models/braid-tiny";

inline Tokenizer LoadBraidTiny() {
  auto tokenizer = Tokenizer::Load(kBraidTiny);
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

// Processor time of this program: limits on it hold on a busy machine too.
inline double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A folder that exists for one test.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = testing::TempDir() + "/braid_text_XXXXXX";
    CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  void Write(std::string_view name, std::string_view content) const {
    CHECK(WriteFile(path_ + "/" + std::string(name), content).ok());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void AppendUtf8(uint32_t c, std::string* text) {
  const auto put = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

// Valid UTF-8 of `length` characters of every width, with runs of letters and blanks between.
inline std::string WildText(Rng* rng, int64_t length) {
  std::string text;
  for (int64_t i = 0; i < length; ++i) {
    uint32_t c = 0;
    switch (rng->Below(6)) {
      case 0:
        c = static_cast<uint32_t>(rng->Below(0x110000));
        break;
      case 1:
        c = static_cast<uint32_t>(0x80 + rng->Below(0x780));
        break;
      case 2:
        c = static_cast<uint32_t>(0x4E00 + rng->Below(0x5000));
        break;
      case 3:
        c = static_cast<uint32_t>(0x1F300 + rng->Below(0x300));
        break;
      case 4:
        c = static_cast<uint32_t>("\n \t.,"[rng->Below(5)]);
        break;
      default:
        c = static_cast<uint32_t>('a' + rng->Below(26));
        break;
    }
    if ((c >= 0xD800 && c < 0xE000) || c == 0xFFFD) c = 'z';
    AppendUtf8(c, &text);
  }
  return text;
}

}  // namespace braid
