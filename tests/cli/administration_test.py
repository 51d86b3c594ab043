"""Administration of `braid serve`: a port and a key of its own, pause and resume, limits of keys,
wrong keys, the log of requests, the watchdog."""

import http.client
import json
import pathlib
import re
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

USER, ADMIN = "key-of-a-user", "key-of-the-admin"
TEXT = {"prompt": "Once", "max_tokens": 2}
LONG = {"prompt": "Once", "max_tokens": 100000, "ignore_eos": True, "stream": True}
ADMIN_PATHS = ("/abort_request", "/flush_cache", "/pause", "/resume", "/pause_generation",
               "/continue_generation")


def ask(port, method, path, key=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    is_json = "json" in response.headers.get("Content-Type", "")
    return response.status, json.loads(data) if is_json else data.decode(), response.headers


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def served():
    with serving("--api-key", USER, "--admin-api-key", ADMIN, "--admin-port", "0",
                 "--login-failures", "20") as instance:
        wait_for(lambda: any("administration at port" in line for line in instance.log))
        line = next(line for line in instance.log if "administration at port" in line)
        instance.admin_port = int(line.split()[-1])
        yield instance


def test_administration_is_at_its_own_port_and_needs_its_own_key(served):
    for path in ADMIN_PATHS:
        body = {"rid": "none"} if path == "/abort_request" else {}
        assert ask(served.port, "POST", path, ADMIN, body)[0] == 404, path
        assert ask(served.admin_port, "POST", path, None, body)[0] == 401, path
        assert ask(served.admin_port, "POST", path, USER, body)[0] == 403, path
        assert ask(served.admin_port, "POST", path, ADMIN, body)[0] == 200, path
    assert ask(served.admin_port, "POST", "/resume", ADMIN)[0] == 200
    assert ask(served.admin_port, "GET", "/metrics", ADMIN)[0] == 200
    assert ask(served.port, "POST", "/v1/completions", USER, TEXT)[0] == 200


def test_nothing_runs_while_paused_and_nothing_is_lost(served):
    first = ask(served.port, "POST", "/v1/completions", USER, {**TEXT, "seed": 3})[1]
    assert ask(served.admin_port, "POST", "/pause", ADMIN)[0] == 200
    assert ask(served.port, "GET", "/health")[1] == {"status": "ok", "paused": True}
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        ask(served.port, "POST", "/v1/completions", USER, {**TEXT, "seed": 3})))
    thread.start()
    wait_for(lambda: ask(served.port, "GET", "/v1/running", USER)[1]["data"])
    time.sleep(0.3)
    assert not answers
    running = ask(served.port, "GET", "/v1/running", USER)[1]["data"]
    assert [entry["phase"] for entry in running] == ["waiting"]
    assert ask(served.admin_port, "POST", "/resume", ADMIN)[0] == 200
    thread.join(30)
    assert answers[0][0] == 200 and answers[0][1]["choices"] == first["choices"]
    assert ask(served.port, "GET", "/health")[1]["paused"] is False


def test_a_pause_may_end_what_runs_first(served):
    stream = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    stream.request("POST", "/v1/completions", json.dumps(LONG),
                   {"Content-Type": "application/json", "Authorization": f"Bearer {USER}"})
    response = stream.getresponse()
    assert response.readline().startswith(b"data: ")
    assert ask(served.admin_port, "POST", "/pause", ADMIN, {"mode": "abort"})[0] == 200
    assert response.read().endswith(b"data: [DONE]\n\n")
    assert ask(served.admin_port, "POST", "/pause", ADMIN, {"mode": "nap"})[0] == 400
    assert ask(served.admin_port, "POST", "/resume", ADMIN)[0] == 200
    assert ask(served.port, "POST", "/v1/completions", USER, TEXT)[0] == 200


def test_running_responses_are_shown_and_can_be_cancelled(served):
    stream = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    body = {"input": "Once", "stream": True, "max_output_tokens": 100000, "ignore_eos": True}
    stream.request("POST", "/v1/responses", json.dumps(body),
                   {"Content-Type": "application/json", "Authorization": f"Bearer {USER}"})
    response = stream.getresponse()
    while not (line := response.readline()).startswith(b"data: "):
        pass
    response_id = json.loads(line[6:])["response"]["id"]
    status, shown, _ = ask(served.port, "GET", f"/v1/responses/{response_id}", USER)
    assert status == 200 and shown["status"] == "in_progress" and shown["id"] == response_id
    status, shown, _ = ask(served.port, "POST", f"/v1/responses/{response_id}/cancel", USER)
    assert status == 200 and shown["status"] == "cancelled"
    response.read()
    path = f"/v1/responses/{response_id}"
    wait_for(lambda: ask(served.port, "GET", path, USER)[1]["status"] == "cancelled")
    assert ask(served.port, "POST", f"{path}/cancel", USER)[0] == 400, "it has ended"
    assert ask(served.port, "POST", f"{path}/cancel", ADMIN)[0] == 404, "it is another key's"
    assert ask(served.port, "POST", "/v1/responses/resp_1/cancel", USER)[0] == 404
    assert ask(served.port, "DELETE", path, ADMIN)[0] == 404
    assert ask(served.port, "DELETE", path, USER)[1]["deleted"] is True
    assert ask(served.port, "DELETE", path, USER)[0] == 404
    assert ask(served.port, "DELETE", "/v1/models", USER)[0] == 405
    refused = ask(served.port, "PUT", path, USER)
    assert refused[0] == 405 and refused[2]["Allow"] == "GET, DELETE"
    assert ask(served.port, "GET", f"/v1/responses/{response_id}/cancel", USER)[0] == 405


def test_an_address_that_tries_keys_is_held_off(served):
    assert ask(served.port, "GET", "/v1/models", USER)[0] == 200
    statuses = [ask(served.port, "GET", "/v1/models", f"wrong-key-{i}")[0] for i in range(40)]
    assert statuses[:20] == [401] * 20 and 429 in statuses[20:]
    status, error, headers = ask(served.port, "GET", "/v1/models", "wrong-key")
    if status == 429:
        assert error["error"]["code"] == "too_many_logins" and int(headers["Retry-After"]) >= 1
    assert ask(served.port, "GET", "/v1/models", USER)[0] == 200, "this address has used it before"
    assert ask(served.port, "GET", "/health")[0] == 200, "what needs no key goes on"


def test_a_key_has_so_many_tokens_a_minute(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [
        {"name": "small", "key": USER, "tokens_per_minute": 40},
        {"name": "large", "key": ADMIN}]}))
    with serving("--api-key-file", str(path)) as served:
        body = {"prompt": [5] * 10, "max_tokens": 20, "ignore_eos": True}
        assert ask(served.port, "POST", "/v1/completions", USER, body)[0] == 200
        assert ask(served.port, "POST", "/v1/completions", USER, body)[0] == 200
        status, error, headers = ask(served.port, "POST", "/v1/completions", USER, body)
        assert status == 429 and error["error"]["code"] == "rate_limit_exceeded"
        assert "40 tokens per minute" in error["error"]["message"]
        # 60 were used of 40, and 10 are wanted: (20 + 10) of 40 a minute
        assert 40 <= int(headers["Retry-After"]) <= 46
        assert ask(served.port, "POST", "/v1/completions", ADMIN, body)[0] == 200


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_request_log_has_a_line_for_each_request_and_no_text(tmp_path, form):
    path = tmp_path / "requests.log"
    flags = ["--request-log", str(path), "--api-key", USER]
    with serving(*flags, *(["--log-json"] if form == "json" else [])) as served:
        secret = "a fox named Finn"
        body = {"messages": [{"role": "user", "content": secret}], "max_tokens": 3}
        assert ask(served.port, "POST", "/v1/chat/completions", USER, body)[0] == 200
        assert ask(served.port, "POST", "/v1/chat/completions", USER, {"messages": 1})[0] == 400
        assert ask(served.port, "GET", "/v1/models", "wrong-key")[0] == 401
        wait_for(lambda: path.read_text().count("\n") == 3)
    text = path.read_text()
    assert secret not in text and USER not in text and "wrong-key" not in text
    if form == "json":
        first, second, third = map(json.loads, text.splitlines())
        assert first["status"] == 200 and first["finish"] == "length"
        assert first["output_tokens"] == 3 and first["tenant"] == "default"
        assert 0 <= first["queue_ms"] <= first["first_token_ms"] <= first["total_ms"]
        assert (second["status"], third["status"]) == (400, 401)
    else:
        assert "finish=length" in text and "status=400" in text and "status=401" in text


def test_metrics_have_vllms_names_where_asked():
    with serving("--metrics-compat", "vllm") as served:
        ask(served.port, "POST", "/v1/completions", body=TEXT)
        text = ask(served.port, "GET", "/metrics")[2] and ask(served.port, "GET", "/metrics")[1]
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                 "num_requests_waiting_by_reason",
                 "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
                 "request_time_per_output_token_seconds_bucket", "e2e_request_latency_seconds_sum",
                 "request_queue_time_seconds_count", "request_prefill_time_seconds_count",
                 "request_decode_time_seconds_count", "request_inference_time_seconds_count",
                 "prompt_tokens_total", "generation_tokens_total", "request_success_total",
                 "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
                 "request_prompt_tokens_bucket", "request_generation_tokens_bucket",
                 "prompt_tokens_by_source_total", "cache_config_info",
                 "corrupted_requests_total", "engine_load_weights_time"):
        assert f"\nvllm:{name}{{" in text and f"\nbraid:{name}{{" in text, name
    line = next(line for line in text.splitlines() if line.startswith("vllm:time_to_first_token"))
    assert 'engine="0"' in line and "model_name=" in line
    setup = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info"))
    assert 'block_size="64"' in setup and 'enable_prefix_caching="True"' in setup
    assert int(re.search(r'num_gpu_blocks="(\d+)"', setup)[1]) > 100
    load = next(line for line in text.splitlines() if line.startswith("vllm:engine_load_w"))
    assert float(load.split()[-1]) > 0


def test_flags_and_variables_of_other_servers_are_understood(braid, tiny):
    done = braid("serve", "--model-path", tiny, "--port", "99999")
    assert done.returncode != 0 and "99999" in done.stderr
    done = braid("serve", tiny, env={"LLAMA_ARG_PORT": "99999"})
    assert done.returncode != 0 and "99999" in done.stderr
