// The experts that a step's tokens choose, to the recorder that counts them.
#pragma once

#include <cstdint>
#include <span>

#include "experts/recorder.h"
#include "model/layer_context.h"

namespace braid {

class RecordedRoutes : public RouteSink {
 public:
  explicit RecordedRoutes(ExpertRecorder* recorder) : recorder_(recorder) {}
  void OnRoute(int32_t layer, std::span<const int32_t> experts) override {
    recorder_->Count(layer, experts);
  }

 private:
  ExpertRecorder* recorder_;
};

}  // namespace braid
