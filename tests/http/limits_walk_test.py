"""Walks the server's table of limits (/server_info): each value at its limit is taken, one above it
and absurd ones get the row's status, while a stream beside it goes on undisturbed.

A row that has neither a walk here nor a test that is named for it fails.
"""

import http.client
import json
import os
import pathlib
import socket
import threading
import time

import pytest

# A sanitizer keeps freed memory and slows down what shares the machine with it.
SANITIZED = os.environ.get("BRAID_PRESET", "release") != "release"
ABSURD = (2**31, 2**32, 2**63 - 1)
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "a"}

# Limits that a value cannot be sent for: the test that shows each.
ELSEWHERE = {
    "header_seconds":
        "framing_test.py::test_slow_heads_and_bodies_meet_absolute_deadlines",
    "body_seconds":
        "framing_test.py::test_slow_heads_and_bodies_meet_absolute_deadlines",
    "all_bodies_bytes":
        "framing_test.py::test_bodies_above_the_memory_for_all_of_them_are_refused",
    "connections": "framing_test.py::test_connections_above_the_limit_are_refused",
    "connections_per_address": "framing_test.py::test_connections_above_the_limit_are_refused",
    "idle_seconds": "time_limits_test.py::test_an_idle_connection_is_closed",
    "requests_per_connection": "time_limits_test.py::test_a_connection_serves_so_many_requests",
    "concurrent_requests_per_connection":
        "framing_test.py::test_pipelined_requests_are_answered_in_order",
    "unsent_bytes": "stream_test.py::test_a_reader_that_stops_reading_is_cut_off",
    "write_seconds":
        "stream_test.py::test_a_reader_that_stops_reading_is_cut_off",
    "heartbeat_seconds": "stream_test.py::test_heartbeats_keep_a_quiet_stream_alive",
    "request_id_bytes": "framing_test.py::test_request_ids_come_back_and_bad_ones_are_replaced",
    "wrong_keys_per_second":
        "../cli/administration_test.py::test_an_address_that_tries_keys_is_held_off",
    "prompt_logprob_entries": "../../src/server/serving/prepare_test.cc",
    "schema_bytes":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "schema_depth":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "schema_properties":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "schema_enum_values":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "repetitions":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "regex_bytes":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "compile_burst_seconds":
        "../cli/keys_test.py::test_compiling_for_one_tenant_does_not_take_all_threads",
    **{name: "../cli/keys_test.py::"
             "test_stored_responses_have_bounds_of_each_key_and_the_oldest_go" for name in (
                 "stored_bytes", "stored_bytes_per_key")},
    "stored_responses": "../../src/server/serving/response_store_test.cc",
    "stored_responses_per_key": "../../src/server/serving/response_store_test.cc",
    "grammar_cache_bytes": "../../src/text/grammar/grammar_trial_test.cc",
    "grammar_items": "../../src/text/grammar/grammar_test.cc",
    "render_seconds": "../../src/text/chat/chat_template_test.cc",
    "requests_per_key":
        "../cli/keys_test.py::test_a_key_has_so_many_requests_at_once",
    "tool_call_header_bytes": "../../src/text/answer/answer_parser_test.cc",
    "concurrent_compilations": "../../src/text/grammar/compile_queue_test.cc",
    "concurrent_compilations_per_key": "../../src/text/grammar/compile_queue_test.cc",
    "waiting_compilations": "../../src/text/grammar/compile_queue_test.cc",
    "waiting_compilations_per_key": "../../src/text/grammar/compile_queue_test.cc",
    "compile_cpu_ms":
        "../cli/grammar_bombs_test.py::test_what_is_over_its_budget_is_told_which_limit",
    "compile_memory_bytes":
        "../cli/grammar_bombs_test.py::test_what_is_over_its_budget_is_told_which_limit",
    "schema_optional_properties":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "grammar_choices":
        "../client/strict_test.py::test_limits_of_grammars_are_those_of_the_table",
    "running_sequences": "time_limits_test.py::test_what_waits_too_long_is_refused",
    "waiting_requests": "stream_test.py::test_a_full_queue_says_so",
    "waiting_prompt_tokens":
        "time_limits_test.py::test_more_prompt_tokens_than_may_wait_are_refused",
    "queue_seconds": "time_limits_test.py::test_what_waits_too_long_is_refused",
    "request_seconds":
        "stream_test.py::test_a_request_that_takes_too_long_ends_with_an_error_event",
    "preemptions": "../../src/scheduler/scenario_test.cc",
}


class Status(int):
    """A status with what the answer says."""

    def __new__(cls, answer):
        status = super().__new__(cls, answer[0])
        status.said = answer[2].decode()
        return status

    @property
    def is_of_context(self):
        return "context" in self.said


def raw_status(server, head, body=b""):
    with server.connect() as connection:
        connection.sendall(head + body)
        line = connection.makefile("rb").readline()
    return int(line.split()[1])


def chat(server, **fields):
    body = {"messages": [USER], "max_tokens": 1, **fields}
    return Status(server.request("POST", CHAT, body))


def text(server, **fields):
    return Status(server.request("POST", TEXT, {"prompt": "a", "max_tokens": 1, **fields}))


def nested(depth):
    return "[" * (depth - 1) + "]" * (depth - 1)


def raw_json(server, path, body):
    return Status(server.request("POST", path, body.encode(),
                                 {"Content-Type": "application/json"}))


def get(server, headers="", target="/health"):
    return raw_status(server, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())


def head_of(size):
    """Headers of so many bytes in all, each far below its own limit."""
    used = len("\r\nHost: localhost\r\n\r\n")
    lines, left = "", size - used
    while left > 4200:
        lines += "A: " + "b" * 4091 + "\r\n"
        left -= 4096
    return lines + "A: " + "b" * (left - 5) + "\r\n"


def tools(count, name=4, pad=0):
    return [{"type": "function", "function": {"name": f"{i:0{name}d}", "description": "d" * pad}}
            for i in range(count)]


def tool_bytes(server, size):
    return chat(server, tools=tools(1, pad=size - len(json.dumps(
        tools(1), separators=(",", ":")))))


def padded(before, after, size):
    return before + "a" * (size - len(before) - len(after)) + after


def prompts(count):
    return ["a"] * count


WALKS = {
    "target_bytes": lambda s, n: get(s, target="/health?" + "a" * (n - 8)),
    "headers": lambda s, n: get(s, "A: b\r\n" * (n - 1)),
    "header_bytes": lambda s, n: get(s, "A: " + "b" * (n - 3) + "\r\n"),
    "all_headers_bytes": lambda s, n: get(s, head_of(n)),
    "body_bytes": lambda s, n: raw_json(s, TEXT, padded('{"prompt": [1], "max_tokens": 1, '
                                                        '"user": "', '"}', n)),
    "chunk_extension_bytes": lambda s, n: raw_status(
        s, b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"f;" + b"x" * (n - 1) + b'\r\n{"prompt": "a"}\r\n0\r\n\r\n'),
    "json_depth": lambda s, n: raw_json(s, TEXT, '{"prompt": "a", "max_tokens": 1, "user": '
                                        + nested(n) + "}"),
    "json_values": lambda s, n: raw_json(s, TEXT, '{"prompt": "a", "max_tokens": 1, "user": ['
                                         + ",".join("1" * (n - 4)) + "]}"),
    "json_key_bytes": lambda s, n: text(s, user={"k" * n: 1}),
    "messages": lambda s, n: chat(s, messages=[{"role": "user", "content": ""}] * n),
    "message_parts": lambda s, n: chat(s, messages=[
        {"role": "user", "content": [{"type": "text", "text": ""}] * n}]),
    "message_name_bytes": lambda s, n: chat(s, messages=[{**USER, "name": "n" * n}]),
    "prompt_tokens": lambda s, n: text(s, prompt=[1] * n),
    "token_id": lambda s, n: text(s, prompt=[n]),
    "answers": lambda s, n: text(s, prompt=prompts(n)),
    "n": lambda s, n: text(s, n=n),
    "best_of": lambda s, n: text(s, best_of=n),
    "top_logprobs": lambda s, n: chat(s, logprobs=True, top_logprobs=n),
    "prompt_logprobs": lambda s, n: text(s, prompt_logprobs=n),
    "logit_bias_entries": lambda s, n: text(s, logit_bias={str(i): 1 for i in range(n)}),
    "logit_bias": lambda s, n: text(s, logit_bias={"1": n}),
    "stop_strings": lambda s, n: text(s, stop=["x"] * n),
    "stop_string_bytes": lambda s, n: text(s, stop="x" * n),
    "stop_token_ids": lambda s, n: text(s, stop_token_ids=[1] * n),
    **{name: (lambda field: lambda s, n: text(s, **{field: n}))(name) for name in (
        "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "top_k")},
    "tools": lambda s, n: chat(s, tools=tools(n)),
    "tools_bytes": tool_bytes,
    "tool_name_bytes": lambda s, n: chat(s, tools=tools(1, name=n)),
    "template_values": lambda s, n: chat(s, chat_template_kwargs={f"k{i}": 1 for i in range(n)}),
    "template_bytes": lambda s, n: chat(s, chat_template_kwargs={"k": "x" * (n - 8)}),
    "message_media_parts": lambda s, n: chat(s, messages=[
        {"role": "user", "content": [{"type": "text", "text": "a"}] + n * [
            {"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}]}]),
    "metadata_pairs": lambda s, n: text(s, metadata={f"k{i}": "v" for i in range(n)}),
    "metadata_value_bytes": lambda s, n: text(s, metadata={"k": "v" * n}),
    "cache_salt_bytes": lambda s, n: text(s, cache_salt="s" * n),
}
# Values that are sent as they are, so that absurd ones can be sent too.
NUMBERS = ("token_id", "n", "best_of", "top_logprobs", "prompt_logprobs", "logit_bias",
           "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
           "repetition_penalty", "top_k")
# At the limit it is the model's context that refuses, not the limit: that is what must be said.
CONTEXT = ("messages", "tools_bytes", "json_values", "tools", "answers", "message_parts",
           "template_bytes")


class Bystander:
    """A stream beside the walk; `gaps` are the seconds between its events."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = {"prompt": "a", "max_tokens": 7000, "ignore_eos": True, "stream": True}
        self.connection.request("POST", TEXT, json.dumps(body),
                                {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        self.gaps, self.ended = [], False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        last = None
        try:
            for line in self.response:
                if line.startswith(b"data: "):
                    now = time.monotonic()
                    if last is not None:
                        self.gaps.append(now - last)
                    last = now
                    self.ended = line.startswith(b"data: [DONE]")
        except (OSError, ValueError, http.client.HTTPException):
            pass

    def stop(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)

    def p99(self):
        gaps = sorted(self.gaps)
        return gaps[int(len(gaps) * 0.99)] if len(gaps) > 20 else None


@pytest.fixture(scope="module")
def walked():
    """A server whose steps take 20 ms, so that a stream lasts as long as the walk."""
    from conftest import running

    with running(step_us=20000, drain_seconds=1) as server:
        yield server


def resident_mib(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


def rows_of(server):
    return server.get("/server_info")[1]["limits"]


def test_every_row_is_walked_or_tested_elsewhere(walked):
    rows = rows_of(walked)
    assert len(rows) > 50
    here = pathlib.Path(__file__).parent
    for row in rows:
        assert (row["name"] in WALKS) != (row["name"] in ELSEWHERE), row
    for named in ELSEWHERE.values():
        path, _, name = named.partition("::")
        source = here / path
        assert f"def {name}(" in source.read_text() if name else source.exists(), named
    assert len({row["name"] for row in rows}) == len(rows)


def walk_all(server):
    """Rows whose answers are not what the table says."""
    wrong = []
    for row in rows_of(server):
        walk = WALKS.get(row["name"])
        if walk is None:
            continue
        value, refusal = row["value"], row["status"]
        at, above = walk(server, value), walk(server, value + 1)
        if row["name"] in CONTEXT and at.is_of_context and not above.is_of_context:
            at = 200
        absurd = [walk(server, number) for number in (*ABSURD, -1)
                  ] if row["name"] in NUMBERS else []
        if row["name"] in ("top_k", "presence_penalty", "frequency_penalty", "logit_bias"):
            absurd.pop()  # -1 means something there
        if at != 200 or above != refusal or any(status != 400 for status in absurd):
            wrong.append((row["name"], at, above, refusal, absurd))
    return wrong


def gap_of(server, during):
    """The 99th percentile of the seconds between a stream's events, while something goes on."""
    server.wait_idle(30)
    stream = Bystander(server)
    during()
    deadline = time.monotonic() + 20
    while len(stream.gaps) <= 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    stream.stop()
    assert len(stream.gaps) > 100
    return stream.p99()


def test_the_walk_gets_what_the_table_says_and_disturbs_nobody(walked):
    before = resident_mib(walked)
    assert walk_all(walked) == [] and walk_all(walked) == []
    ratios = []
    while len(ratios) < 4 and (not ratios or ratios[-1] >= 2):
        # Other processes share the machine: what they disturbed is measured again.
        quiet = gap_of(walked, lambda: time.sleep(2))
        ratios.append(gap_of(walked, lambda: walk_all(walked)) / quiet)
    assert ratios[-1] < 2 or SANITIZED, ratios
    # After hundreds of requests, some of 64 MiB, of which the allocator keeps two or three.
    assert resident_mib(walked) - before < 192 or SANITIZED
    assert walked.get("/health")[0] == 200
