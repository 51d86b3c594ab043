"""Browsers as attackers: pages of other origins, names that resolve to this machine, preflights."""

import http.client
import json
import pathlib
import re
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402

ADMIN_PATHS = ("/pause", "/resume", "/flush_cache", "/pause_generation", "/continue_generation",
               "/abort_request")
TEXT = {"prompt": "Once", "max_tokens": 2}
EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def own():
    """A server without keys and without flags about browsers."""
    with serving() as served:
        yield served


def ask(port, method, path, body=None, **headers):
    """(status, body, headers) of a request with just these headers beside its framing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = b"" if body is None else json.dumps(body).encode()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    sent = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(data))}
    for name, value in {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
        connection.putheader(name, value)
    connection.endheaders(data)
    response = connection.getresponse()
    answer = response.read().decode()
    connection.close()
    return response.status, answer, response.headers


def code_of(answer):
    return json.loads(answer)["error"].get("code")


def test_a_foreign_page_changes_nothing(own):
    foreign = ({"Origin": EVIL}, {"Origin": EVIL, "Sec_Fetch_Site": "cross-site"},
               {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
               {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": "same-site"})
    for headers in foreign:
        for path in ADMIN_PATHS:
            # What a form or fetch() without CORS can send.
            for kind in ({}, {"Content_Type": "text/plain"}):
                status, answer, _ = ask(own.port, "POST", path, **headers, **kind)
                assert status == 403 and code_of(answer) == "origin_not_allowed", (path, headers)
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize"):
            status, answer, shown = ask(own.port, "POST", path, TEXT, **headers)
            assert status == 403, (path, headers, answer)
            assert shown["Access-Control-Allow-Origin"] is None
        assert ask(own.port, "GET", "/health_generate", **headers)[0] == 403
    assert json.loads(ask(own.port, "GET", "/health")[1])["paused"] is False
    status, answer, _ = ask(own.port, "POST", "/v1/messages", TEXT, Origin=EVIL)
    assert status == 403 and json.loads(answer)["error"]["type"] == "permission_error"


def test_the_servers_own_page_and_other_programs_go_on(own):
    page = f"http://127.0.0.1:{own.port}"
    for headers in ({}, {"Origin": page}, {"Origin": page, "Sec_Fetch_Site": "same-origin"},
                    {"Sec_Fetch_Site": "none"}):
        assert ask(own.port, "POST", "/v1/completions", TEXT, **headers)[0] == 200, headers
        for path in ("/pause", "/resume"):
            assert ask(own.port, "POST", path, **headers)[0] == 200, headers
    # A link on another site to the page.
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert ask(own.port, "GET", "/", **link)[0] == 200


def test_a_name_that_was_made_to_resolve_here_is_refused(own):
    for host in ("evil.example", f"evil.example:{own.port}", "127.0.0.1.evil.example", "10.0.0.1"):
        for method, path in (("GET", "/"), ("GET", "/v1/models"), ("GET", "/server_info"),
                             ("POST", "/v1/completions"), ("POST", "/pause")):
            # Such a page is of the same origin as far as the browser knows.
            status, answer, _ = ask(own.port, method, path, TEXT, Host=host,
                                    Origin=f"http://{host}", Sec_Fetch_Site="same-origin")
            assert status == 403 and "--allowed-hosts" in answer, (host, path)
    for host in ("localhost", f"LOCALHOST:{own.port}", "127.0.0.1", "127.8.8.8:80", "[::1]:8000"):
        assert ask(own.port, "GET", "/v1/models", Host=host)[0] == 200, host


def test_names_that_are_allowed_pass_behind_a_proxy():
    with serving("--allowed-hosts", "chat.example,b.example") as served:
        for host in ("chat.example", "B.example:443", "localhost"):
            assert ask(served.port, "GET", "/v1/models", Host=host)[0] == 200
        assert ask(served.port, "GET", "/v1/models", Host="a.chat.example")[0] == 403
        assert ask(served.port, "POST", "/v1/completions", TEXT, Host="chat.example",
                   Origin="https://chat.example")[0] == 200


def test_a_preflight_needs_no_key_and_repeats_what_is_asked_for():
    wanted = "authorization,content-type,x-stainless-lang,anthropic-dangerous-direct-browser-access"
    with serving("--api-key", "key-of-a-user", "--cors-origins", "https://a.example") as served:
        status, _, headers = ask(served.port, "OPTIONS", "/v1/chat/completions",
                                 Origin="https://a.example", Access_Control_Request_Method="POST",
                                 Access_Control_Request_Headers=wanted)
        assert status == 200 and headers["Access-Control-Allow-Headers"] == wanted
        assert headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "POST" in headers["Access-Control-Allow-Methods"]
        status, answer, headers = ask(served.port, "OPTIONS", "/v1/chat/completions", Origin=EVIL,
                                      Access_Control_Request_Method="POST",
                                      Access_Control_Request_Headers=wanted)
        assert status == 403 and code_of(answer) == "origin_not_allowed" and EVIL in answer
        assert headers["Access-Control-Allow-Origin"] is None
        status, _, headers = ask(served.port, "POST", "/v1/completions", TEXT,
                                 Origin="https://a.example", Authorization="Bearer key-of-a-user")
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "X-Request-Id" in headers["Access-Control-Expose-Headers"]


def test_any_page_may_generate_but_not_administer_where_all_origins_may_ask():
    with serving("--cors-origins", "*") as served:
        assert ask(served.port, "POST", "/v1/completions", TEXT, Origin=EVIL)[0] == 200
        assert ask(served.port, "POST", "/pause", Origin=EVIL)[0] == 403


def test_administration_at_a_public_address_needs_a_key_or_the_admin_port():
    with serving("--host", "0.0.0.0") as served:
        for path in ADMIN_PATHS:
            status, answer, _ = ask(served.port, "POST", path, {"rid": "none"})
            assert status == 403 and code_of(answer) == "admin_key_required", path
            assert "--admin-api-key" in answer and "--admin-port" in answer
        assert ask(served.port, "POST", "/v1/completions", TEXT, Host="any.example")[0] == 200
    with serving("--host", "0.0.0.0", "--api-key", "key-of-all") as served:
        for path in ("/pause", "/resume"):
            assert ask(served.port, "POST", path, Authorization="Bearer key-of-all")[0] == 200
    with serving("--host", "0.0.0.0", "--admin-port", "0") as served:
        end = time.monotonic() + 20
        while not (found := re.search(r"administration at port (\d+)", "".join(served.log))):
            assert time.monotonic() < end
        assert ask(served.port, "POST", "/pause")[0] == 404
        assert ask(int(found[1]), "POST", "/flush_cache")[0] == 200
        assert ask(int(found[1]), "POST", "/flush_cache", Origin=EVIL)[0] == 403
        assert ask(int(found[1]), "POST", "/flush_cache", Host="evil.example")[0] == 403


def test_an_origin_that_no_browser_sends_is_a_mistake():
    import os
    import subprocess

    from serving import ROOT
    binary = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))
    for wrong in ("https://a.example/", "a.example", "https://"):
        done = subprocess.run([binary, "serve", "models/braid-tiny", "--port", "0",
                               "--cors-origins", wrong], cwd=ROOT, capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 1 and "scheme://host" in done.stderr
