#!/usr/bin/env python3
"""What constrained output costs: the same number of tokens with and without a grammar, in turns.

    python3 bench/constrained_cost.py [--base-url http://127.0.0.1:8000] [--batch 32] [--tokens 128]

Prints tokens/s of the fastest round of each kind and their ratio. Other work on the machine makes
rounds slower, so the fastest one is compared.
"""
import argparse
import concurrent.futures
import json
import time
import urllib.request

KINDS = {
    "unconstrained": {"ignore_eos": True},
    "regex": {"regex": "[a-zA-Z ,.]{4000}"},
    "json_schema": {"guided_json": {"type": "array", "minItems": 900, "maxItems": 900, "items": {
        "type": "object", "additionalProperties": False, "required": ["name", "age"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}}},
}


def complete(base_url, body):
    request = urllib.request.Request(base_url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["usage"]["completion_tokens"]


def round_of(options, extra, pool, number):
    bodies = [{"prompt": f"Text {number} {i}:", "max_tokens": options.tokens, "temperature": 0.8,
               "seed": i, **extra} for i in range(options.batch)]
    start = time.monotonic()
    tokens = sum(pool.map(lambda body: complete(options.base_url, body), bodies))
    assert tokens == options.batch * options.tokens, f"{tokens} tokens: an answer ended early"
    return tokens / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    best = dict.fromkeys(KINDS, 0.0)
    with concurrent.futures.ThreadPoolExecutor(options.batch) as pool:
        for number in range(options.rounds):
            for kind, extra in KINDS.items():
                best[kind] = max(best[kind], round_of(options, extra, pool, number))
    for kind, rate in best.items():
        print(f"{kind:15} {rate:8.0f} tokens/s   {rate / best['unconstrained']:.3f}")


if __name__ == "__main__":
    main()
