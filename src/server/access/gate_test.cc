// Who may register engines: whoever does gets everybody's prompts.
#include "server/access/gate.h"

#include <gtest/gtest.h>

#include <string>

namespace braid {
namespace {

// 0: it may.
int StatusOf(Gate& gate, const std::string& key, bool loopback) {
  HttpRequest request{.method = "PUT", .path = "/engines/a"};
  if (!key.empty()) request.authorization = "Bearer " + key;
  request.peer.loopback_listener = loopback;
  const auto caller = gate.Authorize(request, Access::kEngine, gate.Find(request));
  return caller ? 0 : caller.error().status;
}

TEST(Gate, WithoutKeysEnginesRegisterAtALoopbackAddressOnly) {
  const AccessConfig config;
  Gate gate(config);
  EXPECT_EQ(StatusOf(gate, "", true), 0);
  EXPECT_EQ(StatusOf(gate, "", false), 403);
}

TEST(Gate, WithKeysOnlyThoseOfEnginesAndAdminsRegister) {
  const AccessConfig config;
  Gate gate(config);
  gate.SetKeys({{.name = "ann", .key = "key-of-ann"},
                {.name = "root", .key = "key-of-root", .admin = true},
                {.name = "engines", .key = "key-of-engines", .engine = true}});
  for (const bool loopback : {false, true}) {
    EXPECT_EQ(StatusOf(gate, "", loopback), 401);
    EXPECT_EQ(StatusOf(gate, "key-of-bob", loopback), 401);
    EXPECT_EQ(StatusOf(gate, "key-of-ann", loopback), 403);
    EXPECT_EQ(StatusOf(gate, "key-of-root", loopback), 0);
    EXPECT_EQ(StatusOf(gate, "key-of-engines", loopback), 0);
  }
}

}  // namespace
}  // namespace braid
