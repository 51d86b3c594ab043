// Ranges of elements of the weight first, then the runs of the checkpoint below them.
#include "model/loading/weight_shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace braid {
namespace {

struct Range {
  int64_t first = 0;  // elements of the weight
  int64_t count = 0;
};

Error Uneven(const BoundWeight& weight, int64_t items, const char* what, int32_t ranks) {
  return {ErrorCode::kInvalid, fmt::format("{}: its {} {} cannot be divided equally by {} ranks",
                                           weight.spec->name, items, what, ranks)};
}

// Of a weight whose source holds its matrices transposed, a row is one of the source.
int64_t RowLength(const WeightSpec& spec) {
  const bool other = spec.use == WeightUse::kMatrix && spec.transpose;
  return other ? spec.n : spec.k;
}

// Rows of every piece: components that stand one after the other are divided each.
Result<std::vector<Range>> RowRanges(const BoundWeight& weight, RankOf of) {
  const int64_t row = RowLength(*weight.spec);
  std::vector<Range> ranges;
  for (size_t i = 0; i < weight.pieces.size(); ++i) {
    const int64_t begin = weight.pieces[i];
    const int64_t end = i + 1 < weight.pieces.size() ? weight.pieces[i + 1] : weight.elements();
    const int64_t rows = (end - begin) / row;
    if (rows % of.count != 0) return Uneven(weight, rows, "rows", of.count);
    const int64_t part = rows / of.count * row;
    ranges.push_back({begin + of.rank * part, part});
  }
  return ranges;
}

Result<std::vector<Range>> ExpertRanges(const BoundWeight& weight, RankOf of) {
  const WeightSpec& spec = *weight.spec;
  if (spec.count % of.count != 0) return Uneven(weight, spec.count, "matrices", of.count);
  const int64_t part = spec.count / of.count * spec.n * spec.k;
  return std::vector<Range>{{of.rank * part, part}};
}

bool DecodesRows(const BoundWeight& weight) {
  return std::ranges::any_of(weight.runs, [](const SourceRun& r) { return r.stored->format; });
}

Result<std::vector<Range>> ColumnRanges(const BoundWeight& weight, RankOf of) {
  const int64_t row = RowLength(*weight.spec), part = row / of.count;
  if (row % of.count != 0) return Uneven(weight, row, "columns", of.count);
  if (DecodesRows(weight)) return std::vector<Range>{{0, weight.elements()}};
  std::vector<Range> ranges;
  for (int64_t at = 0; at < weight.elements(); at += row) {
    ranges.push_back({at + of.rank * part, part});
  }
  return ranges;
}

Result<std::vector<Range>> RangesOf(const BoundWeight& weight, RankOf of) {
  switch (weight.spec->shard) {
    case Shard::kRows:
      return RowRanges(weight, of);
    case Shard::kColumns:
      return ColumnRanges(weight, of);
    case Shard::kExperts:
      return ExpertRanges(weight, of);
    case Shard::kReplicated:
      break;
  }
  return std::vector<Range>{{0, weight.elements()}};
}

}  // namespace

Result<std::vector<SourceRun>> ShardRuns(const BoundWeight& weight, RankOf of) {
  ASSIGN_OR_RETURN(const std::vector<Range> ranges, RangesOf(weight, of));
  std::vector<SourceRun> runs;
  int64_t at = 0;
  for (const Range& range : ranges) {
    for (int64_t done = 0; done < range.count;) {
      const SourceRun& run = weight.RunAt(range.first + done);
      const int64_t inside = range.first + done - run.at;
      const int64_t count = std::min(run.count - inside, range.count - done);
      runs.push_back({run.stored, run.first + inside, at, count});
      at += count;
      done += count;
    }
  }
  return runs;
}

Result<std::vector<std::byte>> ReadShard(const BoundWeight& weight, RankOf of) {
  ASSIGN_OR_RETURN(const std::vector<SourceRun> runs, ShardRuns(weight, of));
  const int64_t element = SizeOf(weight.dtype);
  const int64_t elements = runs.empty() ? 0 : runs.back().at + runs.back().count;
  std::vector<std::byte> part(static_cast<size_t>(elements * element));
  for (const SourceRun& run : runs) {
    run.stored->Read(run.first, run.count, weight.dtype, part.data() + run.at * element);
  }
  if (weight.spec->shard != Shard::kColumns || !DecodesRows(weight)) return part;
  // Whole rows were decoded; the part's columns remain.
  const int64_t row = RowLength(*weight.spec) * element, width = row / of.count;
  for (int64_t i = 0; i * row < elements * element; ++i) {
    std::memmove(part.data() + i * width, part.data() + i * row + of.rank * width,
                 static_cast<size_t>(width));
  }
  part.resize(part.size() / static_cast<size_t>(of.count));
  return part;
}

}  // namespace braid
