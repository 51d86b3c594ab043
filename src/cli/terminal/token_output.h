// How token ids and log-probabilities are written as JSON: log-probabilities with nine significant
// digits, so that equal floats are equal text and every float can be read back. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "scheduler/request.h"

namespace braid {

// "[1,2,3]"
void AppendIds(std::string& out, const std::vector<TokenId>& ids);
void AppendLogprob(std::string& out, float value);
// [{"id":1,"logprob":-0.5},…]
void AppendTop(std::string& out, const TokenLogprob& entry);
void AppendQuoted(std::string& out, std::string_view text);

// An array of integers in [0, vocabulary), at least one. `what` names it in errors.
Result<std::vector<TokenId>> TokenIdsOf(const json::value& value, std::string_view what,
                                        int32_t vocabulary);

}  // namespace braid
