// The table of commands: help, suggestions and dispatch read it.
#include "cli/command/command_factories.h"

namespace braid {
namespace {

// The first that matches counts: "doctor prefix" stands before "doctor".
constexpr CommandEntry kCommands[] = {
    {"", "serve", "Serve a model over HTTP: OpenAI's API and a chat page",
     "  braid serve models/braid-tiny\n"
     "  braid serve MODEL --host :: --port 8080 --max-model-len 32768 --memory 16G\n"
     "  BRAID_PORT=9000 braid serve MODEL\n",
     MakeServeCommand},
    {"", "run", "Chat in the terminal, or answer one prompt",
     "  braid run models/braid-tiny\n"
     "  braid run models/braid-tiny \"How much is 62 + 12?\" --temperature 0\n"
     "  braid run MODEL --token-ids '[1, 2, 3]' --json --max-tokens 32 --logprobs 5\n"
     "  echo \"Once upon a time\" | braid run MODEL --raw\n",
     MakeRunCommand},
    {"", "score", "Log-probabilities of given texts, token by token",
     "  braid score models/braid-tiny prompts.jsonl --top 5 > scores.jsonl\n"
     "  echo '{\"token_ids\": [1, 2, 3]}' | braid score MODEL - --compute fp32\n",
     MakeScoreCommand},
    {"", "eval", "Accuracy on sets of tasks",
     "  braid eval models/braid-tiny models/eval/*.jsonl\n"
     "  braid eval MODEL models/eval/lists.jsonl --limit 20 --json\n",
     MakeEvalCommand},
    {"bench", "offline", "Prefill and decode speed of this engine, without a server",
     "  braid bench offline models/braid-tiny --input-tokens 512 --output-tokens 128 "
     "--sequences 8\n"
     "  braid bench offline MODEL --json --repeat 5\n",
     MakeBenchOfflineCommand},
    {"bench", "load", "Loading a model beside reading its files",
     "  braid bench load models/braid-tiny\n"
     "  braid bench load MODEL --weights int8 --cold --repeat 5\n",
     MakeBenchLoadCommand},
    {"bench", "ops", "Each operation's speed beside this machine's limits",
     "  braid bench ops\n"
     "  braid bench ops linear --filter \"1 row\" --isa avx2\n"
     "  braid bench ops --json > ops.json\n",
     MakeBenchOpsCommand},
    {"bench", "agentic", "How much of long conversations is computed again",
     "  braid bench agentic models/braid-tiny\n"
     "  braid bench agentic models/braid-tiny --cache-share 0.5 --json\n",
     MakeBenchAgenticCommand},
    {"", "simulate", "Scheduler and prefix cache against a model made of hashes",
     "  braid simulate --seeds 100000\n"
     "  braid simulate --workload agentic --faults none --no-prefix-cache\n"
     "  braid simulate --minutes 30 --faults abort,tiny\n",
     MakeSimulateCommand},
    {"", "replay", "Repeat a recorded run and compare it, plan by plan and token by token",
     "  braid serve MODEL --event-log run.log\n"
     "  braid replay run.log\n"
     "  braid replay run.log --model MODEL\n",
     MakeReplayCommand},
    {"", "inspect", "What a checkpoint holds and needs",
     "  braid inspect models/braid-tiny\n"
     "  braid inspect MODEL --json --tensors\n"
     "  braid inspect --config-only config.json\n",
     MakeInspectCommand},
    {"", "convert", "Write a checkpoint anew with plain weights",
     "  braid convert MODEL-FP8 MODEL-BF16\n"
     "  braid convert MODEL-INT4 MODEL-FP32 --weights fp32\n",
     MakeConvertCommand},
    {"doctor", "prefix", "Where two requests part, and why little of the first was reused",
     "  braid doctor prefix A.json B.json --model models/braid-tiny\n"
     "  braid doctor prefix A.json B.json --model MODEL --json\n",
     MakeDoctorPrefixCommand},
    {"", "doctor", "What this machine offers, measured, and what to change", "  braid doctor\n",
     MakeDoctorCommand},
    {"", "make-model", "Write a checkpoint with random weights, for tests and benches",
     "  braid make-model /tmp/mid --shape mid --seed 1\n"
     "  braid make-model /tmp/odd --shape tiny,num_experts=5\n",
     MakeMakeModelCommand},
    {"", "version", "Version and commit of this binary", "  braid version\n", MakeVersionCommand},
    {"", "licences", "Licences of Braid and of the libraries in this binary",
     "  braid licences | less\n", MakeLicencesCommand},
};

}  // namespace

std::span<const CommandEntry> Commands() { return kCommands; }

}  // namespace braid
