"""The endpoint picker (deploy/picker) over gRPC, with the messages that Envoy sends, against a
router: https://github.com/kubernetes-sigs/gateway-api-inference-extension, proposal 004."""

import contextlib
import importlib.util
import json
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import types

import grpc
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

import conftest

PICKER = conftest.ROOT / "deploy/picker/picker.py"
DESTINATION = "x-gateway-destination-endpoint"
MODES = processing_mode_pb2.ProcessingMode
DUPLEX, BUFFERED = MODES.FULL_DUPLEX_STREAMED, MODES.BUFFERED
AUTHORIZATION = ("authorization", "Bearer key-of-ann")
PATH = "/v1/completions"
SERVING, NOT_SERVING = 1, 2


class Picker:
    """One process of the picker."""

    def __init__(self, router_port, *flags, tls=None):
        words = ["--plain"] if tls is None else ["--tls-cert", tls / "cert", "--tls-key",
                                                 tls / "key"]
        command = [sys.executable, PICKER, f"http://127.0.0.1:{router_port}", "--listen",
                   "127.0.0.1:0", *words, *flags]
        self.process = subprocess.Popen([str(word) for word in command], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        started = re.match(r"listening on 127\.0\.0\.1:(\d+)", line)
        assert started, line + self.process.stderr.read()
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()
        self.target = f"127.0.0.1:{started[1]}"
        self.channel = grpc.insecure_channel(self.target) if tls is None else None

    def stream(self, mode=DUPLEX, **more):
        return Stream(ext_proc_grpc.ExternalProcessorStub(self.channel), mode, **more)

    def health(self, service):
        stub = health_pb2_grpc.HealthStub(self.channel)
        return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            assert self.process.wait(20) == 0, self.log
        finally:
            self.process.kill()


class Stream:
    """One request as Envoy tells it."""

    def __init__(self, stub, mode, subset=None, timeout=60):
        self.mode, self.subset, self.messages = mode, subset, queue.SimpleQueue()
        self.call = stub.Process(iter(self.messages.get, None), timeout=timeout)

    def send(self, **message):
        request = ext_proc.ProcessingRequest(**message)
        if self.subset is not None:
            request.metadata_context.filter_metadata["envoy.lb.subset_hint"].update(
                {f"{DESTINATION}-subset": self.subset})
        self.messages.put(request)

    def head(self, *headers, path=PATH, method="POST", ends=False):
        pairs = [(":method", method), (":path", path), (":authority", "example.org"),
                 AUTHORIZATION, *headers]
        values = [base_pb2.HeaderValue(key=key, raw_value=value.encode())
                  for key, value in pairs]
        self.send(request_headers=ext_proc.HttpHeaders(
                      headers=base_pb2.HeaderMap(headers=values), end_of_stream=ends),
                  protocol_config=ext_proc.ProtocolConfiguration(
                      request_body_mode=self.mode, response_body_mode=self.mode))
        return self

    def body(self, piece, ends=True):
        self.send(request_body=ext_proc.HttpBody(body=piece, end_of_stream=ends))
        return self

    def trailers(self):
        self.send(request_trailers=ext_proc.HttpTrailers())
        return self

    def next(self):
        """The next answer's kind and message."""
        answer = next(self.call)
        kind = answer.WhichOneof("response")
        return kind, getattr(answer, kind), answer

    def refused(self):
        """The status of an immediate response, its headers, and what it says."""
        kind, answer, _ = self.next()
        assert kind == "immediate_response"
        headers = {h.header.key: h.header.raw_value for h in answer.headers.set_headers}
        assert next(self.call, None) is None
        assert headers["content-type"] == b"application/json"
        return answer.status.code, headers, json.loads(answer.body)["error"]

    def chosen(self, kind="request_headers"):
        """The addresses that an answer names, in both places."""
        got, answer, whole = self.next()
        assert got == kind, whole
        option, = answer.response.header_mutation.set_headers
        assert option.header.key == DESTINATION
        assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
        assert whole.dynamic_metadata == \
            struct({"envoy.lb": {DESTINATION: option.header.raw_value.decode()}})
        return option.header.raw_value.decode().split(",")

    def read_body(self, kind, size):
        """So much of a body, and whether it ended."""
        body = b""
        while True:
            got, answer, _ = self.next()
            assert got == kind
            part = answer.response.body_mutation.streamed_response
            assert len(part.body) <= 64 << 10
            body += part.body
            if len(body) >= size:
                return body, part.end_of_stream
            assert not part.end_of_stream

    def close(self):
        self.messages.put(None)
        assert next(self.call, None) is None


def struct(value):
    answer = ext_proc.ProcessingResponse()
    answer.dynamic_metadata.update(value)
    return answer.dynamic_metadata


def text(prompt):
    return json.dumps({"prompt": prompt, "max_tokens": 1}).encode()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two engines, each with a prompt of its own in its cache, their router, and a picker."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "keys").write_text(json.dumps(
        {"keys": [{"name": "ann", "key": "key-of-ann", "admin": True}]}))
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(conftest.http_tests.running()) for _ in "ab"]
        router = conftest.Router({name: one.port for name, one in zip("ab", engines)}, folder,
                                 "--api-key-file", str(folder / "keys"), ready=False)
        stack.callback(router.stop)
        key = {"Authorization": "Bearer key-of-ann"}

        def ready():
            data = json.loads(router.request("GET", "/engines", headers=key)[2])["data"]
            return all(row["state"] == "ready" for row in data)
        conftest.wait_for(ready, 30)
        picker = Picker(router.port, "--drain-seconds", "1")
        stack.callback(picker.stop)
        prompts = {}
        for i in range(20):
            prompt = f"{i} is the number of this prompt. " * 40
            before = [one.metric("request_success_total") for one in engines]
            assert router.post(PATH, {"prompt": prompt, "max_tokens": 1}, headers=key)[0] == 200
            counts = [one.metric("request_success_total") for one in engines]
            at = next(j for j in range(2) if counts[j] > before[j])
            prompts.setdefault(f"127.0.0.1:{engines[at].port}", prompt)
            if len(prompts) == 2:
                break
        conftest.wait_for(lambda: picker.health("readiness") == SERVING, 30)
        yield types.SimpleNamespace(picker=picker, router=router, prompts=prompts)


def test_a_request_goes_where_its_prefix_is(fleet):
    assert len(fleet.prompts) == 2
    for at, prompt in fleet.prompts.items():
        other, = set(fleet.prompts) - {at}
        body = text(prompt)
        for cut in (0, 1, len(body) // 2, len(body)):
            stream = fleet.picker.stream().head().body(body[:cut], ends=False).body(body[cut:])
            assert stream.chosen() == [at, other]
            assert stream.read_body("request_body", len(body)) == (body, True)
            stream.close()
        stream = fleet.picker.stream().head().body(body, ends=False).trailers()
        assert stream.chosen() == [at, other]
        assert stream.read_body("request_body", len(body)) == (body, False)
        assert stream.next()[0] == "request_trailers"
        # Buffered: Envoy sends the body when the headers are answered, and nothing may go back.
        for ends in (True, False):
            stream = fleet.picker.stream(BUFFERED).head()
            kind, answer, _ = stream.next()
            assert kind == "request_headers" and answer == ext_proc.HeadersResponse()
            assert stream.body(body, ends).chosen("request_body") == [at, other]
            if not ends:
                assert stream.trailers().next()[0] == "request_trailers"
    large = text("a long prompt " * 20000)
    stream = fleet.picker.stream().head(("content-length", str(len(large))))
    for i in range(0, len(large), 16384):
        stream.body(large[i:i + 16384], ends=i + 16384 >= len(large))
    assert len(stream.chosen()) == 2
    assert stream.read_body("request_body", len(large)) == (large, True)
    # Without a body the choice is made by the headers.
    stream = fleet.picker.stream().head(path="/v1/models", method="GET", ends=True)
    assert set(stream.chosen()) == set(fleet.prompts)
    stream.close()


def test_answers_pass_unchanged(fleet):
    for mode in (DUPLEX, BUFFERED):
        at, prompt = next(iter(fleet.prompts.items()))
        stream = fleet.picker.stream(mode).head().body(text(prompt))
        if mode == BUFFERED:
            stream.next()
        stream.chosen("request_headers" if mode == DUPLEX else "request_body")
        if mode == DUPLEX:
            stream.read_body("request_body", len(text(prompt)))
        stream.send(response_headers=ext_proc.HttpHeaders())
        assert stream.next()[1] == ext_proc.HeadersResponse()
        for piece, ends in [(b"data: 1\n\n", False), (b"x" * 100000, False), (b"", True)]:
            stream.send(response_body=ext_proc.HttpBody(body=piece, end_of_stream=ends))
            if mode == DUPLEX:
                assert stream.read_body("response_body", len(piece)) == (piece, ends)
            else:
                assert stream.next()[1] == ext_proc.BodyResponse()
        stream.send(response_trailers=ext_proc.HttpTrailers())
        assert stream.next()[1] == ext_proc.TrailersResponse()
        stream.close()
    for served in (at, "10.0.0.1:1"):
        request = ext_proc.ProcessingRequest(response_headers=ext_proc.HttpHeaders())
        request.metadata_context.filter_metadata["envoy.lb"].update(
            {f"{DESTINATION}-served": served})
        stream = fleet.picker.stream().head(path="/v1/models", method="GET", ends=True)
        stream.chosen()
        stream.messages.put(request)
        assert stream.next()[0] == "response_headers"
    conftest.wait_for(lambda: any("sent a request to" in line for line in fleet.picker.log))
    said, = [line for line in fleet.picker.log if "sent a request to" in line]
    assert "10.0.0.1:1" in said


def test_only_endpoints_of_the_subset_are_chosen(fleet):
    a, b = fleet.prompts
    body = text(fleet.prompts[a])
    cases = [([a], [a]), ([b], [b]), (["10.0.0.1:80", b], [b]), ([b, a], [a, b]), ([], None),
             (["10.0.0.1:80"], None), ([b.split(":")[0]], None), (["10.0.0.1:8000"] * 600, None),
             ("all", None)]
    # What a client says of a subset does not count.
    own = [(f"{DESTINATION}-subset", "10.0.0.1:80"), (DESTINATION, "10.0.0.1:80")]
    for subset, chosen in cases + [(None, [a, b])]:
        stream = fleet.picker.stream(subset=subset).head(*own).body(body)
        if chosen:
            assert sorted(stream.chosen()) == sorted(chosen), subset
        else:
            status, _, error = stream.refused()
            assert (status, error["code"], error["type"]) == (503, "no_engine", "server_error")


def test_what_no_engine_should_get_is_refused(fleet):
    def refused(*headers, body=b"{}", mode=DUPLEX, **head):
        stream = fleet.picker.stream(mode).head(*headers, **head)
        return stream.body(body).refused()
    assert refused(path="/v1/nothing")[0] == 404
    # Nothing but the choice can be asked: the path stays below /route/.
    for path in ("/../engines", "/..%2fengines", "//engines", "/v1/../../engines/a/drain",
                 "/engines/a/drain", "/flush_cache"):
        assert refused(path=path)[0] == 404, path
    for path in ("", "engines", "/v1/completions x", "/v1/\r\nx: y"):
        assert refused(path=path)[0] == 400, path
    stream = fleet.picker.stream()
    stream.send(request_headers=ext_proc.HttpHeaders(headers=base_pb2.HeaderMap(headers=[
        base_pb2.HeaderValue(key=key, value=value)
        for key, value in ((":method", "POST"), (":path", PATH))]), end_of_stream=True))
    status, headers, error = stream.refused()
    assert status == 401 and headers["www-authenticate"] == b"Bearer"
    assert refused(method="GET", path="/v1/loads")[2]["code"] == "not_passed_on"
    for mode in (MODES.NONE, MODES.STREAMED, MODES.BUFFERED_PARTIAL):
        status, _, error = refused(mode=mode)
        assert status == 500 and MODES.BodySendMode.Name(mode) in error["message"]
    stream = fleet.picker.stream(BUFFERED).head()
    stream.next()
    assert stream.trailers().refused()[0] == 400


def test_many_streams_at_once_and_streams_that_leave(fleet):
    a, _ = fleet.prompts
    body = text(fleet.prompts[a])
    streams = [fleet.picker.stream(subset=[a]).head() for _ in range(64)]
    for stream in streams:
        stream.body(body[:100], ends=False)
    for stream in streams[::2]:
        stream.call.cancel()
    for stream in streams[1::2]:
        assert stream.body(body[100:]).chosen() == [a]
        assert stream.read_body("request_body", len(body)) == (body, True)
        stream.close()


@pytest.fixture
def silent():
    """Accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_limits_hold_and_a_router_that_is_silent_costs_its_time(silent):
    picker = Picker(silent, "--router-seconds", "0.3", "--streams", "2", "--body-bytes", "1000",
                    "--held-bytes", "1100", "--drain-seconds", "0")
    try:
        status, _, error = picker.stream().head(("content-length", "1001")).refused()
        assert status == 413 and "1000 bytes" in error["message"]
        assert picker.stream().head().body(b"x" * 600, False).body(b"x" * 401).refused()[0] == 413
        holds = picker.stream().head().body(b"x" * 600, False)
        waits = picker.stream(BUFFERED).head()
        waits.next()

        def refuses_streams():
            status, _, error = picker.stream().head().body(b"x").refused()
            return (status, error["type"]) == (429, "rate_limit_error") and \
                "2 requests" in error["message"]
        conftest.wait_for(refuses_streams, 20)
        waits.call.cancel()

        def refuses_more():
            status, _, error = picker.stream().head().body(b"x" * 600).refused()
            return status == 429 and "--held-bytes" in error["message"]
        conftest.wait_for(refuses_more, 20)
        # Those that end or are cancelled make room.
        holds.call.cancel()

        def answered():
            status, _, error = picker.stream().head().body(b"{}").refused()
            return status == 503 and "no answer within 0.3 s" in error["message"]
        conftest.wait_for(answered, 20)
        assert picker.health("") == picker.health("liveness") == SERVING
        assert picker.health("readiness") == NOT_SERVING
    finally:
        picker.stop()


def test_sigterm_lets_streams_end(tmp_path, start_router, silent):
    router = start_router({"a": silent}, ready=False)
    picker = Picker(router.port)
    try:
        for service in ("readiness", "envoy.service.ext_proc.v3.ExternalProcessor"):
            conftest.wait_for(lambda: picker.health(service) == SERVING, 20)
        status, _, error = picker.stream().head().body(b"{}").refused()
        assert status == 503 and error["code"] == "no_engine" and "a: " in error["message"]
        router.process.kill()
        router.process.wait()
        router.process.returncode = 0
        status, _, error = picker.stream().head().body(b"{}").refused()
        assert status == 503 and error["code"] == "router_unreachable"
        conftest.wait_for(lambda: picker.health("readiness") == NOT_SERVING, 20)
        assert picker.health("liveness") == SERVING
        stream = picker.stream(BUFFERED).head()
        stream.next()
        picker.process.send_signal(signal.SIGTERM)

        def refuses():
            # One that comes in as gRPC stops may get no answer: gateways have a timeout for that.
            other = picker.stream(BUFFERED, timeout=2).head()
            try:
                other.next()
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.UNAVAILABLE
            other.call.cancel()
            return False
        conftest.wait_for(refuses, 20)
        assert picker.process.poll() is None
        assert stream.body(b"{}").refused()[0] == 503
        assert picker.process.wait(20) == 0
    finally:
        picker.stop()


def words_of(text, opening):
    """Of the list of arguments that begins so."""
    listed = re.search(rf"args: \[({re.escape(opening)}[^\]]+)\]", text)[1]
    return [word.strip().strip('"') for word in listed.replace("\n", " ").split(",")]


def test_the_kubernetes_example_fits_together():
    spec = importlib.util.spec_from_file_location("picker", PICKER)
    picker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picker)
    text = (conftest.ROOT / "deploy/kubernetes/picker.yaml").read_text()
    options = picker.parse(words_of(text, '"http://braid-router:8080"'))
    asked, probed = (at.rpartition(":")[2] for at in (options.listen, options.health_listen))
    assert f"name: braid-picker\n    port: {{number: {asked}}}" in text
    assert f"{{name: grpc, port: {asked}, targetPort: grpc" in text
    assert f"{{name: grpc, containerPort: {asked}}}" in text
    assert re.findall(r"grpc: \{port: (\d+), service: (\w+)\}", text) == \
        [(probed, "readiness"), (probed, "liveness")]
    serve = words_of(text, "serve")
    assert f"- {{number: {serve[serve.index('--port') + 1]}}}" in text
    assert serve[serve.index("--register") + 1] == options.router == "http://braid-router:8080"
    router = words_of(text, "router")
    assert router[router.index("--port") + 1] == "8080"
    for name in ("braid-router", "braid-picker"):
        assert f"kind: Service\nmetadata:\n  name: {name}\n" in text


def make_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name}", "-keyout", folder / "key", "-out",
                    folder / "cert"], check=True, capture_output=True)
    return (folder / "cert").read_bytes()


def test_tls_with_a_certificate_that_changes(silent, tmp_path):
    first = make_certificate(tmp_path, "picker.one")
    with socket.create_server(("127.0.0.1", 0)) as free:
        probed = f"127.0.0.1:{free.getsockname()[1]}"
    picker = Picker(silent, "--health-listen", probed, tls=tmp_path)
    try:
        def live(certificate, name):
            with grpc.secure_channel(
                    picker.target, grpc.ssl_channel_credentials(certificate),
                    [("grpc.ssl_target_name_override", name)]) as picker.channel:
                return picker.health("liveness")
        assert live(first, "picker.one") == SERVING
        second = make_certificate(tmp_path, "picker.two")
        assert live(second, "picker.two") == SERVING
        with pytest.raises(grpc.RpcError):
            live(first, "picker.one")
        with grpc.insecure_channel(picker.target) as picker.channel, \
                pytest.raises(grpc.RpcError):
            picker.health("liveness")
        # What probes a pod has no certificates.
        with grpc.insecure_channel(probed) as picker.channel:
            assert picker.health("liveness") == SERVING
            assert picker.health("readiness") == NOT_SERVING
    finally:
        picker.stop()
