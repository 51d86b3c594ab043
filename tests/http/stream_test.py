"""Answers as they come: SSE framing, deltas, stops, clients that leave, shutting down."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import threading
import time

import pytest
from conftest import wait_for

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
LONG = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}


def open_stream(server, path, body):
    """(connection, response) of a streamed request that was accepted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, json.dumps({**body, "stream": True}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return connection, response


def events_of(server, path, body):
    """The data of all events of a stream, and a check of its form."""
    connection, response = open_stream(server, path, body)
    with contextlib.closing(connection):
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        raw = response.read().decode()
    blocks = raw.split("\n\n")
    assert blocks.pop() == ""
    data = []
    for block in blocks:
        if not block.startswith(": "):
            assert block.startswith("data: ") and "\n" not in block, block
            data.append(block[6:])
    assert data.pop() == "[DONE]"
    return [json.loads(text) for text in data]


def test_a_chat_stream_has_role_first_finish_last_and_usage_when_asked(server):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "temperature": 0,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    events = events_of(server, CHAT, body)
    *chunks, usage = events
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 9
    assert all(chunk["usage"] is None for chunk in chunks)
    assert {event["id"] for event in events} == {events[0]["id"]}
    assert all(event["object"] == "chat.completion.chunk" for event in events)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant" and deltas[0]["content"] is not None
    assert all("role" not in delta for delta in deltas[1:])
    assert all(None not in delta.values() for delta in deltas)
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + ["length"] and deltas[-1] == {}

    whole = server.post(CHAT, {key: value for key, value in body.items()
                               if key != "stream_options"})[1]
    message = whole["choices"][0]["message"]
    for field in ("content", "reasoning_content", "reasoning"):
        assert "".join(delta.get(field, "") for delta in deltas) == message.get(field, "")
    assert whole["usage"] == usage["usage"]


def test_a_completion_stream_adds_up_to_the_whole(server):
    body = {"prompt": "Once", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 2,
            "echo": True}
    chunks = [event["choices"][0] for event in events_of(server, TEXT, body)]
    whole = server.post(TEXT, body)[1]["choices"][0]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert whole["text"].startswith("Once")
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert sum((chunk["logprobs"][key] for chunk in chunks), []) == whole["logprobs"][key], key
    assert whole["logprobs"]["token_logprobs"][0] is None
    assert len(whole["logprobs"]["tokens"]) == 41
    assert [chunk["finish_reason"] for chunk in chunks][-1] == "length"


def test_text_is_valid_utf8_however_it_is_cut(slow_server):
    # The hash LM throws dice over the vocabulary, so half characters are everywhere.
    body = {"prompt": "x", "max_tokens": 60, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}
    chunks = [event["choices"][0] for event in events_of(slow_server, TEXT, body)]
    ids = sum((chunk["token_ids"] for chunk in chunks), [])
    answer = slow_server.post("/detokenize", {"tokens": ids, "skip_special_tokens": True})[1]
    assert len(ids) == 60 and len(chunks) > 20
    assert "".join(chunk["text"] for chunk in chunks) == answer["prompt"]


def test_n_choices_are_interleaved_with_one_finish_each(server):
    body = {"prompt": "a", "n": 3, "max_tokens": 6, "seed": 5, "temperature": 1, "ignore_eos": True}
    choices = [event["choices"][0] for event in events_of(server, TEXT, body)]
    texts = {i: "".join(c["text"] for c in choices if c["index"] == i) for i in range(3)}
    assert len(set(texts.values())) == 3
    assert sorted(c["index"] for c in choices if c["finish_reason"]) == [0, 1, 2]
    for i in range(3):  # choice i draws as seed + i does alone
        alone = server.post(TEXT, {**body, "n": 1, "seed": 5 + i})[1]["choices"][0]["text"]
        assert alone == texts[i]


def test_without_a_seed_answers_differ(server):
    body = {"prompt": "a", "max_tokens": 8, "temperature": 1, "ignore_eos": True}
    assert len({server.post(TEXT, body)[1]["choices"][0]["text"] for _ in range(4)}) == 4


def test_stop_strings_and_tokens(server):
    body = {"prompt": "stop", "max_tokens": 50, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}
    full = server.post(TEXT, body)[1]["choices"][0]
    word = full["text"][20:24]
    assert "\ufffd" not in word
    cut = full["text"][:full["text"].index(word)]
    stopped = server.post(TEXT, {**body, "stop": ["never this", word]})[1]
    choice = stopped["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (cut, "stop", word)
    assert stopped["usage"]["completion_tokens"] < 50
    streamed = [e["choices"][0] for e in events_of(server, TEXT, {**body, "stop": word})]
    assert "".join(c["text"] for c in streamed) == cut
    shown = server.post(TEXT, {**body, "stop": word, "include_stop_str_in_output": True})[1]
    assert shown["choices"][0]["text"] == cut + word

    token = full["token_ids"][7]
    choice = server.post(TEXT, {**body, "stop_token_ids": [token]})[1]["choices"][0]
    first = full["token_ids"].index(token)
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", token)
    assert choice["token_ids"] == full["token_ids"][:first + 1]
    server.wait_idle()


def test_prompts_in_a_list_are_answered_by_index(server):
    body = {"prompt": ["one", "two"], "n": 2, "max_tokens": 3, "temperature": 0, "echo": True}
    choices = server.post(TEXT, body)[1]["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [choice["text"][:3] for choice in choices] == ["one", "one", "two", "two"]
    ids = [server.post("/tokenize", {"prompt": text})[1]["tokens"] for text in ("one", "two")]
    as_ids = server.post(TEXT, {**body, "prompt": ids})[1]["choices"]
    assert [c["text"] for c in as_ids] == [c["text"] for c in choices]


def test_echo_without_new_tokens_scores_the_prompt(server):
    ids = [10, 20, 30, 40]
    answer = server.post(TEXT, {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 1})[1]
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == 4 and logprobs["token_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert answer["usage"]["completion_tokens"] == 0


def test_prompt_logprobs_are_keyed_by_token(server):
    answer = server.post(TEXT, {"prompt": [10, 20, 30], "max_tokens": 1, "prompt_logprobs": 2})[1]
    rows = answer["choices"][0]["prompt_logprobs"]
    assert rows[0] is None and "20" in rows[1] and "30" in rows[2] and len(rows[1]) == 3


def test_many_prompt_logprobs_are_those_of_few(server):
    """Many become text on another thread."""
    ids = [5 + i % 100 for i in range(300)]

    def asked(prompt, **more):
        return {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 20, **more}

    few = server.post(TEXT, asked(ids[:20]))[1]["choices"][0]["prompt_logprobs"]
    many = server.post(TEXT, asked(ids))[1]["choices"][0]["prompt_logprobs"]
    assert len(few) == 20 and len(many) == 300 and many[:20] == few
    chunks = [chunk["choices"][0] for chunk in events_of(server, TEXT, asked(ids, stream=True))
              if chunk["choices"]]
    assert chunks[0]["prompt_logprobs"] == many
    assert "prompt_logprobs" not in chunks[-1] or len(chunks) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_request_within_a_step(slow_server, stream):
    connection = http.client.HTTPConnection("127.0.0.1", slow_server.port, timeout=60)
    connection.request("POST", TEXT, json.dumps({**LONG, "stream": stream}),
                       {"Content-Type": "application/json"})
    if stream:
        connection.getresponse().read(10)
    wait_for(lambda: slow_server.metric("num_requests_running") == 1)
    steps = slow_server.metric("scheduler_steps_total")
    connection.close()
    if stream:  # the response object held the socket too
        connection.sock = None
    wait_for(lambda: slow_server.metric("num_requests_running") == 0, 2)
    assert slow_server.metric("scheduler_steps_total") - steps <= 3
    assert slow_server.metric("kv_cache_usage_perc") == 0


@pytest.mark.parametrize("leaves", [True, False])
def test_a_response_that_ends_early_is_stored_as_far_as_it_came(slow_server, leaves):
    connection = http.client.HTTPConnection("127.0.0.1", slow_server.port, timeout=60)
    connection.request("POST", "/v1/responses", json.dumps(
        {"input": "a", "max_output_tokens": 4000, "ignore_eos": True}),
        {"Content-Type": "application/json"})

    def running():
        return [r for r in slow_server.get("/v1/running")[1]["data"] if r["output_tokens"] > 20]
    wait_for(running)
    path = f"/v1/responses/{running()[0]['id']}"
    if leaves:
        connection.close()
    else:
        assert slow_server.request("POST", f"{path}/cancel")[0] == 200
        assert connection.getresponse().status == 499
    wait_for(lambda: slow_server.get(path)[1]["status"] != "in_progress")
    stored = slow_server.get(path)[1]
    assert stored["status"] == ("incomplete" if leaves else "cancelled")
    assert stored["usage"]["output_tokens"] > 20
    assert "".join(part["text"] for item in stored["output"] for part in item["content"])
    connection.close()


def test_a_client_that_leaves_while_it_waits_is_forgotten(start_server):
    server = start_server(running=1, step_us=5000, drain_seconds=1)
    first, _ = open_stream(server, TEXT, LONG)
    second, _ = open_stream(server, TEXT, LONG)
    wait_for(lambda: server.metric("num_requests_waiting") == 1)
    second.sock.close()
    second.close()
    del second, _
    wait_for(lambda: server.metric("num_requests_waiting") == 0, 2)
    first.close()


def test_a_full_queue_says_so(start_server):
    server = start_server(running=1, waiting=2, step_us=20000, drain_seconds=1)
    held = [open_stream(server, TEXT, LONG)]
    wait_for(lambda: server.metric("num_requests_running") == 1)
    held += [open_stream(server, TEXT, LONG) for _ in range(2)]
    wait_for(lambda: server.metric("num_requests_waiting") == 2)
    text = server.request("GET", "/metrics")[2].decode()
    for reason, count in (("capacity", 2), ("preempted", 0)):
        row = rf'^braid:num_requests_waiting_by_reason{{.*reason="{reason}".*}} {count}$'
        assert re.search(row, text, re.M), reason
    status, headers, body = server.request("POST", TEXT, LONG)
    assert status == 503 and headers["Retry-After"]
    assert json.loads(body)["error"]["code"] == "overloaded"
    for connection, _ in held:
        connection.close()


def test_heartbeats_keep_a_quiet_stream_alive(start_server):
    server = start_server(heartbeat_seconds=1, step_us=2500000, drain_seconds=1)
    connection, response = open_stream(server, TEXT, {**LONG, "max_tokens": 1})
    with contextlib.closing(connection):
        assert response.readline() == b": ping\n"
        rest = response.read().decode()
    assert rest.endswith("data: [DONE]\n\n")


def test_a_reader_that_stops_reading_is_cut_off(start_server):
    server = start_server(write_seconds_max=1, context=200000, pages=20000)
    body = json.dumps({**LONG, "max_tokens": 130000, "logprobs": 20, "stream": True}).encode()
    with server.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: server.metric("num_requests_running") == 1)
        wait_for(lambda: server.metric("num_requests_running") == 0, 15)
    counted = server.request("GET", "/metrics")[2].decode()
    labels = 'engine="0",finished_reason="abort",model_name="fake"'
    assert f"request_success_total{{{labels}}} 1" in counted


def test_a_request_that_takes_too_long_ends_with_an_error_event(start_server):
    server = start_server(request_seconds_max=1, heartbeat_seconds=1, step_us=5000, drain_seconds=1)
    events = events_of(server, TEXT, LONG)
    assert events[-1]["error"]["code"] == "request_timeout"
    assert events[-2]["choices"][0]["finish_reason"] == "abort"
    status, answer = server.post(TEXT, LONG)
    assert status == 503 and answer["error"]["code"] == "request_timeout"


def test_f9_a_stalled_step_shows_in_health_and_does_not_block_it(start_server):
    server = start_server(step_us=3000000, step_seconds_max=1, drain_seconds=0)
    connection, _ = open_stream(server, TEXT, LONG)
    with contextlib.closing(connection):
        assert server.get("/health")[0] == 200
        wait_for(lambda: server.get("/health")[0] == 503, 5)


def test_f9_a_saturated_server_stays_healthy(start_server):
    server = start_server(running=4, waiting=16, step_us=20000, drain_seconds=0)
    with contextlib.ExitStack() as held:
        for count in range(20):
            held.enter_context(contextlib.closing(open_stream(server, TEXT, LONG)[0]))
            wait_for(lambda: server.metric("num_requests_running") == min(count + 1, 4))
        wait_for(lambda: server.metric("num_requests_waiting") == 16)
        end = time.monotonic() + float(os.environ.get("BRAID_SATURATED_SECONDS", "3"))
        while time.monotonic() < end:
            assert server.request("POST", TEXT, LONG)[0] == 503
            assert server.request("GET", "/health", timeout=1)[0] == 200
        assert server.metric("num_requests_running") == 4


def test_before_the_model_is_ready_only_health_answers(start_server):
    server = start_server(loading_ms=1500)
    assert server.get("/health")[0] == 200
    status, answer = server.get("/ready")
    assert status == 503 and "loading" in answer["error"]["message"]
    assert server.post(TEXT, LONG)[0] == 503
    assert server.request("GET", "/")[0] == 200
    wait_for(lambda: server.get("/ready")[0] == 200, 5)
    assert server.get("/server_info")[1]["fake"] is True
    assert server.get("/version")[1]["version"]


def test_draining_lets_running_answers_finish(start_server):
    server = start_server(step_us=20000, drain_seconds=20)
    _, response = open_stream(server, TEXT, {**LONG, "max_tokens": 50})
    idle = server.connect()
    time.sleep(0.2)  # until it has been accepted
    server.terminate()
    assert idle.recv(10) == b"", "idle connections close"
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    text = response.read()
    assert text.endswith(b"data: [DONE]\n\n") and b'"error":' not in text
    assert server.process.wait(5) == 0


def test_draining_ends_with_an_error_event_at_its_deadline(start_server):
    server = start_server(step_us=20000, drain_seconds=1)
    _, response = open_stream(server, TEXT, LONG)
    server.terminate()
    start = time.monotonic()
    last = response.read().decode().split("\n\n")
    assert 0.5 < time.monotonic() - start < 4
    assert json.loads(last[-3][6:])["error"]["code"] == "shutting_down"
    assert last[-2:] == ["data: [DONE]", ""]
    assert server.process.wait(5) == 0


def refuses(server):
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # as the port closes; the next one says
    return False


def test_a_second_signal_stops_at_once(start_server):
    server = start_server(step_us=20000, drain_seconds=60)
    connection, _ = open_stream(server, TEXT, LONG)
    server.terminate()
    wait_for(lambda: refuses(server))  # the first signal has arrived
    server.terminate()
    assert server.process.wait(3) == 0
    connection.close()


def test_many_streams_at_once_equal_each_alone(server):
    def ask(i):
        body = {"prompt": f"number {i} " * (1 + 7 * (i % 13)), "max_tokens": 20 + i,
                "temperature": 0, "ignore_eos": True}
        return body, "".join(e["choices"][0]["text"] for e in events_of(server, TEXT, body))

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(ask, range(64)))
    for body, text in answers:
        assert server.post(TEXT, body)[1]["choices"][0]["text"] == text


def test_f7_aborts_at_every_moment_leave_nothing_behind(start_server):
    server = start_server(step_us=1000, running=8)

    def leave_after(i):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", TEXT, json.dumps({**LONG, "stream": i % 2 == 0, "n": 1 + i % 3}),
                           {"Content-Type": "application/json"})
        time.sleep(0.003 * (i % 40))
        connection.close()

    threads = [threading.Thread(target=leave_after, args=(i,)) for i in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait_idle(1 if os.environ.get("BRAID_PRESET", "release") == "release" else 10)
    assert server.metric("kv_cache_usage_perc") == 0
    assert server.post(TEXT, {**LONG, "max_tokens": 3})[0] == 200
