#!/usr/bin/env python3
"""A fake of braid's HTTP API for work on the page: canned answers, made-up metrics, no model.

It serves web/dist/index.html at / and is used by people who change the page, and by the page test
when no binary is at hand. Words in the prompt choose what it does: "break" ends the stream with an
error, "long" answers for half a minute; a temperature above 2 is refused. Start it with
--loading-seconds to see /ready answer 503 first.
"""

import argparse
import http.server
import json
import pathlib
import threading
import time

PAGE = pathlib.Path(__file__).resolve().parent / "dist" / "index.html"
THOUGHT = "A story about Finn the fox. He has 12 apples and finds 7 more, so I add: 12 + 7 = 19."
ANSWER = """Finn the fox has **19** apples in the meadow. Here is the working, with `inline code`:

```python
apples = 12 + 7
print(apples)  # 19
```

- one line with <b>angle brackets</b> that must stay text
- another line with $a^2 + b^2$

| fruit | count |
|-------|------:|
| apple |    19 |

Ask me something else."""


class State:
    """Counters behind /metrics; guarded by one lock, shared by all connections."""

    def __init__(self, loading_seconds):
        self.lock = threading.Lock()
        self.ready_at = time.monotonic() + loading_seconds
        self.running = 0
        self.generated = 0
        self.prompted = 0

    def add(self, running=0, generated=0, prompted=0):
        with self.lock:
            self.running += running
            self.generated += generated
            self.prompted += prompted


class Fake(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def error(self, status, message, param=None):
        kind = "invalid_request_error" if status < 500 else "server_error"
        body = {"message": message, "type": kind, "param": param, "code": status}
        self.reply(status, {"error": body})

    def do_GET(self):
        state = self.server.state
        ready = time.monotonic() >= state.ready_at
        if self.path == "/":
            self.reply(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif self.path == "/ready":
            self.reply(200, {"status": "ready"}) if ready else self.error(503, "loading the model")
        elif self.path == "/v1/models":
            model = {"id": "braid-fake", "object": "model", "max_model_len": 8192}
            self.reply(200, {"object": "list", "data": [model]})
        elif self.path == "/server_info":
            self.reply(200, {"version": "0.1.0", "threads": 2, "isa": "avx512",
                             "weight_bytes": 23185808, "cache_bytes": 268435456,
                             "kv_bytes_per_token": 1024, "context_tokens_max": 8192,
                             "generation_defaults": {"temperature": 0.7, "top_p": 0.8, "top_k": 20},
                             "scheduler": {"running": state.running, "cache_pages_total": 512}})
        elif self.path == "/v1/running":
            self.reply(200, {"object": "list", "data": []})
        elif self.path == "/metrics":
            self.reply(200, self.metrics().encode(), "text/plain; version=0.0.4")
        else:
            self.error(404, f"no such path: {self.path}")

    def metrics(self):
        state = self.server.state
        with state.lock:
            values = {
                "braid:num_requests_running": ("gauge", state.running),
                "braid:num_requests_waiting": ("gauge", 0),
                "braid:kv_cache_usage_perc": ("gauge", min(1.0, 0.03 + 0.11 * state.running)),
                "braid:generation_tokens_total": ("counter", state.generated),
                "braid:prompt_tokens_total": ("counter", state.prompted),
                "braid:prefix_cache_queries_total": ("counter", state.prompted),
                "braid:prefix_cache_hits_total": ("counter", state.prompted * 3 // 4),
            }
            cached = min(400, state.prompted)
            pages = {"used": 60 * state.running, "cached": cached, "free": 440 - cached}
        text = "".join(f'# TYPE {name} {kind}\n{name}{{model_name="braid-fake"}} {value}\n'
                       for name, (kind, value) in values.items())
        return text + "".join(f'braid:cache_pages{{model_name="braid-fake",state="{name}"}} {n}\n'
                              for name, n in pages.items())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        if self.path == "/flush_cache":
            self.reply(200, {"status": "ok"})
            return
        if self.path != "/v1/chat/completions":
            self.error(404, f"no such path: {self.path}")
            return
        text = body["messages"][-1]["content"]
        temperature = body.get("temperature", 1)
        if temperature > 2:
            message = f"temperature: must be between 0 and 2, got {temperature}"
            self.error(400, message, "temperature")
            return
        thinking = body.get("chat_template_kwargs", {}).get("enable_thinking", True)
        self.server.state.add(running=1, prompted=37)
        try:
            self.stream(text, thinking)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.server.state.add(running=-1)

    def chunk(self, payload):
        data = f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def delta(self, delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.chunk({"object": "chat.completion.chunk", "choices": [choice]})

    def stream(self, text, thinking):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.delta({"role": "assistant", "content": ""})
        time.sleep(0.15)
        answer = ANSWER * 40 if "long" in text else ANSWER
        parts = [("reasoning_content", THOUGHT)] if thinking else []
        count = 0
        for field, whole in parts + [("content", answer)]:
            for start in range(0, len(whole), 4):
                self.delta({field: whole[start:start + 4]})
                self.server.state.add(generated=1)
                count += 1
                time.sleep(self.server.delay)
                if "break" in text and count == 30:
                    self.chunk({"error": {"message": "the engine ran out of pages", "code": 500}})
                    self.wfile.write(b"0\r\n\r\n")
                    return
        self.delta({}, "stop")
        usage = {"prompt_tokens": 37, "completion_tokens": count, "total_tokens": 37 + count}
        self.chunk({"choices": [], "usage": usage})
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds between tokens")
    parser.add_argument("--loading-seconds", type=float, default=0)
    args = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Fake)
    server.daemon_threads = True
    server.state = State(args.loading_seconds)
    server.delay = args.delay
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
