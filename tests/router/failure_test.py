"""Engines that fail: before the first byte another one answers, after it the stream says so."""

import http.client
import json
import signal
import threading
import time

import pytest

from conftest import wait_for

TEXT = {"prompt": "Once upon a time", "max_tokens": 8, "seed": 5}
LONG = {"max_tokens": 4000, "ignore_eos": True, "stream": True}
DIALECTS = {
    "/v1/completions": {"prompt": "Once", **LONG},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Once"}], **LONG},
    "/v1/messages": {"messages": [{"role": "user", "content": "Once"}], **LONG},
    "/v1/responses": {"input": "Once", "max_output_tokens": 4000, "ignore_eos": True,
                      "stream": True},
}


def begin(router, path, body, headers=None):
    """A stream of which the first event has come."""
    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=30)
    connection.request("POST", path, json.dumps(body),
                       {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    first = response.readline()
    return connection, response, first


def events_of(text):
    """Name (None where the API has none) and data of each event."""
    events = [event for event in text.decode().split("\n\n") if "data: {" in event]
    lines = [dict(line.split(": ", 1) for line in event.split("\n")) for event in events]
    return [(event.get("event"), json.loads(event["data"])) for event in lines]


def cut_stream(connection, head, body):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                       b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n8\r\ndata: 2\n\r\n")
    return False


def hang_up(connection, head, body):
    return False


def refuse(connection, head, body):
    connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n"
                       b"Retry-After: 7\r\n\r\n{}")
    return True


def ping(connection, head, body):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                       b"Transfer-Encoding: chunked\r\n\r\n8\r\n: ping\n\n\r\n")
    time.sleep(0.2)
    return False


def lack(connection, head, body):
    error = b'{"error": {"message": "no", "code": "previous_response_not_found"}}'
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(error)
                       + error)
    return True


def in_turns(*behaviours):
    """What engines do that share this: the first that is asked the first, the next the second."""
    asked = []

    def behave(connection, head, body):
        asked.append(head)
        return behaviours[(len(asked) - 1) % len(behaviours)](connection, head, body)
    return behave


@pytest.mark.parametrize("path", DIALECTS)
def test_a_killed_engines_streams_end_with_an_error_of_their_api(start_router, start_engine, path):
    engine = start_engine(step_us=5000)
    router = start_router({"a": engine.port})
    connection, response, first = begin(router, path, DIALECTS[path])
    engine.process.kill()
    events = events_of(first + response.read())
    name, error = events[-1]
    text = json.dumps(error)
    assert "engine a was lost while it answered" in text
    if path == "/v1/messages":
        assert name == "error" and error["type"] == "error"
        assert error["error"]["type"] == "api_error"
    elif path == "/v1/responses":
        assert name == "error" and error["type"] == "error"
        assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    else:
        assert error["error"]["type"] == "server_error" and error["error"]["code"] == "engine_lost"
    connection.close()
    wait_for(lambda: router.state("a") == "lost")
    assert router.metric("router_broken_streams_total") == 1
    status, error = router.post("/v1/completions", TEXT)
    assert status == 503 and "a: " in error["error"]["message"]
    assert router.get("/ready")[0] == 503 and router.get("/health")[0] == 200


def test_half_an_event_is_never_given(start_router, bad_engine):
    router = start_router({"a": bad_engine(cut_stream).port})
    text = router.request("POST", "/v1/completions", {**TEXT, "stream": True})[2].decode()
    assert text.startswith("data: 1\n\ndata: {") and "data: 2" not in text
    assert text.endswith("data: [DONE]\n\n")


def test_an_answer_that_does_not_stream_breaks_off_as_it_did(start_router, bad_engine):
    def half(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":")
        return False
    router = start_router({"a": bad_engine(half).port})
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        router.request("POST", "/v1/completions", TEXT)


@pytest.mark.parametrize("behave", [hang_up, refuse])
def test_before_the_first_byte_another_engine_answers(start_router, bad_engine, engine, behave):
    bad = bad_engine(behave)
    router = start_router({"bad": bad.port, "good": engine.port}, policy="round_robin")
    for _ in range(6):
        assert router.post("/v1/completions", TEXT)[0] == 200
    assert len(bad.requests) >= 2
    assert router.metric("router_retries_total") == len(bad.requests)


def test_comments_are_no_first_byte(start_router, bad_engine, engine):
    bad = bad_engine(ping)
    router = start_router({"bad": bad.port, "good": engine.port}, policy="round_robin")
    for _ in range(2):
        text = router.request("POST", "/v1/completions", {**TEXT, "stream": True})[2].decode()
        assert text.endswith("data: [DONE]\n\n") and "error" not in text
    assert len(bad.requests) == 2


def test_a_refusal_behind_comments_ends_the_stream_with_an_error(start_router, bad_engine):
    behave = in_turns(ping, refuse)
    router = start_router({name: bad_engine(behave).port for name in "ab"})
    for _ in range(3):
        text = router.request("POST", "/v1/completions", {**TEXT, "stream": True})[2].decode()
        assert text.startswith(": ping\n\ndata: {") and text.endswith("data: [DONE]\n\n")
        assert " answered 503" in text and "engine_lost" in text
    assert router.metric("router_broken_streams_total") == 3


@pytest.mark.parametrize(("second", "more"), [(refuse, {}), (lack, {"previous_response_id": "r"})])
def test_behind_comments_an_engine_that_cannot_answer_is_not_the_last(start_router, bad_engine,
                                                                      second, more):
    def good(connection, head, body):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Content-Length: 12\r\n\r\ndata: good\n\n")
        return True
    behave = in_turns(ping, second, good)
    router = start_router({name: bad_engine(behave).port for name in "abc"})
    for _ in range(3):
        text = router.request("POST", "/v1/responses", {"input": "a", "stream": True, **more})[2]
        assert text == b": ping\n\ndata: good\n\n"
    assert router.metric("router_broken_streams_total") == 0


def test_the_last_refusal_is_passed_on(start_router, bad_engine):
    router = start_router({"a": bad_engine(refuse).port, "b": bad_engine(refuse).port})
    status, headers, body = router.request("POST", "/v1/completions", TEXT)
    assert (status, headers["Retry-After"], body) == (503, "7", b"{}")


def test_what_a_busy_engine_may_have_stored_is_not_said_to_be_unknown(start_router, bad_engine,
                                                                       engine):
    busy = bad_engine(refuse)
    router = start_router({"busy": busy.port, "good": engine.port}, policy="round_robin")
    body = {"input": "a", "previous_response_id": "resp_x"}
    for _ in range(4):
        assert router.post("/v1/responses", body)[0] == 503
        assert router.get("/v1/responses/resp_x")[0] == 503
    assert len(busy.requests) == 8
    # Without it, the others' word is final.
    router = start_router({"good": engine.port}, policy="round_robin")
    assert router.post("/v1/responses", body)[0] == 400
    assert router.get("/v1/responses/resp_x")[0] == 404


def begin_only(connection, head, body):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    return False


@pytest.mark.parametrize("behave", [hang_up, begin_only])
def test_what_an_engine_that_breaks_off_may_have_stored_is_not_said_to_be_unknown(
        start_router, bad_engine, engine, behave):
    bad = bad_engine(behave)
    router = start_router({"bad": bad.port, "good": engine.port}, policy="round_robin")
    for _ in range(8):  # the way to it is closed after three failures
        status, _ = router.post("/v1/responses", {"input": "a", "previous_response_id": "resp_x"})
        assert status in (502, 503)
    assert len(bad.requests) >= 3


def test_behind_comments_what_a_lost_engine_may_have_stored_is_not_said_to_be_unknown(
        start_router, bad_engine, engine):
    router = start_router({"bad": bad_engine(ping).port, "good": engine.port}, policy="round_robin")
    for _ in range(4):
        text = router.request("POST", "/v1/responses", {
            "input": "a", "stream": True, "previous_response_id": "resp_x"})[2]
        assert text.startswith(b": ping\n\nevent: error\n")
        assert b"was lost" in text or b"may have it" in text


def test_a_busy_engine_that_has_a_response_answers_itself(start_router, bad_engine, engine):
    def once(connection, head, body):
        if len(home.requests) > 1:
            return refuse(connection, head, body)
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{"id":"resp_home1"}')
        return True
    home = bad_engine(once)
    router = start_router({"home": home.port})
    assert router.post("/v1/responses", {"input": "a"})[1]["id"] == "resp_home1"
    router.write({"home": home.port, "good": engine.port})
    assert router.request("POST", "/reload")[0] == 200
    wait_for(lambda: router.engines().get("good", {}).get("state") == "ready")
    status, headers, body = router.request("POST", "/v1/responses", {
        "input": "a", "previous_response_id": "resp_home1"})
    assert (status, headers["Retry-After"], body) == (503, "7", b"{}")
    assert router.metric("router_retries_total") == 0


@pytest.mark.parametrize("whole", [True, False])
def test_other_errors_of_requests_for_what_is_stored_are_final(start_router, bad_engine, whole):
    error = json.dumps({"error": {"message": "no", "type": "invalid_request_error",
                                  "param": "temperature", "code": None}}).encode()
    error += b" " * (0 if whole else 40_000)

    def wrong(connection, head, body):
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nX-Own: 1\r\nContent-Length: %d\r\n\r\n"
                           % len(error))
        for at in range(0, len(error), 50):
            connection.sendall(error[at:at + 50])
        return True
    router = start_router({"a": bad_engine(wrong).port, "b": bad_engine(wrong).port})
    status, headers, body = router.request("POST", "/v1/responses", {
        "temperature": 99, "input": "a", "previous_response_id": "resp_x"})
    assert (status, headers["X-Own"], body) == (400, "1", error)
    assert router.metric("router_retries_total") == 0


def test_a_request_is_tried_at_so_many_engines(start_router, bad_engine):
    bad = [bad_engine(hang_up) for _ in range(4)]
    router = start_router({str(i): one.port for i, one in enumerate(bad)}, attempts=2)
    status, error = router.post("/v1/completions", TEXT)
    assert status == 502 and error["error"]["code"] == "engine_lost"
    assert sum(len(one.requests) for one in bad) == 2


def test_an_engine_whose_connections_fail_is_left_alone_for_a_while(start_router, bad_engine,
                                                                    engine):
    bad = bad_engine(hang_up)
    router = start_router({"bad": bad.port, "good": engine.port}, policy="round_robin")
    for _ in range(12):
        assert router.post("/v1/completions", TEXT)[0] == 200
    assert len(bad.requests) == 3 and router.engines()["bad"]["breaker_open"]
    wait_for(lambda: router.post("/v1/completions", TEXT)[0] == 200 and len(bad.requests) > 3, 10)


def test_a_client_that_leaves_ends_its_request(start_router, start_engine):
    engine = start_engine(step_us=5000)
    router = start_router({"a": engine.port})
    streams = [begin(router, "/v1/completions", DIALECTS["/v1/completions"]) for _ in range(3)]
    wait_for(lambda: engine.metric("num_requests_running") == 3)
    for connection, response, _ in streams:
        response.close()
        connection.close()
    wait_for(lambda: engine.metric("num_requests_running") == 0)
    wait_for(lambda: router.engines()["a"]["requests"] == 0)
    # One that waits for an answer that does not stream, too.
    with router.connect() as connection:
        body = json.dumps({**DIALECTS["/v1/completions"], "stream": False}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: engine.metric("num_requests_running") == 1)
    wait_for(lambda: engine.metric("num_requests_running") == 0)
    assert router.metric("router_broken_streams_total") == 0


def test_an_engine_that_stands_still_is_lost_and_comes_back(start_router, start_engine):
    still, other = start_engine(step_us=2000), start_engine(step_us=2000)
    router = start_router({"still": still.port, "other": other.port}, policy="round_robin",
                          lease_ms=600)
    streams = [begin(router, "/v1/completions", DIALECTS["/v1/completions"]) for _ in range(2)]
    still.process.send_signal(signal.SIGSTOP)
    try:
        # Without a first byte: sent to the one that stands still, answered by the other.
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(
            router.post("/v1/completions", TEXT)[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert answers == [200] * 4
        wait_for(lambda: router.state("still") == "lost")
    finally:
        still.process.send_signal(signal.SIGCONT)
    wait_for(lambda: router.state("still") == "ready")
    wait_for(lambda: router.metric("router_broken_streams_total") == 1)
    for connection, response, _ in streams:
        response.close()
        connection.close()


def test_an_engine_killed_under_load_loses_no_request_without_a_first_byte(start_router,
                                                                           start_engine):
    engines = {name: start_engine(step_us=1000) for name in "abc"}
    router = start_router({name: one.port for name, one in engines.items()})
    whole, broken, failed = [], [], []

    def work(number):
        for turn in range(15):
            body = {"prompt": f"{number} {turn} Once", "max_tokens": 20, "ignore_eos": True,
                    "stream": True, "stream_options": {"include_usage": True}}
            try:
                status, _, text = router.request("POST", "/v1/completions", body)
            except (OSError, http.client.HTTPException) as error:
                failed.append(repr(error))
                continue
            if status != 200 or b"[DONE]" not in text:
                failed.append((status, text))
            else:
                (broken if b"engine_lost" in text else whole).append(text)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    engines["b"].process.kill()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert len(whole) + len(broken) == 180 and len(broken) <= 12
    for text in whole:  # a busy machine sends all of them in one piece
        assert b'"completion_tokens":20' in text
    assert router.state("b") == "lost"
