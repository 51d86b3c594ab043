// The page of `braid simulate cluster`: one HTML file with its plots as SVG, without scripts and
// without anything from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace braid {

struct ClusterRun {
  double rate = 0;  // requests per second that came
  ClusterReport report;
};

// `title` says what was simulated. The timeline is the last run's.
std::string ClusterPage(const std::string& title, const std::vector<ClusterRun>& runs);

}  // namespace braid
