"""Streamed completions of a server on this machine, for the benches."""

import asyncio
import json
import time

EVENT_BYTES_MAX = 1 << 24


async def token_times(port, **body):
    """Yields when each token of a completion came."""
    text = json.dumps({"ignore_eos": True, "stream": True, **body}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=EVENT_BYTES_MAX)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)  # fmt: skip
    try:
        while line := await reader.readline():
            if line.startswith(b"data: {") and b'"choices":[{' in line:
                yield time.monotonic()
            if line.startswith(b"HTTP/1.1") and b" 200 " not in line:
                raise SystemExit(f"{line.decode()}{(await reader.read()).decode()}")
    finally:
        writer.close()
