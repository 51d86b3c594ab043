"""Running a router: keys, reload, draining, what it says of itself, and wrong configurations."""

import http.client
import json
import os
import re
import subprocess

import pytest

from conftest import ROOT, wait_for
from failure_test import DIALECTS, begin

TEXT = {"prompt": "Once upon a time", "max_tokens": 4}
LONG = DIALECTS["/v1/completions"]


def key(name):
    return {"headers": {"Authorization": f"Bearer {name}"}}


def test_keys_are_those_of_the_server(start_router, engine, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "ann", "key": "key-of-ann", "requests_max": 1},
                                         {"name": "root", "key": "key-of-root", "admin": True}]}))
    # The engine has no keys of its own here: the router alone decides.
    router = start_router({"a": engine.port}, "--api-key-file", str(keys), ready=False)
    wait_for(lambda: router.get("/ready")[0] == 200)
    assert not any("--login-failures 0" in line for line in router.log)
    assert router.post("/v1/completions", TEXT)[0] == 401
    assert router.post("/v1/completions", TEXT, **key("wrong-key"))[0] == 401
    assert router.post("/v1/completions", TEXT, **key("key-of-ann"))[0] == 200
    assert router.request("GET", "/nothing")[0] == 401
    assert router.request("GET", "/engines", **key("key-of-ann"))[0] == 403
    assert router.request("POST", "/reload", **key("key-of-ann"))[0] == 403
    assert router.request("GET", "/engines", **key("key-of-root"))[0] == 200
    assert router.request("GET", "/health")[0] == 200
    connection, response, _ = begin(router, "/v1/completions", LONG, key("key-of-ann")["headers"])
    status, error = router.post("/v1/completions", TEXT, **key("key-of-ann"))
    assert status == 429 and error["error"]["code"] == "rate_limit_exceeded"
    assert router.post("/v1/completions", TEXT, **key("key-of-root"))[0] == 200
    response.close()
    connection.close()
    wait_for(lambda: router.post("/v1/completions", TEXT, **key("key-of-ann"))[0] == 200)
    keys.write_text(json.dumps({"keys": [{"name": "bob", "key": "key-of-bob"}]}))
    router.hang_up()
    wait_for(lambda: router.post("/v1/completions", TEXT, **key("key-of-bob"))[0] == 200)
    assert router.post("/v1/completions", TEXT, **key("key-of-ann"))[0] == 401


def test_a_router_without_keys_says_what_engines_count(start_router, engine):
    router = start_router({"a": engine.port})
    wait_for(lambda: any("--login-failures 0" in line for line in router.log))


def test_the_keys_of_a_name_have_the_same_limits(tmp_path):
    keys, config = tmp_path / "keys.json", tmp_path / "router.json"
    keys.write_text(json.dumps({"keys": [
        {"name": "default", "key": "key-of-default", "tokens_per_minute": 60}]}))
    config.write_text(json.dumps({"engines": [], "registration": True}))
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    done = subprocess.run([binary, "router", str(config), "--port", "0", "--api-key", "other-key",
                           "--api-key-file", str(keys)], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 1
    assert "the keys of default have different limits" in done.stderr
    assert "tokens_per_minute 60 and 0" in done.stderr


def test_pages_of_other_origins_are_refused(start_router, engine):
    router = start_router({"a": engine.port}, "--cors-origins", "https://a.example")
    def send(origin):
        return router.request("POST", "/v1/completions", TEXT, headers={"Origin": origin})
    assert send("https://b.example")[0] == 403
    status, headers, _ = send("https://a.example")
    assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert router.request("GET", "/v1/models", headers={"Host": "evil.example"})[0] == 403


def test_administration_has_its_own_port_if_it_is_asked_for(start_router, engine):
    router = start_router({"a": engine.port}, "--admin-port", "0", ready=False)
    assert router.request("GET", "/engines")[0] == 404
    wait_for(lambda: any("administration at port" in line for line in router.log))
    port = int(next(line for line in router.log if "administration" in line).split()[-1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/engines")
    assert json.loads(connection.getresponse().read())["data"][0]["name"] == "a"
    connection.close()


@pytest.mark.parametrize("how", ["signal", "route"])
def test_a_reload_drops_no_stream(start_router, start_engine, how):
    old, new = start_engine(step_us=5000), start_engine()
    router = start_router({"old": old.port})
    body = {**LONG, "max_tokens": 200}
    connection, response, first = begin(router, "/v1/completions", body)
    router.write({"new": new.port})
    if how == "signal":
        router.hang_up()
    else:
        assert router.post("/reload", None)[0] == 200
    wait_for(lambda: router.engines().get("new", {}).get("state") == "ready")
    assert router.engines()["old"]["removed"]
    assert router.post("/v1/completions", TEXT)[0] == 200
    assert new.metric("request_success_total") == 1
    text = first + response.read()
    assert text.endswith(b"data: [DONE]\n\n") and b'"error":' not in text
    assert text.count(b"data: ") > 150
    connection.close()
    wait_for(lambda: list(router.engines()) == ["new"])


def test_a_wrong_file_changes_nothing(start_router, engine):
    router = start_router({"a": engine.port})
    router.file.write_text('{"engines": [{"name": "a", "url": "http://x"}]}')
    status, error = router.post("/reload", None)
    assert status == 400 and "engines[0].url" in error["error"]["message"]
    assert router.post("/v1/completions", TEXT)[0] == 200
    router.file.unlink()
    assert router.post("/reload", None)[0] in (404, 500)
    assert router.state("a") == "ready"


def test_an_engine_can_be_drained(start_router, start_engine):
    engines = {name: start_engine(step_us=2000) for name in "ab"}
    router = start_router({name: one.port for name, one in engines.items()}, policy="round_robin")
    streams = [begin(router, "/v1/completions", {**LONG, "max_tokens": 700}) for _ in range(2)]
    assert router.post("/engines/a/drain", None)[0] == 200
    assert router.engines()["a"]["draining"]
    for _ in range(4):
        assert router.post("/v1/completions", TEXT)[0] == 200
    assert engines["a"].metric("request_success_total") == 0
    for connection, response, _ in streams:
        text = response.read()
        assert text.endswith(b"data: [DONE]\n\n") and b'"error":' not in text
        connection.close()
    assert router.post("/engines/a/resume", None)[0] == 200
    for _ in range(2):
        router.post("/v1/completions", TEXT)
    assert engines["a"].metric("request_success_total") >= 2
    assert router.post("/engines/x/drain", None)[0] == 404
    status, error = router.get("/engines/a/drain")
    assert status == 405


def test_an_engine_that_drains_itself_gets_nothing_new(start_router, start_engine):
    one, other = start_engine(step_us=3000, drain_seconds=10), start_engine()
    router = start_router({"one": one.port, "other": other.port}, policy="round_robin")
    streams = [begin(router, "/v1/completions", {**LONG, "max_tokens": 300}) for _ in range(2)]
    one.terminate()
    for _ in range(20):
        assert router.post("/v1/completions", TEXT)[0] == 200
    for connection, response, first in streams:
        text = response.read()
        assert text.endswith(b"data: [DONE]\n\n") and b'"error":' not in text
        connection.close()
    assert one.process.wait(20) == 0


def test_sigterm_drains_the_router(start_router, start_engine):
    engine = start_engine(step_us=3000)
    router = start_router({"a": engine.port})
    connection, response, first = begin(router, "/v1/completions", {**LONG, "max_tokens": 100})
    router.terminate()
    text = response.read()
    assert text.endswith(b"data: [DONE]\n\n") and b'"error":' not in text
    connection.close()
    assert router.process.wait(20) == 0


def test_a_drain_that_takes_too_long_ends_streams_with_an_error(start_router, start_engine):
    engine = start_engine(step_us=3000)
    router = start_router({"a": engine.port}, "--drain-seconds", "1")
    connection, response, first = begin(router, "/v1/completions", LONG)
    router.terminate()
    text = response.read()
    assert b"shutting_down" in text and text.endswith(b"data: [DONE]\n\n")
    connection.close()
    assert router.process.wait(20) == 0
    wait_for(lambda: engine.metric("num_requests_running") == 0)


def test_a_second_signal_stops_at_once(start_router, start_engine):
    engine = start_engine(step_us=3000)
    router = start_router({"a": engine.port})
    connection, response, first = begin(router, "/v1/completions", LONG)
    router.terminate()
    wait_for(lambda: any("draining" in line for line in router.log))
    router.terminate()
    assert router.process.wait(10) == 0
    connection.close()


def test_what_concerns_one_engine_is_not_passed_on(start_router, engine):
    router = start_router({"a": engine.port})
    for method, path in [("POST", "/flush_cache"), ("POST", "/pause"), ("GET", "/v1/running"),
                         ("GET", "/v1/loads"), ("GET", "/v1/expert_load")]:
        status, error = router.get(path) if method == "GET" else router.post(path, None)
        assert status == 404 and "that engine" in error["error"]["message"], path
    status, error = router.get("/v1/embeddings")
    assert status == 404 and "embeddings" in error["error"]["message"]
    assert router.get("/v1/completions")[0] == 405
    assert router.get("/version")[0] == 200


def test_metrics_and_the_request_log_count_requests(start_router, engine, tmp_path):
    log = tmp_path / "requests.log"
    router = start_router({"a": engine.port}, "--request-log", str(log), "--log-json")
    for _ in range(3):
        router.post("/v1/completions", TEXT)
    router.post("/v1/completions", {"prompt": 7})
    assert router.metric("router_requests_total") == 4
    assert router.metric("router_first_byte_seconds_count") == 4
    assert router.metric("router_engine_ready") == 1
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= 4)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    posts = [line for line in lines if line["path"] == "/v1/completions"]
    assert [line["status"] for line in posts] == [200, 200, 200, 400]


@pytest.mark.parametrize("text,message", [
    ("{", "router.json"), ('{"engines": []}', "engines: must be a list of at least one engine"),
    ('{"engines": [{"name": "a", "url": "https://a:1"}]}', "https:// is not supported"),
    ('{"engines": [{"name": "a", "url": "http://a:1"}], "policy": 1}', "one of prefix"),
])
def test_a_wrong_configuration_is_an_error_that_names_it(tmp_path, text, message):
    file = tmp_path / "router.json"
    file.write_text(text)
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    ended = subprocess.run([binary, "router", str(file), "--port", "0"], capture_output=True,
                           text=True, timeout=60, check=False)
    assert ended.returncode == 1 and message in ended.stderr and not ended.stdout


def check_router_starts(engines, words):
    """The router understands the words of an example, whose file of engines is `engines`."""
    words = [str(engines), *words[1:]]
    words[words.index("--port") + 1] = "0"
    words[words.index("--host") + 1] = "127.0.0.1"
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    process = subprocess.Popen([binary, "router", *words], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    assert process.stdout.readline().startswith("listening on ")
    process.terminate()
    assert process.wait(30) == 0


def test_the_compose_example_is_a_configuration():
    compose = (ROOT / "deploy/compose/compose.yaml").read_text()
    command = re.search(r'command: \["router", (.*)\]', compose)[1]
    words = json.loads(f"[{command}]")
    check_router_starts(ROOT / "deploy/compose/engines.json", words)
    engines = json.loads((ROOT / "deploy/compose/engines.json").read_text())["engines"]
    for engine in engines:
        host, port = re.fullmatch(r"http://([\w-]+):(\d+)", engine["url"]).groups()
        assert f"\n  {host}:" in compose and f'"--port", "{port}"' in compose


def words_of(arguments):
    """Of a YAML list in one pair of brackets."""
    return [word.strip().strip('"') for word in arguments.replace("\n", " ").split(",")]


def test_the_kubernetes_example_is_a_configuration(tmp_path):
    fleet = (ROOT / "deploy/kubernetes/fleet.yaml").read_text()
    listed = re.search(r"  engines\.json: \|\n((?:    .*\n)+)", fleet)[1]
    file = tmp_path / "engines.json"
    file.write_text(listed)
    words = words_of(re.search(r"args: \[router, ([^\]]+)\]", fleet)[1])
    assert words[0] == "/etc/braid/engines.json" and "mountPath: /etc/braid" in fleet
    check_router_starts(file, words)
    # Each pod of the set by its name, at the port that it serves.
    serve = words_of(re.search(r"args: \[serve, ([^\]]+)\]", fleet)[1])
    port = serve[serve.index("--port") + 1]
    engines = json.loads(listed)["engines"]
    pods = int(re.search(r"kind: StatefulSet.*?replicas: (\d+)", fleet, re.S)[1])
    assert [engine["url"] for engine in engines] == [
        f"http://braid-engine-{i}.braid-engine:{port}" for i in range(pods)]
    assert f"containerPort: {port}" in fleet and "serviceName: braid-engine\n" in fleet


def test_a_gateway_asks_which_engine_to_use(start_router, start_engine, tmp_path):
    engines = {name: start_engine() for name in "ab"}
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "ann", "key": "key-of-ann", "admin": True}]}))
    router = start_router({name: one.port for name, one in engines.items()}, "--api-key-file",
                          str(keys), ready=False)

    def both_ready():  # the router itself is with the first
        listed = router.request("GET", "/engines", None, **key("key-of-ann"))[2]
        return all(engine["state"] == "ready" for engine in json.loads(listed)["data"])
    wait_for(both_ready, 30)
    long = {"prompt": "Once upon a time " * 100, "max_tokens": 2}

    def ask(path, body=None, method="POST"):
        status, headers, data = router.request(method, path, body, **key("key-of-ann"))
        return status, headers["x-gateway-destination-endpoint"], json.loads(data)
    status, at, first = ask("/route/v1/completions", long)
    assert status == 200 and first["reason"] == "load" and first["reused_tokens"] == 0
    assert at == f"127.0.0.1:{engines[first['engine']].port}" and first["url"] == f"http://{at}"
    # What was told counts as sent, to those that ask and to those that send.
    for _ in range(2):
        status, again, answer = ask("/route/v1/completions", long)
        assert (again, answer["reason"]) == (at, "prefix") and answer["reused_tokens"] > 300
    assert router.post("/v1/completions", long, **key("key-of-ann"))[0] == 200
    assert engines[first["engine"]].metric("request_success_total") == 1
    # A gateway may bound the choice.
    places = {f"127.0.0.1:{one.port}" for one in engines.values()}
    other, = places - {at}
    assert first["fallbacks"] == [other]
    for subset, chosen in [(other, other), (f"{at},10.0.0.1:80", at), ("10.0.0.1:80", None)]:
        status, headers, _ = router.request(
            "POST", "/route/v1/completions", long,
            {**key("key-of-ann")["headers"], "x-gateway-destination-endpoint-subset": subset})
        assert status == (200 if chosen else 503)
        assert headers["x-gateway-destination-endpoint"] == chosen
    assert ask("/route/v1/models", method="GET")[0] == 200
    for path, status in [("/route/v1/completions", 405), ("/route/v1/nothing", 404),
                         ("/route/v1/loads", 404), ("/route/flush_cache", 404), ("/route/", 404)]:
        assert ask(path, method="GET")[0] == status, path
    assert router.post("/route/v1/completions", long)[0] == 401
    for one in engines.values():
        one.process.kill()
    wait_for(lambda: ask("/route/v1/completions", long)[0] == 503, 30)
