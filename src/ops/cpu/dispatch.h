// Shared by the CPU candidates: the kernel table for a device and loops over the pool. GEMM
// kernels are chosen in ops/cpu/gemm/gemm.h.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/math.h"
#include "ops/cpu/kernels/table.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid::ops::cpu {

// The kernels of the device's instruction set; null below AVX2.
const KernelTable* KernelsFor(const Device& device);

// The widest of its kernels whose vectors divide both sizes of a head (attention, recurrence); null
// if none do.
const KernelTable* KernelsFor(const Device& device, int64_t size, int64_t other_size);

// nullptr, or why the device cannot run.
const char* NeedsAvx2(const Device& device);
const char* NeedsAvx512Bf16(const Device& device);
const char* NeedsAmx(const Device& device);

// Work below which a loop is not worth waking anybody: about 5 microseconds of one core.
inline constexpr double kSerialFlops = 100e3;

// f(task, member) for all tasks: on the caller alone when the whole loop is small.
template <class F>
void ForTasks(const OpContext& context, int64_t tasks, double flops, const F& f) {
  if (tasks <= 1 || flops < kSerialFlops || context.pool->threads() == 1) {
    for (int64_t i = 0; i < tasks; ++i) f(i, 0);
    return;
  }
  context.pool->Run(tasks, f);
}

// ForTasks where task i reads weights of node `part_of(i)` of the pool's (PackedMatrix::PartOf),
// never of an earlier one than task i - 1: members of that node come first.
template <class PartOf, class F>
void ForPlacedTasks(const OpContext& context, int64_t tasks, double flops, const PartOf& part_of,
                    const F& f) {
  const int64_t nodes = std::ssize(context.pool->nodes());
  if (nodes == 1 || tasks <= 1 || flops < kSerialFlops) return ForTasks(context, tasks, flops, f);
  std::vector<int64_t> ends;
  for (int64_t node = 0, task = 0; node < nodes; ++node) {
    while (task < tasks && (node + 1 == nodes || part_of(task) <= node)) ++task;
    ends.push_back(task);
  }
  context.pool->Run(tasks, f, ends);
}

// Whether stores of y go past the caches: more than second-level ones hold, and whole lines.
inline bool PastCaches(const Matrix& y) {
  return y.rows * y.stride > (1 << 20) && reinterpret_cast<uintptr_t>(y.data) % 64 == 0 &&
         y.stride % 16 == 0;
}

// f(span, begin, count, member) for all tokens of every span, up to `at_once` in a row.
template <class F>
void ForTokenRuns(const OpContext& context, const SequenceIndex& sequences, int64_t at_once,
                  double flops_per_token, const F& f) {
  const std::span<const SequenceSpan> spans(sequences.spans, static_cast<size_t>(sequences.count));
  const int64_t tokens = sequences.tokens, begin = tokens > 0 ? spans.front().token_begin : 0;
  ForTasks(context, CeilDiv(tokens, at_once), flops_per_token * static_cast<double>(tokens),
           [&](int64_t task, int member) {
             int64_t token = begin + task * at_once;
             const int64_t end = std::min(begin + tokens, token + at_once);
             // The last span that begins up to the task's first token has it.
             auto span = std::ranges::upper_bound(spans, token, {}, &SequenceSpan::token_begin) - 1;
             while (token < end) {
               while (token >= span->token_begin + span->token_count) ++span;
               const int64_t count =
                   std::min<int64_t>(end, span->token_begin + span->token_count) - token;
               f(*span, token - span->token_begin, count, member);
               token += count;
             }
           });
}

// f(span, i, member) for token i of every span, a few tokens per task.
template <class F>
void ForTokens(const OpContext& context, const SequenceIndex& sequences, double flops_per_token,
               const F& f) {
  ForTokenRuns(context, sequences, 4, flops_per_token,
               [&](const SequenceSpan& span, int64_t begin, int64_t count, int member) {
                 for (int64_t i = begin; i < begin + count; ++i) f(span, i, member);
               });
}

// The task that the member with task i probably takes next, as the others take one each meanwhile.
// A result of `tasks` or more is a task of the loop that follows.
inline int64_t NextTask(const OpContext& context, int64_t i) { return i + context.pool->threads(); }
// The same of a placed loop: only members of its node are at the same tasks.
inline int64_t NextPlacedTask(const OpContext& context, int64_t i) {
  return i + CeilDiv(context.pool->threads(), std::ssize(context.pool->nodes()));
}

}  // namespace braid::ops::cpu
