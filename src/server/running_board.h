// The requests that run, by the ids that clients know, so that another connection can end them.
// Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "server/http_types.h"

namespace braid {

class RunningBoard {
 public:
  // `ended` is set, and `wake` called, when someone asks for the end of `id`. Both must live until
  // Remove. Ids need not be unique: all requests of one id end together.
  void Add(const std::string& id, std::atomic<bool>* ended, Wake wake);
  void Remove(const std::atomic<bool>* ended);
  // How many requests were told to end. An empty id means all.
  int64_t End(const std::string& id);

 private:
  struct Entry {
    std::atomic<bool>* ended;
    Wake wake;
  };
  std::mutex mutex_;
  std::multimap<std::string, Entry> entries_;
};

}  // namespace braid
