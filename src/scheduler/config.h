// The scheduler's settings: what a user or the machine decides before the first request. A setting
// is a member with its default and a row of kSettings; the check of a config, its record in event
// logs and the flags of the command line derive from the rows. See docs/guides/add_setting.md.
#pragma once

#include <cstdint>
#include <limits>
#include <variant>

#include "base/result.h"
#include "cache/geometry.h"

namespace braid {

// Data-parallel ranks have an arena, slots and a budget each; a request runs on one of them.
enum class Placement : uint8_t {
  kPrefixAffine,  // where most of its prefix is, if that is half of it; otherwise least loaded
  kLeastLoaded,   // where the fewest sequences run
  kRoundRobin,    // on one after the other
};

struct SchedulerConfig {
  CacheGeometry cache;             // of each rank
  int32_t context_tokens_max = 0;  // prompt + output of one sequence
  int32_t step_tokens_max = 2048;  // of each dp group: decode rows first, then chunks
  int32_t chunk_tokens_max = 0;    // tokens of one sequence in one step; 0: the step's budget
  int32_t running_max = 64;        // sequences of a rank that hold a slot; at most step_tokens_max
  int32_t waiting_max = 4096;      // queued requests; more are refused
  int32_t preemptions_max = 8;     // how often one request may lose its blocks
  int32_t vocabulary = 0;
  bool prefix_cache = true;  // off: every prompt is computed from its first token
  int32_t dp_ranks = 1;
  Placement placement = Placement::kPrefixAffine;
  // While somebody decodes, prompt tokens are rationed so that a step takes no longer than this, as
  // far as the steps measured so far tell; some tokens always go on (StepCost). Drafts have to
  // bring more, too (DraftTrade). 0: no ration.
  int64_t decode_latency_us = 0;
  // Draft tokens that a row may carry, less than a block; 0: none. Drafts take at most half
  // of the budget that one token for each sequence leaves. A plan that is made while a step is in
  // flight has no row of a sequence in that step: its drafts are not known yet.
  int32_t draft_tokens_max = 0;
  bool report_freed = false;     // plans say which blocks became free, to be poisoned
  bool report_prefixes = false;  // Scheduler::TakePrefixChanges has something to say
  // Prompts of a rank that one step computes tokens of; others that hold a slot wait for those
  // before them, and the first always goes on. 0: any number.
  int32_t prefills_max = 0;
  // Rows carry as many drafts as pay by their measured acceptance and the measured time of steps;
  // off: as many as were proposed.
  bool draft_adapt = false;
  bool draft_lookup = true;  // sequences may look drafts up in their own tokens
  bool draft_head = false;   // the model has a draft head that may propose
  bool handoff = false;      // other engines may send and receive pages: see RequestRole
  bool tier = false;         // pages that rest are written to a tier, and come back from there
  // A request with a grammar waits until so many ranks have said that they can sample by it
  // (GrammarReady); each of them says that, or that it cannot. 0: all can at once.
  int32_t grammar_ranks = 0;
};

// Which commands have a flag for a setting.
enum class Offered : uint8_t {
  kNever,   // the model, the machine or the caller decides
  kEngine,  // every command that assembles an engine
  kServe,   // `braid serve` alone; the others derive it from their work
};

struct Setting {
  using Member = std::variant<int32_t SchedulerConfig::*, int64_t SchedulerConfig::*,
                              bool SchedulerConfig::*, Placement SchedulerConfig::*>;
  const char* name;  // in errors: the member's
  Member member;
  int64_t least, most;
  Offered offered = Offered::kNever;
  const char* flag = nullptr;  // of a bool: makes it what it is not by default
  const char* help = nullptr;
  int64_t flag_unit = 1;  // 1 of the flag is so many of the member
};

inline constexpr int64_t kSettingMost = std::numeric_limits<int32_t>::max();

// In the order of event logs: a new row comes last, and logs from before it mean its default.
inline constexpr Setting kSettings[] = {
    {"context_tokens_max", &SchedulerConfig::context_tokens_max, 1, kSettingMost},
    {"step_tokens_max", &SchedulerConfig::step_tokens_max, kBlockTokens, 1 << 20, Offered::kEngine,
     "--max-batch-tokens", "Most tokens of a step, over all sequences of a group of --dp"},
    {"chunk_tokens_max", &SchedulerConfig::chunk_tokens_max, 0, 1 << 20, Offered::kEngine,
     "--chunk-tokens", "Most prompt tokens of a sequence in a step (default: --max-batch-tokens)"},
    {"running_max", &SchedulerConfig::running_max, 1, 1 << 16, Offered::kServe, "--max-num-seqs",
     "Most sequences that run at the same time"},
    {"waiting_max", &SchedulerConfig::waiting_max, 1, kSettingMost},
    {"preemptions_max", &SchedulerConfig::preemptions_max, 1, kSettingMost},
    {"vocabulary", &SchedulerConfig::vocabulary, 1, kSettingMost},
    {"prefix_cache", &SchedulerConfig::prefix_cache, 0, 1, Offered::kEngine, "--no-prefix-cache",
     "Do not reuse cached prefixes"},
    {"dp_ranks", &SchedulerConfig::dp_ranks, 1, kSettingMost},
    {"placement", &SchedulerConfig::placement, 0, static_cast<int64_t>(Placement::kRoundRobin)},
    {"decode_latency_us", &SchedulerConfig::decode_latency_us, 0, int64_t{1000} << 20,
     Offered::kEngine, "--decode-latency-ms",
     "Limit prefill so that steps with running answers take at most this long; 0: no limit", 1000},
    {"draft_tokens_max", &SchedulerConfig::draft_tokens_max, 0, kBlockTokens - 1},
    {"handoff", &SchedulerConfig::handoff, 0, 1},
    {"prefills_max", &SchedulerConfig::prefills_max, 0, 1 << 16, Offered::kEngine, "--max-prefills",
     "Most prompts that share a step; others wait for those before them; 0: no limit"},
    {"draft_adapt", &SchedulerConfig::draft_adapt, 0, 1},
    {"draft_lookup", &SchedulerConfig::draft_lookup, 0, 1},
    {"draft_head", &SchedulerConfig::draft_head, 0, 1},
    {"tier", &SchedulerConfig::tier, 0, 1},
    {"grammar_ranks", &SchedulerConfig::grammar_ranks, 0, kSettingMost},
};

int64_t ValueOf(const SchedulerConfig& config, const Setting& setting);

// Every setting within its range; an error with numbers otherwise.
Status CheckSettings(const SchedulerConfig& config);

}  // namespace braid
