// What two engines must have in common so that one can go on with pages of the other: directly
// (--role) or by what it has left in a directory (--cache-dir).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/geometry.h"
#include "engine/engine_options.h"
#include "model/checkpoint/checkpoint.h"
#include "model/spec.h"
#include "text/tokens/tokenizer.h"

namespace braid {

// A digest of the sources, the compiler and the flags that decide about the bits of pages. A build
// that differs in other files has the same (cmake/numerics.cmake).
extern const std::string_view kNumerics;

struct FingerprintParts {
  const ModelSpec& spec;
  const Checkpoint& checkpoint;
  const Machine& machine;
  const CacheGeometry& cache;
  const std::map<std::string_view, int64_t>& weights;  // bytes of each format in memory
  const std::string& mla;
  std::string device = {};  // EngineDevice::PagesText
  std::string tokens = {};  // TokensDigest
};

// Of the texts of all tokens and the one that ends an answer: what a grammar allows depends on
// them. "none" without a tokenizer.
std::string TokensDigest(const std::optional<Tokenizer>& tokenizer,
                         const std::vector<TokenId>& eos);

// Lines of "name: value". Weights are told apart by names, shapes and samples of every tensor.
std::string FingerprintOf(const FingerprintParts& parts);

// The lines that engines behind one address must have in common: the model and the form in which it
// is computed, on whatever machine.
std::string ModelLinesOf(const FingerprintParts& parts);

// What processes that are ranks of one engine must have in common beside their flags, as the end of
// LogStart::model: each reads files of its own.
std::string FilesTextOf(const FingerprintParts& parts);

// FingerprintOf of the model on one rank alone, whatever a rank of the mesh holds: all ranks have
// it.
Result<std::string> WholeFingerprintOf(const EngineOptions& options, const FingerprintParts& parts);

// One more line for pages that stay: names, sizes and times of the checkpoint's own files, so that
// a file that is changed in place is another one even where no sample shows it.
Result<std::string> FilesLine(const Checkpoint& checkpoint);

// Fills in what partners must know of this engine: its fingerprint, with the tokenizer, which
// decides about constrained first tokens; and, with several ranks, where their pages lie in those
// of one rank, which is the form that all partners exchange. An error if the options do not go
// together with partners.
Status DescribeTo(EngineOptions& options, const FingerprintParts& parts);

}  // namespace braid
