"""Keys without administrator's rights see and end their own requests and nobody else's."""

import contextlib
import http.client
import json
import pathlib
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

ANN, BEN, ROOT_KEY = "key-of-ann-1", "key-of-ben-1", "key-of-root-1"


def ask(port, method, path, key):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_text(json.dumps({"keys": [
        {"name": "ann", "key": ANN}, {"name": "ben", "key": BEN},
        {"name": "root", "key": ROOT_KEY, "admin": True}]}))
    with serving("--api-key-file", str(path)) as served:
        yield served.port


@contextlib.contextmanager
def anns_response(port):
    """Ann streams a response that runs on; gives its id."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"input": "Count.", "max_output_tokens": 3900, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/responses", json.dumps(body),
                       {"Content-Type": "application/json", "Authorization": f"Bearer {ANN}"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    line = b""
    while not line.startswith(b"data:"):
        line = response.readline()
    try:
        yield json.loads(line[5:])["response"]["id"], response
    finally:
        response.close()
        connection.close()


def running(port, key):
    status, answer = ask(port, "GET", "/v1/running", key)
    assert status == 200
    return [entry["id"] for entry in answer["data"]]


def test_a_key_lists_its_own_requests_only(port):
    with anns_response(port):
        assert len(running(port, ANN)) == 1
        assert running(port, BEN) == []
        assert running(port, ROOT_KEY) == running(port, ANN)


def test_a_key_reads_and_cancels_its_own_responses_only(port):
    with anns_response(port) as (name, stream):
        assert ask(port, "GET", f"/v1/responses/{name}", BEN)[0] == 404
        assert ask(port, "POST", f"/v1/responses/{name}/cancel", BEN)[0] == 404
        assert len(running(port, ANN)) == 1, "it runs on"
        status, answer = ask(port, "GET", f"/v1/responses/{name}", ANN)
        assert status == 200 and answer["status"] == "in_progress"
        assert ask(port, "POST", f"/v1/responses/{name}/cancel", ANN)[0] == 200
        stream.read()
        end = time.monotonic() + 20
        while running(port, ANN):
            assert time.monotonic() < end


def test_an_administrator_cancels_everybodys(port):
    with anns_response(port) as (name, stream):
        assert ask(port, "GET", f"/v1/responses/{name}", ROOT_KEY)[0] == 200
        assert ask(port, "POST", f"/v1/responses/{name}/cancel", ROOT_KEY)[0] == 200
        stream.read()
