"""Envoy as the guide configures it, and as gateways of Kubernetes do: it asks the router, or the
picker, which engine a request goes to, and sends it there itself."""

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
# What gateways of Kubernetes tell Envoy about an endpoint picker.
ASK_PICKER = """
- name: envoy.filters.http.set_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
    metadata:
    - {metadata_namespace: SUBSETS, value: {x-gateway-destination-endpoint-subset: [SUBSET]}}
- name: envoy.filters.http.ext_proc
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
    grpc_service: {envoy_grpc: {cluster_name: picker}}
    message_timeout: 30s
    processing_mode:
      {request_header_mode: SEND, request_body_mode: MODE, request_trailer_mode: SEND,
       response_header_mode: SEND, response_body_mode: MODE, response_trailer_mode: SEND}
    metadata_options:
      forwarding_namespaces: {untyped: [envoy.lb, envoy.lb.subset_hint]}
      receiving_namespaces: {untyped: [envoy.lb]}
"""
PICKER_CLUSTER = """
- name: picker
  type: STATIC
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: {http2_protocol_options: {}}
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
  load_assignment: {cluster_name: picker, endpoints: [{lb_endpoints: [
    {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: PICKER}}}}]}]}
"""
OVERRIDE_HOST = """
- name: engines
  type: STATIC
  load_assignment: {cluster_name: engines, endpoints: [{lb_endpoints: [
    {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ENGINE_A}}}},
    {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ENGINE_B}}}}]}]}
  load_balancing_policy:
    policies:
    - typed_extension_config:
        name: envoy.load_balancing_policies.override_host
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.\
OverrideHost
          override_host_sources:
          - SOURCE
          selected_host_key:
            {key: envoy.lb, path: [{key: x-gateway-destination-endpoint-served}]}
          fallback_policy:
            policies:
            - typed_extension_config:
                name: envoy.load_balancing_policies.round_robin
                typed_config:
                  "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.\
round_robin.v3.RoundRobin
"""
OF_HEADER = "header: x-gateway-destination-endpoint"
OF_METADATA = "metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}"


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


def asks_picker(mode, source, ports, subset=None):
    """A whole configuration; `source`: where Envoy finds the choice."""
    text = ENVOY.replace("FILTER", textwrap.indent(ASK_PICKER.strip(), " " * 10))
    clusters = PICKER_CLUSTER + OVERRIDE_HOST.strip()
    text = text.replace("CLUSTER", textwrap.indent(clusters, "  ")).replace("SOURCE", source)
    text = text.replace("MODE", mode)
    text = text.replace("SUBSETS", "envoy.lb.subset_hint" if subset else "unused")
    text = text.replace("[SUBSET]", f'["{subset}"]')
    for name, port in ports.items():
        text = text.replace(f"{name}}}", f"{port}}}")
    return text


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


def answers_of_a_session(port, session, *engines):
    """How many of its six each engine gives. It keeps its engine, whatever it says, so its header
    gets to the router."""
    end = time.monotonic() + 30
    while post(port, {"prompt": "Hello", "max_tokens": 1})[0] != 200:
        assert time.monotonic() < end, "no engine is ready"
        time.sleep(0.1)
    before = [metric(engine.port, "request_success_total") for engine in engines]
    for i in range(6):
        status, text = post(port, {"prompt": f"{i} is a number", "max_tokens": 2},
                            **{"x-session-id": session})
        assert status == 200 and json.loads(text)["choices"]
    return [metric(engine.port, "request_success_total") - n
            for engine, n in zip(engines, before)]


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
            assert sorted(answers_of_a_session(port, "one", a, b)) == [0, 6]
            # A body that it must hold whole, and an answer that it must not.
            status, text = post(port, {"prompt": "Once upon a time " * 1000, "max_tokens": 3,
                                       "ignore_eos": True, "stream": True})
            assert status == 200 and text.count('"finish_reason"') >= 3
            assert metric(router, "router_placements_total") >= 8
            asked.kill()
            asked.wait()
            assert post(port, {"prompt": "Hello", "max_tokens": 1})[0] == 403


def test_envoy_asks_the_picker_as_gateways_tell_it(tmp_path):
    envoy = pathlib.Path(sys.executable).with_name("envoy")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=picker",
                    "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True,
                   capture_output=True)
    router, picker = free_port(), free_port()
    file, engines = tmp_path / "envoy.yaml", tmp_path / "router.json"
    with contextlib.ExitStack() as stack:
        a, b = (stack.enter_context(serving(*FLAGS)) for _ in "ab")
        rows = [{"name": n, "url": f"http://127.0.0.1:{e.port}"} for n, e in (("a", a), ("b", b))]
        engines.write_text(json.dumps({"engines": rows, "probe_ms": 50, "lease_ms": 2000}))
        asked = stack.enter_context(running(
            [os.environ["BRAID_BIN"], "router", engines, "--port", router], router))
        stack.enter_context(running(
            [sys.executable, ROOT / "deploy/picker/picker.py",
             f"http://127.0.0.1:{router}", "--listen", f"127.0.0.1:{picker}", "--tls-cert",
             tmp_path / "cert", "--tls-key", tmp_path / "key"], picker))
        bounded = f"127.0.0.1:{b.port}"
        for mode, source, subset in [("FULL_DUPLEX_STREAMED", OF_METADATA, None),
                                     ("FULL_DUPLEX_STREAMED", OF_HEADER, bounded),
                                     ("BUFFERED", OF_METADATA, bounded),
                                     ("BUFFERED", OF_HEADER, None)]:
            port = free_port()
            file.write_text(asks_picker(mode, source, {
                "PORT": port, "ROUTER": router, "PICKER": picker, "ENGINE_A": a.port,
                "ENGINE_B": b.port}, subset))
            with running([envoy, "-c", file, "-l", "error", "--concurrency", "1",
                          "--use-dynamic-base-id"], port):
                counts = answers_of_a_session(port, mode + source, a, b)
                assert counts == [0, 6] if subset else sorted(counts) == [0, 6]
                status, text = post(port, {"prompt": "Once upon a time " * 1000, "max_tokens": 3,
                                           "ignore_eos": True, "stream": True})
                assert status == 200 and '"finish_reason":"length"' in text
                assert text.endswith("data: [DONE]\n\n")
                status, text = post(port, {"prompt": 1})
                assert status == 400 and "prompt: must be" in text
                if source != OF_HEADER or subset:
                    continue
                asked.kill()
                asked.wait()
                status, text = post(port, {"prompt": "Hello", "max_tokens": 1})
                assert status == 503
                assert json.loads(text)["error"]["code"] == "router_unreachable"
