// Libraries that every machine has, and names that none has.
#include "base/system/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kFiles[] = {"libm.so.6", "libc.so.6"};
constexpr SharedLibrary::Need kNeed{
    .product = "C 6", .purpose = "to test", .package = "libc6", .files = kFiles};

TEST(SharedLibrary, FindsSymbolsInEachOfItsFiles) {
  auto library = SharedLibrary::Load(kNeed);
  ASSERT_TRUE(library) << library.error().message;
  double (*root)(double) = nullptr;
  int (*absolute)(int) = nullptr;
  library->Find("sqrt", root);
  library->Find("abs", absolute);
  ASSERT_TRUE(library->FoundAll()) << library->FoundAll().error().message;
  EXPECT_EQ(root(9), 3);
  EXPECT_EQ(absolute(-4), 4);
}

TEST(SharedLibrary, NamesTheFirstSymbolThatIsMissing) {
  auto library = SharedLibrary::Load(kNeed);
  ASSERT_TRUE(library) << library.error().message;
  void* found = nullptr;
  void* missing = &found;
  library->Find("braid_first", missing);
  EXPECT_EQ(missing, nullptr);
  library->Find("braid_second", missing);
  library->Find("abs", found);
  EXPECT_NE(found, nullptr);
  const Status status = library->FoundAll();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().message, "libc.so.6 has no braid_first; C 6 is needed");
}

TEST(SharedLibrary, NamesTheFileThatCannotBeLoadedAndItsPackage) {
  constexpr const char* kAbsent[] = {"libc.so.6", "libbraid-absent.so.1"};
  SharedLibrary::Need need = kNeed;
  need.files = kAbsent;
  const auto library = SharedLibrary::Load(need);
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(library.error().message,
              StartsWith("C 6 is needed to test, and libbraid-absent.so.1 cannot be loaded: "));
  EXPECT_THAT(library.error().message, HasSubstr("Install it (Debian: libc6)"));
}

}  // namespace
}  // namespace braid
