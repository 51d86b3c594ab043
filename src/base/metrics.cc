// A thin layer over prometheus-cpp, so that its builders and its serializer stand in one place.
#include "base/metrics.h"

#include <prometheus/text_serializer.h>

namespace braid {

prometheus::Counter& MetricsRegistry::AddCounter(const std::string& name, const std::string& help,
                                                 const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
}

prometheus::Gauge& MetricsRegistry::AddGauge(const std::string& name, const std::string& help,
                                             const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels);
}

prometheus::Histogram& MetricsRegistry::AddHistogram(const std::string& name,
                                                     const std::string& help,
                                                     const std::vector<double>& buckets,
                                                     const Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(labels,
                                                                                    buckets);
}

void MetricsRegistry::Remove(const Named& named, prometheus::Counter& counter) {
  prometheus::BuildCounter().Name(named.name).Help(named.help).Register(registry_).Remove(&counter);
}

void MetricsRegistry::Remove(const Named& named, prometheus::Gauge& gauge) {
  prometheus::BuildGauge().Name(named.name).Help(named.help).Register(registry_).Remove(&gauge);
}

std::string MetricsRegistry::Text() const {
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

void AdvanceTo(prometheus::Counter& counter, double value) {
  double step = value - counter.Value();
  if (step > 0) counter.Increment(step);
}

}  // namespace braid
