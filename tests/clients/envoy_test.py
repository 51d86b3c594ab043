"""Envoy as the guide configures it: it asks the router which engine a request goes to, and sends it
there itself."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request

from serving import ROOT, serving

FLAGS = ["--threads", "1", "--memory", "300M"]
ENVOY = """
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
HttpConnectionManager
          stat_prefix: api
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: "/"}, route: {cluster: engines, timeout: 0s}}]
          http_filters:
FILTER
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
CLUSTER
  - name: braid_router
    type: STATIC
    load_assignment:
      cluster_name: braid_router
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ROUTER}}}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def configuration(port, router):
    """The guide's two entries, a filter and a cluster, in a whole configuration."""
    guide = (ROOT / "docs/guides/router.md").read_text()
    entries, = re.findall(r"```\n(- name: envoy\.filters\.http\.ext_authz\n.*?)```", guide, re.S)
    of_filter, of_cluster = entries.split("\n\n")
    text = ENVOY.replace("FILTER", textwrap.indent(of_filter, " " * 10))
    text = text.replace("CLUSTER", textwrap.indent(of_cluster.rstrip(), "  "))
    return text.replace("PORT}", f"{port}}}").replace("ROUTER}", f"{router}}}")


@contextlib.contextmanager
def running(command, port):
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        end = time.monotonic() + 60
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < end, f"{command[0]} does not listen"
            time.sleep(0.1)
        assert process.poll() is None, process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def post(port, body, **headers):
    """The status and the answer's text."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers})  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        lines = re.findall(rf"^braid:{name}(?:{{[^}}]*}})? (\S+)$", response.read().decode(), re.M)
    return sum(map(float, lines))


def test_envoy_asks_the_router_where_to(tmp_path):
    envoy = pathlib.Path(sys.executable).with_name("envoy")
    port, router = free_port(), free_port()
    file, engines = tmp_path / "envoy.yaml", tmp_path / "router.json"
    file.write_text(configuration(port, router))
    with serving(*FLAGS) as a, serving(*FLAGS) as b:
        rows = [{"name": n, "url": f"http://127.0.0.1:{e.port}"} for n, e in (("a", a), ("b", b))]
        engines.write_text(json.dumps({"engines": rows, "probe_ms": 50, "lease_ms": 2000}))
        command = [os.environ["BRAID_BIN"], "router", engines, "--port", router]
        with running(command, router) as asked, running([envoy, "-c", file, "-l", "error",
                                                         "--concurrency", "1"], port):
            end = time.monotonic() + 30
            while post(port, {"prompt": "Hello", "max_tokens": 1})[0] != 200:
                assert time.monotonic() < end, "no engine is ready"
                time.sleep(0.1)
            before = [metric(e.port, "request_success_total") for e in (a, b)]
            # A session keeps its engine, whatever it says; so its header gets to the router.
            for i in range(6):
                status, text = post(port, {"prompt": f"{i} is a number", "max_tokens": 2},
                                    **{"x-session-id": "one"})
                assert status == 200 and json.loads(text)["choices"]
            counts = [metric(e.port, "request_success_total") - n
                      for e, n in zip((a, b), before)]
            assert sorted(counts) == [0, 6]
            # A body that it must hold whole, and an answer that it must not.
            status, text = post(port, {"prompt": "Once upon a time " * 1000, "max_tokens": 3,
                                       "ignore_eos": True, "stream": True})
            assert status == 200 and text.count('"finish_reason"') >= 3
            assert metric(router, "router_placements_total") >= 8
            asked.kill()
            asked.wait()
            assert post(port, {"prompt": "Hello", "max_tokens": 1})[0] == 403
