// The registry and its text form.
#include "base/metrics.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Metrics, TextHoldsEveryRegisteredMetricWithItsLabels) {
  MetricsRegistry registry;
  registry.AddCounter("braid:requests_total", "Requests.", {{"kind", "a"}}).Increment(2);
  registry.AddCounter("braid:requests_total", "Requests.", {{"kind", "b"}}).Increment();
  registry.AddGauge("braid:running", "Running.").Set(3);
  registry.AddHistogram("braid:seconds", "Time.", {0.1, 1}).Observe(0.5);
  std::string text = registry.Text();
  EXPECT_NE(text.find("braid:requests_total{kind=\"a\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("braid:requests_total{kind=\"b\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE braid:running gauge\nbraid:running 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("braid:seconds_bucket{le=\"1\"} 1\n"), std::string::npos) << text;
}

TEST(Metrics, AMirroredCounterNeverGoesBack) {
  MetricsRegistry registry;
  prometheus::Counter& counter = registry.AddCounter("steps_total", "Steps.");
  AdvanceTo(counter, 5);
  AdvanceTo(counter, 3);
  EXPECT_EQ(counter.Value(), 5);
  AdvanceTo(counter, 9);
  EXPECT_EQ(counter.Value(), 9);
}

}  // namespace
}  // namespace braid
