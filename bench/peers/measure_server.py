#!/usr/bin/env python3
"""Prefill and decode rates of any server that speaks OpenAI's /v1/completions, at N sequences.

    python3 bench/peers/measure_server.py http://127.0.0.1:8000 --sequences 1 8 32

N requests with prompts of random token ids (the server must take ids) start together and stream.
prefill: all prompt tokens over the time to the last first token.  decode: tokens per second of all
streams together between the last first token and the first end.  An event may bring several tokens
(drafts) or none (half a character), so tokens are counted by the usage in the events; of a server
that says it only at the end, all events with text count as equal parts.  aiperf measures
latencies under a load that comes and goes; this measures the two rates that engines are compared
by.  Only the standard library is needed.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse


class Stream(threading.Thread):
    """One request; `events` has the time of each that brought tokens, and how many had come."""

    def __init__(self, url, body):
        super().__init__(daemon=True)
        self.url, self.body, self.events, self.error = url, body, [], None

    def run(self):
        try:
            self.read()
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.error = repr(e)

    def read(self):
        """Send, then take the time of every event."""
        link = http.client.HTTPConnection(self.url.hostname, self.url.port or 80, timeout=3600)
        link.request("POST", "/v1/completions", json.dumps(self.body),
                     {"Content-Type": "application/json"})  # fmt: skip
        answer = link.getresponse()
        if answer.status != 200:
            self.error = f"{answer.status}: {answer.read(500)!r}"
            return
        total = 0  # by the last usage
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now, event = time.perf_counter(), json.loads(line[6:])
            if event.get("error"):
                raise ValueError(event["error"])
            tokens = (event.get("usage") or {}).get("completion_tokens") or 0
            if tokens > total or any(choice.get("text") for choice in event.get("choices", [])):
                self.events.append((now, tokens))
            total = max(total, tokens)
        self.count(total)

    def count(self, total):
        """Checks the end, and spreads its count over the events where they have none."""
        wanted = self.body["max_tokens"]
        if total not in (0, wanted):
            raise ValueError(f"the answer has {total} tokens instead of {wanted}")
        if self.events and self.events[0][1] == 0:
            texts = [at for at, tokens in self.events if tokens == 0]
            self.events = [(at, wanted * (i + 1) / len(texts)) for i, at in enumerate(texts)]

    def tokens_by(self, when):
        """How many had come."""
        return max((tokens for at, tokens in self.events if at <= when), default=0)


def measure(url, args, sequences, seed):
    """Rates of one round."""
    rng = random.Random(seed)
    streams = [
        Stream(url, {
            "model": args.model, "stream": True, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "max_tokens": args.output_tokens, "cache_prompt": False,
            "prompt": [rng.randrange(args.vocabulary) for _ in range(args.input_tokens)],
        })
        for _ in range(sequences)
    ]  # fmt: skip
    start = time.perf_counter()
    for s in streams:
        s.start()
    for s in streams:
        s.join()
    for s in streams:
        if s.error or len(s.events) < 2:
            sys.exit(f"a request failed: {s.error or 'fewer than two events brought tokens'}")
    last_first = max(s.events[0][0] for s in streams)
    first_end = min(s.events[-1][0] for s in streams)
    tokens = sum(s.tokens_by(first_end) - s.tokens_by(last_first) for s in streams)
    if first_end <= last_first or tokens == 0:
        sys.exit("some ended before all had begun: give more --output-tokens")
    return (sequences * args.input_tokens / (last_first - start),
            tokens / (first_end - last_first))  # fmt: skip


def main():
    """Measure and print one JSON object."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("url", help="http://HOST:PORT")
    p.add_argument("--model", default="default", help="name, where the server checks it")
    p.add_argument("--sequences", type=int, nargs="+", default=[1])
    p.add_argument("--input-tokens", type=int, default=512)
    p.add_argument("--output-tokens", type=int, default=64)
    p.add_argument("--vocabulary", type=int, default=4096, help="ids are drawn below this")
    p.add_argument("--rounds", type=int, default=3, help="counted rounds; one more warms up")
    args = p.parse_args()
    url = urllib.parse.urlparse(args.url)
    if url.scheme != "http" or not url.hostname:
        p.error(f"{args.url}: must be http://HOST:PORT")
    runs = []
    for k in args.sequences:
        rounds = [measure(url, args, k, seed=1000 * k + i) for i in range(args.rounds + 1)][1:]
        runs.append({
            "sequences": k,
            "prefill_tokens_per_second": round(statistics.median(r[0] for r in rounds), 1),
            "decode_tokens_per_second": round(statistics.median(r[1] for r in rounds), 1),
        })  # fmt: skip
        print(runs[-1], file=sys.stderr, flush=True)
    print(json.dumps({**vars(args), "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
