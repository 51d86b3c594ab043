"""API keys of `braid serve`: who gets in, limits of a key, reading the file again."""

import concurrent.futures
import http.client
import json
import pathlib
import signal
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

ANN, ROOT_KEY, BEN = "key-of-ann-1", "key-of-root-1", "key-of-ben-1"


def ask(port, method, path, key=None, body=None, header="Authorization"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json"}
    if key:
        headers[header] = f"Bearer {key}" if header == "Authorization" else key
    connection.request(method, path, json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    kind = response.headers.get("Content-Type", "")
    return response.status, json.loads(data) if "json" in kind else data, response.headers


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_text(json.dumps({"keys": [
        {"name": "ann", "key": ANN, "requests_max": 1},
        {"name": "root", "key": ROOT_KEY, "admin": True}]}))
    with serving("--api-key-file", str(path), "--login-failures", "0") as served:
        yield served.process, served.port, served.log, path


TEXT = {"prompt": "Once", "max_tokens": 2}


def test_only_keys_open_the_api(keyed):
    _, port, _, _ = keyed
    for path in ("/health", "/ready", "/"):
        assert ask(port, "GET", path)[0] == 200, path
    for method, path in (("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/server_info"),
                         ("GET", "/openapi.json"), ("POST", "/v1/completions"), ("GET", "/nowhere"),
                         ("POST", "/tokenize"), ("POST", "/abort_request")):
        status, error, headers = ask(port, method, path, body=TEXT)
        assert status == 401 and error["error"]["code"] == "invalid_api_key", path
        assert headers["WWW-Authenticate"] == "Bearer"
        assert ask(port, method, path, key=ANN + "x", body=TEXT)[0] == 401
    status, error, _ = ask(port, "POST", "/v1/messages", body=TEXT)
    assert status == 401 and error["error"]["type"] == "authentication_error"
    assert ask(port, "POST", "/v1/completions", ANN, TEXT)[0] == 200
    assert ask(port, "POST", "/v1/completions", ANN, TEXT, header="x-api-key")[0] == 200


def test_only_an_admin_ends_requests_of_others(keyed):
    _, port, _, _ = keyed
    assert ask(port, "POST", "/abort_request", ANN, {"rid": "x"})[0] == 403
    assert ask(port, "POST", "/abort_request", ROOT_KEY, {"rid": "x"})[0] == 200


def test_a_key_has_so_many_requests_at_once(keyed):
    _, port, _, _ = keyed
    long = {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(long),
                       {"Content-Type": "application/json", "Authorization": f"Bearer {ANN}"})
    response = connection.getresponse()
    assert response.readline().startswith(b"data:")
    status, error, headers = ask(port, "POST", "/v1/completions", ANN, TEXT)
    assert status == 429 and error["error"]["type"] == "rate_limit_error"
    assert int(headers["Retry-After"]) >= 1
    assert ask(port, "POST", "/v1/completions", ROOT_KEY, TEXT)[0] == 200, "others are not held up"
    response.close()
    connection.close()
    end = time.monotonic() + 20
    while ask(port, "POST", "/v1/completions", ANN, TEXT)[0] != 200:
        assert time.monotonic() < end, "the place is given back when the client leaves"


def test_what_a_full_queue_refuses_costs_no_tokens(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [
        {"name": "ann", "key": ANN, "tokens_per_minute": 1500},
        {"name": "root", "key": ROOT_KEY, "admin": True}]}))
    flags = ("--memory", "120M", "--max-model-len", "1024", "--kv-dtype", "bf16",
             "--login-failures", "0")
    body = {"prompt": [5] * 900, "max_tokens": 1}
    with serving("--api-key-file", str(path), *flags) as served, \
            concurrent.futures.ThreadPoolExecutor(100) as pool:  # fmt: skip
        info = ask(served.port, "GET", "/server_info", ROOT_KEY)[1]
        most = next(row["value"] for row in info["limits"]
                    if row["name"] == "waiting_prompt_tokens")
        assert ask(served.port, "POST", "/pause", ROOT_KEY, {})[0] == 200
        count = most // 900
        waiting = [pool.submit(ask, served.port, "POST", "/v1/completions", ROOT_KEY, body)
                   for _ in range(count)]
        end = time.monotonic() + 20
        while len(ask(served.port, "GET", "/v1/running", ROOT_KEY)[1]["data"]) < count:
            assert time.monotonic() < end
            time.sleep(0.01)
        for _ in range(3):
            status, error, _ = ask(served.port, "POST", "/v1/completions", ANN, body)
            assert status == 503 and "prompt tokens are waiting" in error["error"]["message"]
        assert ask(served.port, "POST", "/resume", ROOT_KEY)[0] == 200
        assert [answer.result()[0] for answer in waiting] == [200] * count
        assert ask(served.port, "POST", "/v1/completions", ANN, body)[0] == 200


def test_compiling_for_one_tenant_does_not_take_all_threads(keyed):
    """Who has had grammars compiled for seconds waits; others, and known grammars, do not."""
    _, port, _, _ = keyed

    def constrained(key, number):
        schema = {"enum": [f"{number * 7919 + i * 104729:010d}" for i in range(4900)]}
        return ask(port, "POST", "/v1/completions", key, {**TEXT, "guided_json": schema})

    assert constrained(ANN, 0)[0] == 200
    refused = None
    for number in range(1, 2000):
        refused = constrained(ANN, number)
        if refused[0] != 200:
            break
    status, error, headers = refused
    assert status == 429 and error["error"]["code"] == "rate_limit_exceeded", error
    assert "guided_json" in error["error"]["message"] and int(headers["Retry-After"]) >= 1
    assert constrained(ANN, number - 1)[0] == 200
    assert constrained(ROOT_KEY, 1)[0] == 200
    assert ask(port, "POST", "/v1/completions", ANN, TEXT)[0] == 200


def test_tenants_do_not_see_each_others_prefixes(keyed):
    _, port, _, _ = keyed
    body = {"prompt": "The same words again and again. " * 20, "max_tokens": 1}
    cached = [ask(port, "POST", "/v1/completions", key, body)[1]["usage"]["prompt_tokens_details"]
              ["cached_tokens"] for key in (ANN, ANN, ROOT_KEY, ROOT_KEY)]
    assert cached[0] == 0 and cached[1] > 0 and cached[2] == 0 and cached[3] > 0


def test_the_file_is_read_again_on_sighup(keyed):
    process, port, log, path = keyed
    right = path.read_text()
    path.write_text(json.dumps({"keys": [{"name": "ben", "key": BEN, "admin": True}]}))
    process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while ask(port, "GET", "/v1/models", BEN)[0] != 200:
        assert time.monotonic() < end
    assert ask(port, "GET", "/v1/models", ANN)[0] == 401
    path.write_text("{")
    process.send_signal(signal.SIGHUP)
    while not any("stay as they were" in line for line in log):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ask(port, "GET", "/v1/models", BEN)[0] == 200, "a wrong file changes nothing"
    path.write_text(right)
    process.send_signal(signal.SIGHUP)
    while ask(port, "GET", "/v1/models", ANN)[0] != 200:
        assert time.monotonic() < end
    assert not any(key in line for line in log for key in (ANN, BEN, ROOT_KEY))


def test_the_page_says_what_it_may_load(keyed):
    _, port, _, _ = keyed
    headers = ask(port, "GET", "/")[2]
    assert headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_other_origins_may_ask_only_where_they_are_named():
    def origin(port, method, page):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, "/v1/models", headers={
            "Origin": page, "Access-Control-Request-Headers": "authorization"})
        response = connection.getresponse()
        response.read()
        return response.status, response.headers

    with serving("--cors-origins", "https://a.example,https://b.example") as served:
        for page in ("https://a.example", "https://b.example"):
            status, headers = origin(served.port, "GET", page)
            assert status == 200 and headers["Access-Control-Allow-Origin"] == page
            status, headers = origin(served.port, "OPTIONS", page)
            assert status == 200 and "authorization" in headers["Access-Control-Allow-Headers"]
        status, headers = origin(served.port, "GET", "https://c.example")
        assert headers["Access-Control-Allow-Origin"] is None
        assert origin(served.port, "OPTIONS", "https://c.example")[0] == 403


def test_a_wrong_file_is_one_message(tmp_path, braid, tiny):
    path = tmp_path / "keys.json"
    path.write_text('{"keys": [{"name": "a b", "key": "12345678"}]}')
    done = braid("serve", tiny, "--port", "0", "--api-key-file", path)
    assert done.returncode == 1 and "keys[0].name" in done.stderr and "12345678" not in done.stderr


ITEM = {"model": "braid-tiny", "input": "Where is the lamp?", "max_output_tokens": 3}


def test_no_key_reads_continues_or_deletes_what_is_anothers(keyed):
    _, port, _, _ = keyed
    status, made, _ = ask(port, "POST", "/v1/responses", ANN, ITEM)
    assert status == 200 and made["store"] is True
    path = f"/v1/responses/{made['id']}"
    (item,) = ask(port, "GET", f"{path}/input_items", ANN)[1]["data"]
    for other in (ROOT_KEY,):  # an admin's, too
        for method, of in (("GET", path), ("GET", f"{path}/input_items"), ("DELETE", path),
                           ("POST", f"{path}/cancel")):
            assert ask(port, method, of, other)[0] == 404, (method, of)
        for more in ({"previous_response_id": made["id"]},
                     {"input": [{"type": "item_reference", "id": item["id"]}]},
                     {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]}):
            assert ask(port, "POST", "/v1/responses", other, {**ITEM, **more})[0] == 400, more
    assert ask(port, "GET", path)[0] == 401 and ask(port, "DELETE", path)[0] == 401
    assert ask(port, "GET", path, ANN)[0] == 200
    assert ask(port, "POST", "/v1/responses", ANN,
               {**ITEM, "previous_response_id": made["id"]})[0] == 200


def test_stored_responses_have_bounds_of_each_key_and_the_oldest_go(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "ann", "key": ANN},
                                         {"name": "ben", "key": BEN}]}))
    with serving("--api-key-file", str(path), "--stored-responses", "400K") as served:
        def metric(name):
            text = ask(served.port, "GET", "/metrics", ANN)[1].decode()
            line = next(line for line in text.splitlines() if line.startswith(f"braid:{name}{{"))
            return float(line.rsplit(" ", 1)[1])

        def make(key, words, **more):
            return ask(served.port, "POST", "/v1/responses", key,
                       {**ITEM, "input": "word " * words, **more})

        limits = {row["name"]: row["value"]
                  for row in ask(served.port, "GET", "/server_info", ANN)[1]["limits"]}
        assert limits["stored_bytes"] == 400 << 10
        assert limits["stored_bytes_per_key"] == 100 << 10
        of_ben = make(BEN, 100)[1]["id"]
        of_ann = [make(ANN, 4000)[1]["id"] for _ in range(8)]
        found = [ask(served.port, "GET", f"/v1/responses/{made}", ANN)[0] for made in of_ann]
        assert found == [404] * 4 + [200] * 4, "four times 20 KB and a bit"
        assert ask(served.port, "GET", f"/v1/responses/{of_ben}", BEN)[0] == 200
        assert metric("stored_responses") == 5 and metric("stored_response_evictions_total") == 4
        assert 80 << 10 < metric("stored_response_bytes") < 110 << 10
        # What is too large alone: refused where storing was asked for, else the answer says so.
        padded = [{"role": "user", "content": "Hi", "padding": "x" * (60 << 10)}]
        status, error, _ = make(ANN, 1, input=padded, store=True)
        assert status == 400 and error["error"]["param"] == "store"
        status, made, _ = make(ANN, 1, input=padded)
        assert status == 200 and made["store"] is False
        assert ask(served.port, "GET", f"/v1/responses/{made['id']}", ANN)[0] == 404
        for made in of_ann[4:]:
            assert ask(served.port, "DELETE", f"/v1/responses/{made}", ANN)[0] == 200
        assert ask(served.port, "DELETE", f"/v1/responses/{of_ben}", BEN)[0] == 200
        assert metric("stored_responses") == 0 and metric("stored_response_bytes") == 0


def test_an_answer_that_is_too_large_to_be_stored_says_so_and_leaves_the_others():
    with serving("--stored-responses", "6K") as served:
        def there(made):
            return ask(served.port, "GET", f"/v1/responses/{made['id']}")[0]

        small = ask(served.port, "POST", "/v1/responses", None, ITEM)[1]
        assert small["store"] is True and there(small) == 200
        word = ask(served.port, "POST", "/tokenize", None, {"prompt": "the the"})[1]["tokens"][-1]
        long = {**ITEM, "max_output_tokens": 4000, "ignore_eos": True, "temperature": 0,
                "logit_bias": {str(word): 100}}
        made = ask(served.port, "POST", "/v1/responses", None, long)[1]
        assert len(json.dumps(made["output"])) > 6 << 10
        assert made["store"] is False and there(made) == 404
        assert there(small) == 200


def test_nothing_is_stored_where_no_memory_is_given_for_it():
    with serving("--stored-responses", "0") as served:
        made = ask(served.port, "POST", "/v1/responses", None, ITEM)[1]
        assert made["store"] is False
        assert ask(served.port, "GET", f"/v1/responses/{made['id']}")[0] == 404
        status, error, _ = ask(served.port, "POST", "/v1/responses", None, {**ITEM, "store": True})
        assert status == 400 and error["error"]["param"] == "store"
