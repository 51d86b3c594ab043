#!/usr/bin/env python3
"""How long a text takes to become tokens: the first time, again, and with 2 KB more behind it.

    bench/long_texts.py [--braid build/release/braid] [--model models/braid-tiny] [--rounds 5]

Texts of words of the model's public sets, in new orders each time, go to /tokenize of a server of
its own. Prints medians in milliseconds, and the bytes a second of the first time.
"""

import argparse
import http.client
import json
import pathlib
import random
import statistics
import time

from router_cost import ROOT, start


def take_ms(port, text):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    begin = time.perf_counter()
    connection.request("POST", "/tokenize", json.dumps({"prompt": text}),
                       {"Content-Type": "application/json"})  # fmt: skip
    response = connection.getresponse()
    response.read()
    assert response.status == 200, response.status
    return 1e3 * (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--model", default=str(ROOT / "models/braid-tiny"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kilobytes", type=int, nargs="+", default=[30, 100, 400, 1600])
    options = parser.parse_args()
    words = [word for path in sorted(pathlib.Path(ROOT / "models/eval").iterdir())
             for word in path.read_text(encoding="utf-8").split()]  # fmt: skip
    draw = random.Random(time.time_ns())

    def text_of(size):
        text = ""
        while len(text) < size:
            text += " ".join(draw.choices(words, k=1000)) + " "
        return text[:size]

    process, port = start([options.braid, "serve", options.model, "--port", "0"])
    try:
        print(f"{'KB':>6} {'first ms':>9} {'again ms':>9} {'longer ms':>9} {'first MB/s':>10}")
        for kilobytes in options.kilobytes:
            rows = []
            for _ in range(options.rounds):
                text = text_of(1000 * kilobytes)
                rows.append([take_ms(port, text), take_ms(port, text),
                             take_ms(port, text + text_of(2000))])  # fmt: skip
            first, again, longer = map(statistics.median, zip(*rows))
            print(f"{kilobytes:>6} {first:>9.1f} {again:>9.1f} {longer:>9.1f} "
                  f"{kilobytes / first:>10.2f}", flush=True)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
