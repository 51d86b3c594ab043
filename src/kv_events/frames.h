// Messages of several frames, of which one is the number of a batch: 8 bytes, the most significant
// first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv_events/zmq.h"

namespace braid::kv {

using NumberFrame = std::array<char, 8>;
NumberFrame EncodeNumber(uint64_t number);
uint64_t DecodeNumber(std::string_view frame);  // of as many bytes

// The next message of a socket into `frames`, at most four of them; one that does not fit into
// `buffer` comes empty. False: there is none.
bool ReceiveFrames(const Zmq& zmq, void* socket, std::span<char> buffer,
                   std::vector<std::string>* frames);

}  // namespace braid::kv
