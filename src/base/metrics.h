// A registry of Prometheus metrics and its text form. Registering happens at start; the returned
// counters, gauges and histograms live as long as the registry and may be used from any thread.
// Label values come from closed sets, never from requests.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/labels.h>
#include <prometheus/registry.h>

#include <string>
#include <vector>

namespace braid {

class MetricsRegistry {
 public:
  using Labels = prometheus::Labels;

  // The same name may be registered again with other labels; name and help must then be the same.
  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help,
                              const Labels& labels = {});
  // `buckets` are upper bounds, ascending.
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& buckets,
                                      const Labels& labels = {});

  // Takes one back, of the labels that it was added with. Nobody may use it any more.
  struct Named {
    const char* name;
    const char* help;
  };
  void Remove(const Named& named, prometheus::Counter& counter);
  void Remove(const Named& named, prometheus::Gauge& gauge);

  // The Prometheus text exposition format, version 0.0.4.
  std::string Text() const;

 private:
  prometheus::Registry registry_;
};

// Sets a counter that mirrors a number kept elsewhere; a number that went back leaves it unchanged.
void AdvanceTo(prometheus::Counter& counter, double value);

}  // namespace braid
