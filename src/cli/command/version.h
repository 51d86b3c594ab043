// The version of the engine, as /version and `braid version` say it.
#pragma once

namespace braid {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace braid
