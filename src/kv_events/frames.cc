// See the header.
#include "kv_events/frames.h"

namespace braid::kv {

NumberFrame EncodeNumber(uint64_t number) {
  NumberFrame frame;
  for (size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<char>(number >> (8 * (frame.size() - 1 - i)));
  }
  return frame;
}

uint64_t DecodeNumber(std::string_view frame) {
  uint64_t number = 0;
  for (const char c : frame) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

bool ReceiveFrames(const Zmq& zmq, void* socket, std::span<char> buffer,
                   std::vector<std::string>* frames) {
  constexpr size_t kFramesMax = 4;
  frames->clear();
  for (int more = 1; more != 0;) {
    const int size = zmq.recv(socket, buffer.data(), buffer.size(), Zmq::kDontWait);
    if (size < 0) return false;
    const bool whole = static_cast<size_t>(size) <= buffer.size();
    if (frames->size() < kFramesMax) {
      frames->emplace_back(buffer.data(), whole ? static_cast<size_t>(size) : 0);
    }
    size_t flag_size = sizeof(more);
    if (zmq.getsockopt(socket, Zmq::kReceiveMore, &more, &flag_size) != 0) return false;
  }
  return true;
}

}  // namespace braid::kv
