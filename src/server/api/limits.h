// The limits on what a client may send that are the same on every server. Times and connection
// counts stand in ServerConfig. limit_table.h has all of them as one table, with their names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace braid::limits {

// HTTP.
inline constexpr size_t kTargetBytesMax = 8 << 10;
inline constexpr size_t kHeadersMax = 100;
inline constexpr size_t kHeaderBytesMax = 8 << 10;
inline constexpr size_t kHeadBytesMax = 32 << 10;  // all headers
inline constexpr size_t kBodyBytesMin = 4 << 20;   // the smallest value of the body limit
inline constexpr size_t kBodyBytesMax = 64 << 20;  // the largest
inline constexpr size_t kBodyBytesPerSecond = 64 << 10;
inline constexpr size_t kChunkExtensionBytesMax = 256;
inline constexpr size_t kPipelinedBytesMax = 64 << 10;
inline constexpr int32_t kRequestsPerConnectionMax = 10000;
inline constexpr size_t kWriteBytesMax = 256 << 10;  // one write
inline constexpr size_t kUnsentBytesMax = 4 << 20;   // a reader this slow is cut off
inline constexpr size_t kRequestIdBytesMax = 128;

// JSON.
inline constexpr size_t kJsonDepthMax = 64;
inline constexpr int64_t kJsonValuesMax = 1 << 20;
inline constexpr size_t kJsonKeyBytesMax = 1 << 10;

// Request fields.
inline constexpr size_t kMessagesMax = 4096;
inline constexpr size_t kPartsMax = 1024;
inline constexpr size_t kNameBytesMax = 64;
inline constexpr int64_t kAnswersMax = 128;  // of a request: prompts times choices
inline constexpr int64_t kNewTokensMax = 131072;
inline constexpr int64_t kTopLogprobsMax = 20;
inline constexpr int64_t kPromptLogprobCellsMax = 1 << 20;  // prompt tokens times width
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr double kLogitBiasAbsMax = 100;
inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 256;
inline constexpr size_t kStopTokensMax = 128;
inline constexpr size_t kToolsMax = 128;
inline constexpr size_t kToolBytesMax = 512 << 10;
inline constexpr size_t kGrammarChoicesMax = 4096;
inline constexpr size_t kTemplateKeysMax = 64;
inline constexpr size_t kTemplateBytesMax = 64 << 10;
inline constexpr size_t kMetadataPairsMax = 64;
inline constexpr size_t kMetadataBytesMax = 512;
inline constexpr size_t kCacheSaltBytesMax = 256;
inline constexpr int64_t kStoredResponsesMax = 16384;

// Waiting prompts: so many times the tokens that the cache holds.
inline constexpr int64_t kWaitingTokensTimesPool = 8;

// Bytes of a body on a server whose prompts have at most `context_tokens_max` tokens.
constexpr size_t BodyBytesMax(int64_t context_tokens_max) {
  return std::clamp(static_cast<size_t>(std::max<int64_t>(context_tokens_max, 0)) * 32,
                    kBodyBytesMin, kBodyBytesMax);
}

// How the server's memory is divided (record 14). Preparing a request takes a multiple of its body;
// of bodies above kBulkBodyBytes one at a time is prepared.
inline constexpr int64_t kProcessBytes = int64_t{96} << 20;  // code, tokenizer, what never grows
inline constexpr int64_t kPrepareTimesBody = 48;
inline constexpr size_t kBulkBodyBytes = 128 << 10;
inline constexpr int64_t kBodiesBytesDefault = int64_t{256} << 20;

constexpr int64_t PrepareBytes(int64_t context_tokens_max) {
  return kPrepareTimesBody * static_cast<int64_t>(BodyBytesMax(context_tokens_max));
}
constexpr int64_t DefaultServerMemory(int64_t context_tokens_max) {
  return kProcessBytes + PrepareBytes(context_tokens_max) + kBodiesBytesDefault;
}

}  // namespace braid::limits
