// A load from a file: the requests of a recorded run (scheduler/event_log.h), or a public trace.
// The file's first bytes tell which it is. Nothing is drawn, so the same file gives the same
// requests. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/workload.h"

namespace braid {

struct ClusterTrace {
  std::vector<ClusterRequest> requests;
  bool cut = false;  // an event log whose run goes on: a crash cut it off, or the server still runs
};

// The first request comes at 0; requests that come after `seconds` are left out.
//
// Of an event log, each request comes when it came in the run and gets as many tokens as it got; if
// it was cancelled, or the log ends first, those that it had until then. Prompts and answers of one
// tenant and salt share the blocks of the prefix cache that they shared in the run. Requests keep
// their limit of tokens, their priority and whether the prompt is scored. Those that the program
// made for itself (kOwnTenant) are left out.
//
// kNotFound if there is no file; kInvalid if it is neither, has no request, or is damaged, with the
// line or the offset.
Result<ClusterTrace> ReadTrace(const std::string& path, double seconds);

}  // namespace braid
