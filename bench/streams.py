"""Streamed completions of a server on this machine, for the benches."""

import asyncio
import json
import re
import time

EVENT_BYTES_MAX = 1 << 24


async def token_times(port, **body):
    """Yields when each token of a completion came: an event may bring several tokens, or none."""
    usage = {"include_usage": True, "continuous_usage_stats": True}
    text = json.dumps({"ignore_eos": True, "stream": True, "stream_options": usage,
                       **body}).encode()  # fmt: skip
    tokens = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=EVENT_BYTES_MAX)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)  # fmt: skip
    try:
        while line := await reader.readline():
            if line.startswith((b'data: {"error"', b"HTTP/1.1")) and b"HTTP/1.1 200 " not in line:
                raise SystemExit(f"{line.decode()}{(await reader.read()).decode()}")
            if count := re.search(rb'^data: .*"completion_tokens":(\d+)', line):
                now = time.monotonic()
                for _ in range(tokens, int(count[1])):
                    yield now
                tokens = int(count[1])
    finally:
        writer.close()
