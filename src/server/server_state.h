// What all requests share from the start, before the model is ready too. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "server/access/gate.h"
#include "server/http/types.h"
#include "server/service.h"

namespace braid {

class ServerState {
 public:
  // `config` must outlive the object.
  explicit ServerState(const ServerConfig& config);

  void SetLoading(std::string reason);
  // 503 with how far loading has come.
  ApiError Loading() const;

  // The most bytes a body may have; less while the context is not known.
  size_t BodyBytesMax() const;
  std::string NewRequestId();
  // Counts an error and writes the request log's line of a response that no generation writes.
  // `id` is the request's, `tenant` its caller's name, empty if unknown.
  void NoteResponse(const HttpRequest& request, const HttpResponse& response, const std::string& id,
                    const std::string& tenant);

  const ServerConfig& config;
  const uint64_t seed_base;
  MemoryBudget memory;
  Gate gate;
  std::atomic<Service*> ready{nullptr};  // set once, when the model can be used
  std::atomic<bool> draining{false};

 private:
  std::atomic<uint64_t> next_request_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::string loading_reason_ = "starting";
};

}  // namespace braid
