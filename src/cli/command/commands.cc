// The table of commands: help, suggestions and dispatch read it.
#include "cli/command/command_factories.h"

namespace braid {
namespace {

// The first match counts: "doctor prefix" stands before "doctor".
constexpr CommandEntry kCommands[] = {
    {"", "serve", "Serve a model over HTTP: OpenAI's API and a chat page",
     "  braid serve models/braid-tiny\n"
     "  braid serve MODEL --host :: --port 8080 --max-model-len 32768 --memory 16G\n"
     "  BRAID_PORT=9000 braid serve MODEL\n",
     MakeServeCommand},
    {"", "router", "Serve one address for several engines",
     "  braid router engines.json\n"
     "  braid router engines.json --host :: --port 8080 --api-key-file keys.json\n",
     MakeRouterCommand},
    {"", "run", "Chat in the terminal, or answer one prompt",
     "  braid run models/braid-tiny\n"
     "  braid run models/braid-tiny \"How much is 62 + 12?\" --temperature 0\n"
     "  braid run MODEL --token-ids '[1, 2, 3]' --json --max-tokens 32 --logprobs 5\n"
     "  echo \"Once upon a time\" | braid run MODEL --raw\n",
     MakeRunCommand},
    {"", "score", "Print the log-probability of each token of given texts",
     "  braid score models/braid-tiny prompts.jsonl --top 5 > scores.jsonl\n"
     "  echo '{\"token_ids\": [1, 2, 3]}' | braid score MODEL - --compute fp32\n",
     MakeScoreCommand},
    {"", "eval", "Measure accuracy on task sets",
     "  braid eval models/braid-tiny models/eval/*.jsonl\n"
     "  braid eval MODEL models/eval/lists.jsonl --limit 20 --json\n",
     MakeEvalCommand},
    {"bench", "offline", "Measure prefill and decode speed of the engine, without a server",
     "  braid bench offline models/braid-tiny --input-tokens 512 --output-tokens 128 "
     "--sequences 8\n"
     "  braid bench offline MODEL --json --repeat 5\n",
     MakeBenchOfflineCommand},
    {"bench", "load", "Compare the time to load a model with the time to read its files",
     "  braid bench load models/braid-tiny\n"
     "  braid bench load MODEL --weights int8 --cold --repeat 5\n",
     MakeBenchLoadCommand},
    {"bench", "ops", "Compare the speed of each operation with the limits of this machine",
     "  braid bench ops\n"
     "  braid bench ops linear --filter \"1 row\" --isa avx2\n"
     "  braid bench ops --json > ops.json\n",
     MakeBenchOpsCommand},
    {"bench", "balance", "Measure what a placement of experts is worth where choices are uneven",
     "  braid bench balance\n"
     "  braid bench balance --rows 8 --redundant 16 --json\n",
     MakeBenchBalanceCommand},
    {"bench", "rebalance", "Measure what moving experts to where the load is saves and costs",
     "  braid bench rebalance MODEL --redundant-experts 8\n"
     "  braid bench rebalance MODEL --sequences 8 --by-rows --json\n",
     MakeBenchRebalanceCommand},
    {"bench", "dispatch", "Compare two ways of bringing tokens to the experts of other ranks",
     "  braid bench dispatch\n"
     "  mpirun -n 4 braid bench dispatch --ranks 4 --json\n",
     MakeBenchDispatchCommand},
    {"bench", "agentic", "Measure how much of long conversations is recomputed",
     "  braid bench agentic models/braid-tiny\n"
     "  braid bench agentic models/braid-tiny --cache-share 0.5 --json\n",
     MakeBenchAgenticCommand},
    {"bench", "drafts", "Measure how much faster answers come with drafts than without",
     "  braid bench drafts models/braid-tiny models/eval/text.jsonl\n"
     "  braid bench drafts MODEL --draft-acceptance 0.8 --draft 3 --sequences 8\n",
     MakeBenchDraftsCommand},
    {"bench", "handoff", "Measure how fast pages go from one engine to another on this machine",
     "  braid bench handoff --part-kib 1536\n"
     "  UCX_TLS=tcp braid bench handoff --host 10.0.0.1 --json\n",
     MakeBenchHandoffCommand},
    {"simulate", "cluster", "Simulate engines that serve a load, from a config alone",
     "  braid simulate cluster config.json --hardware h200 --engines 8 --mesh tp=2,ep=2 \\\n"
     "    --load sharegpt --rate 20,40,80 --html front.html\n"
     "  braid simulate cluster config.json --trace-file mooncake.jsonl --engines 16 --json\n"
     "  braid simulate cluster config.json --engines 8 --prefill-engines 4 --rate 20\n"
     "  braid simulate cluster config.json --load agentic --route prefix --fail-every 300\n"
     "  braid serve MODEL --event-log run.log\n"
     "  braid simulate cluster MODEL --trace-file run.log --engines 2\n",
     MakeSimulateClusterCommand},
    {"", "simulate", "Test the scheduler and the prefix cache on random workloads",
     "  braid simulate --seeds 100000\n"
     "  braid simulate --workload agentic --faults none --no-prefix-cache\n"
     "  braid simulate --minutes 30 --faults abort,tiny\n",
     MakeSimulateCommand},
    {"", "replay", "Repeat a recorded run and compare its plans and tokens",
     "  braid serve MODEL --event-log run.log\n"
     "  braid replay run.log\n"
     "  braid replay run.log --model MODEL\n",
     MakeReplayCommand},
    {"", "inspect", "Show the contents and memory needs of a checkpoint",
     "  braid inspect models/braid-tiny\n"
     "  braid inspect MODEL --json --tensors\n"
     "  braid inspect --config-only config.json\n",
     MakeInspectCommand},
    {"", "plan", "Forecast memory, speed and latency of a model on given hardware",
     "  braid plan config.json --hardware h200 --mesh dp=2,tp=8,ep=16 \\\n"
     "    --weights fp8 --workload in=16384,out=1024,concurrency=64\n"
     "  braid plan MODEL --hardware h100 --search --devices 16 --inter-token-ms 50\n"
     "  braid plan MODEL --hardware mine.json --json\n",
     MakePlanCommand},
    {"experts", "plan", "Compare placements of experts for a recorded load",
     "  braid run MODEL --expert-loads loads.jsonl\n"
     "  braid experts plan loads.jsonl --mesh \"ranks=72,node=8;ranks=12,node=4,redundant=8\"\n"
     "  braid experts plan loads.jsonl --model MODEL --hardware h100 --weights fp8\n",
     MakeExpertsPlanCommand},
    {"", "convert", "Convert a checkpoint to another weight format",
     "  braid convert MODEL-FP8 MODEL-BF16\n"
     "  braid convert MODEL-INT4 MODEL-FP32 --weights fp32\n",
     MakeConvertCommand},
    {"doctor", "prefix", "Explain why a request reused little of an earlier one",
     "  braid doctor prefix A.json B.json --model models/braid-tiny\n"
     "  braid doctor prefix A.json B.json --model MODEL --json\n",
     MakeDoctorPrefixCommand},
    {"", "doctor", "Measure this machine and suggest settings", "  braid doctor\n",
     MakeDoctorCommand},
    {"cache", "ls", "List the segments of a directory of cached pages",
     "  braid cache ls /var/cache/braid\n  braid cache ls DIR --json\n", MakeCacheLsCommand},
    {"cache", "stat", "Sum up a directory of cached pages by fingerprint",
     "  braid cache stat /var/cache/braid\n", MakeCacheStatCommand},
    {"cache", "verify", "Compare cached pages with their checksums",
     "  braid cache verify /var/cache/braid\n", MakeCacheVerifyCommand},
    {"cache", "clear", "Remove cached pages that no server is writing",
     "  braid cache clear /var/cache/braid\n"
     "  braid cache clear DIR --fingerprint 0123456789abcdef\n",
     MakeCacheClearCommand},
    {"cache", "export", "Write the cached pages of one conversation to a file",
     "  braid cache export DIR conversation.pages --prefix request.json --model MODEL\n",
     MakeCacheExportCommand},
    {"cache", "import", "Add the pages of a file of `braid cache export` to a directory",
     "  braid cache import DIR conversation.pages\n", MakeCacheImportCommand},
    {"", "make-model", "Create a checkpoint with random weights for tests and benchmarks",
     "  braid make-model /tmp/mid --shape mid --seed 1\n"
     "  braid make-model /tmp/odd --shape tiny,num_experts=5\n",
     MakeMakeModelCommand},
    {"", "version", "Print version and commit of this binary", "  braid version\n",
     MakeVersionCommand},
    {"", "licences", "Print the licences of Braid and of the libraries in this binary",
     "  braid licences | less\n", MakeLicencesCommand},
};

}  // namespace

std::span<const CommandEntry> Commands() { return kCommands; }

}  // namespace braid
