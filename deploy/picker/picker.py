#!/usr/bin/env python3
"""The endpoint picker of the Kubernetes gateway's inference extension, beside `braid router`.

    picker.py ROUTER --tls-cert FILE --tls-key FILE      ROUTER: http://HOST:PORT

A gateway's Envoy sends each request here (external processing, gRPC). The picker asks the router
which engine the request should go to (POST /route/...) and answers with the engine's address, in a
header and in dynamic metadata. It changes nothing else of requests and answers. README.md has the
flags; the router's guide has what a gateway must be told.
"""

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import signal
import sys
import urllib.parse

import grpc
import httpcore2
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from envoy.type.v3 import http_status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

LOG = logging.getLogger("picker")
DESTINATION = "x-gateway-destination-endpoint"
SUBSET = "x-gateway-destination-endpoint-subset"
SERVED = "x-gateway-destination-endpoint-served"
# Namespaces of metadata.
CHOICES, SUBSETS = "envoy.lb", "envoy.lb.subset_hint"
LIVE = ("", "liveness")
READY = ("readiness", "envoy.service.ext_proc.v3.ExternalProcessor")
MODES = processing_mode_pb2.ProcessingMode
DUPLEX = MODES.FULL_DUPLEX_STREAMED
# Some gateways take at most 64 KiB of a body in one message.
CHUNK_BYTES = 60 << 10
MESSAGE_BYTES = 1 << 20  # of a message beside the body in it
HEADER_BYTES = 8000  # the router takes a header of 8 KiB
# Headers of a request that concern one connection, or that the router must get from the picker.
NOT_ASKED = {"connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
             "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", SUBSET,
             "accept-encoding"}
PASSED_BACK = {b"content-type", b"retry-after", b"www-authenticate", b"allow"}
ROUTER_FAILURES = (httpcore2.NetworkError, httpcore2.TimeoutException,
                   httpcore2.RemoteProtocolError, TimeoutError)


class Refusal(Exception):
    """Answers the client instead of an engine."""

    def __init__(self, status, headers, body):
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body

    def message(self):
        # Envoy takes the statuses that it knows.
        status = self.status if self.status in http_status_pb2.StatusCode.values() else 503
        return ext_proc.ProcessingResponse(immediate_response=ext_proc.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=status), body=self.body,
            headers=ext_proc.HeaderMutation(set_headers=[
                set_header(name, value) for name, value in self.headers]),
            details="braid_picker"))  # fmt: skip


def refuse(status, code, message):
    """A refusal in the form of OpenAI's errors, as the router's."""
    kind = "invalid_request_error" if status < 500 and status != 429 else \
        "rate_limit_error" if status == 429 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Refusal(status, [("content-type", b"application/json")],
                   json.dumps({"error": error}).encode())  # fmt: skip


def set_header(name, value):
    # Clients may send the same header, so it is replaced.
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, raw_value=value),
        append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)  # fmt: skip


@dataclasses.dataclass
class Exchange:
    """A request and its answer: one stream."""

    method: str = ""
    path: str = ""
    headers: list = dataclasses.field(default_factory=list)
    request_mode: int = DUPLEX
    response_mode: int = DUPLEX
    subset: list | None = None  # None: every engine
    chunks: list = dataclasses.field(default_factory=list)
    body_bytes: int = 0
    chosen: str = ""  # addresses, separated by commas

    def read_headers(self, headers):
        for header in headers:
            value = header.raw_value or header.value.encode()
            if header.key == ":method":
                self.method = value.decode("latin-1")
            elif header.key == ":path":
                self.path = value.decode("latin-1")
            elif not header.key.startswith(":") and header.key not in NOT_ASKED:
                self.headers.append((header.key.encode(), value))

    def read_metadata(self, metadata):
        fields = metadata.filter_metadata[SUBSETS].fields if SUBSETS in metadata.filter_metadata \
            else {}
        if SUBSET in fields:
            self.subset = [one.string_value for one in fields[SUBSET].list_value.values]

    def choice(self):
        """What makes the gateway use the choice: the header, and what goes with it."""
        headers = [set_header(DESTINATION, self.chosen.encode())]
        return ext_proc.CommonResponse(
            header_mutation=ext_proc.HeaderMutation(set_headers=headers))

    def metadata(self):
        answer = ext_proc.ProcessingResponse()
        answer.dynamic_metadata.update({CHOICES: {DESTINATION: self.chosen}})
        return answer.dynamic_metadata


def with_choice(exchange, phase, kind):
    return ext_proc.ProcessingResponse(**{phase: kind(response=exchange.choice())},
                                       dynamic_metadata=exchange.metadata())  # fmt: skip


def streamed(phase, body, ends):
    """The body goes on as it came, in messages that are small enough."""
    pieces = [body[at:at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)] or [b""]
    for i, piece in enumerate(pieces):
        part = ext_proc.StreamedBodyResponse(
            body=piece, end_of_stream=ends and i == len(pieces) - 1)
        yield ext_proc.ProcessingResponse(**{phase: ext_proc.BodyResponse(
            response=ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(
                streamed_response=part)))})  # fmt: skip


class Picker(ext_proc_grpc.ExternalProcessorServicer):
    def __init__(self, options):
        self.options = options
        at = urllib.parse.urlsplit(options.router)
        self.at = {"scheme": b"http", "host": at.hostname, "port": at.port or 80}
        self.router = httpcore2.AsyncConnectionPool(
            max_connections=options.streams, max_keepalive_connections=64, keepalive_expiry=30)
        self.streams = self.held_bytes = 0

    async def Process(self, request_iterator, context):  # noqa: N802, the protocol's name
        exchange = Exchange()
        self.streams += 1
        try:
            if self.streams > self.options.streams:
                raise refuse(429, "too_many_requests", f"the picker has {self.options.streams} "
                             "requests, its limit (--streams)")  # fmt: skip
            async for message in request_iterator:
                phase = message.WhichOneof("request")
                if phase.startswith("request"):
                    now = self.read_request(exchange, message, phase) and not exchange.chosen
                    if now:
                        exchange.chosen = await self.choose(exchange)
                    for answer in self.answer_request(exchange, phase, now):
                        yield answer
                else:
                    for answer in self.answer_response(exchange, message, phase):
                        yield answer
        except Refusal as refusal:
            yield refusal.message()
        finally:
            self.streams -= 1
            self.free(exchange)

    def free(self, exchange):
        self.held_bytes -= exchange.body_bytes
        exchange.chunks, exchange.body_bytes = [], 0

    def read_request(self, exchange, message, phase):
        """Whether the choice can be made: everything that it needs has come."""
        exchange.read_metadata(message.metadata_context)
        if phase == "request_headers":
            if message.HasField("protocol_config"):
                exchange.request_mode = message.protocol_config.request_body_mode
                exchange.response_mode = message.protocol_config.response_body_mode
            headers = message.request_headers
            exchange.read_headers(headers.headers.headers)
            if headers.end_of_stream:
                return True
            if exchange.request_mode not in (DUPLEX, MODES.BUFFERED):
                mode = MODES.BodySendMode.Name(exchange.request_mode)
                raise refuse(500, "wrong_body_mode", f"the gateway sends bodies as {mode}; the "
                             "picker needs FULL_DUPLEX_STREAMED or BUFFERED")  # fmt: skip
            self.check_length(headers.headers.headers)
            return False
        if phase == "request_body":
            piece = message.request_body.body
            self.check_size(exchange.body_bytes + len(piece))
            exchange.chunks.append(piece)
            exchange.body_bytes += len(piece)
            self.held_bytes += len(piece)
            if self.held_bytes > self.options.held_bytes:
                raise refuse(429, "too_many_requests", "the bodies of requests take "
                             f"{self.options.held_bytes} bytes, the limit (--held-bytes)")
            # What is buffered comes whole; trailers may follow it.
            return message.request_body.end_of_stream or exchange.request_mode == MODES.BUFFERED
        if exchange.request_mode == MODES.BUFFERED and not exchange.chosen:
            raise refuse(400, None, "a request with trailers needs a body")
        return True

    def check_length(self, headers):
        for header in headers:
            value = header.raw_value or header.value.encode()
            if header.key == "content-length" and value.isdigit():
                self.check_size(int(value[:20]))

    def check_size(self, size):
        if size > self.options.body_bytes:
            raise refuse(413, None, f"the body has more than {self.options.body_bytes} bytes, the "
                         "limit (--body-bytes of the picker)")  # fmt: skip

    def answer_request(self, exchange, phase, now):
        """In the order in which the messages came; `now`: the choice has just been made."""
        duplex = exchange.request_mode == DUPLEX
        if now and phase == "request_headers":
            yield with_choice(exchange, phase, ext_proc.HeadersResponse)
        elif now and duplex:
            yield with_choice(exchange, "request_headers", ext_proc.HeadersResponse)
            yield from streamed("request_body", b"".join(exchange.chunks), phase == "request_body")
        elif now:
            yield with_choice(exchange, phase, ext_proc.BodyResponse)
        elif phase == "request_headers" and not duplex:
            yield ext_proc.ProcessingResponse(request_headers=ext_proc.HeadersResponse())
        if phase == "request_trailers":
            yield ext_proc.ProcessingResponse(request_trailers=ext_proc.TrailersResponse())
        if now:
            self.free(exchange)

    def answer_response(self, exchange, message, phase):
        if phase == "response_headers":
            self.check_served(exchange, message.metadata_context)
            yield ext_proc.ProcessingResponse(response_headers=ext_proc.HeadersResponse())
        elif phase == "response_trailers":
            yield ext_proc.ProcessingResponse(response_trailers=ext_proc.TrailersResponse())
        elif exchange.response_mode == DUPLEX:
            body = message.response_body
            yield from streamed(phase, body.body, body.end_of_stream)
        else:
            yield ext_proc.ProcessingResponse(response_body=ext_proc.BodyResponse())

    def check_served(self, exchange, metadata):
        """A gateway that goes elsewhere undoes what the router plans."""
        if CHOICES in metadata.filter_metadata:
            served = metadata.filter_metadata[CHOICES].fields[SERVED].string_value
            if served and served not in exchange.chosen.split(","):
                LOG.warning("the gateway sent a request to %s, not to %s", served, exchange.chosen)

    async def choose(self, exchange):
        """The engine's address, and those to try after it. Raises Refusal."""
        if not exchange.path.startswith("/"):
            raise refuse(400, None, "the request has no path")
        headers = list(exchange.headers)
        if exchange.subset is not None:
            subset = ",".join(exchange.subset)
            if not exchange.subset or len(subset) > HEADER_BYTES:
                raise refuse(503, "no_engine", "no engine can take the request: the gateway's "
                             f"subset has {len(exchange.subset)} endpoints")  # fmt: skip
            headers.append((SUBSET.encode(), subset.encode()))
        url = httpcore2.URL(**self.at, target=b"/route" + exchange.path.encode("latin-1"))
        host = self.at["host"] if ":" not in self.at["host"] else f"[{self.at['host']}]"
        headers.append((b"host", f"{host}:{self.at['port']}".encode()))
        try:
            async with asyncio.timeout(self.options.router_seconds):
                answer = await self.router.request(
                    exchange.method, url, headers=headers, content=b"".join(exchange.chunks))
        except httpcore2.LocalProtocolError as error:
            raise refuse(400, None, f"the request is malformed: {error}") from error
        except ROUTER_FAILURES as error:
            why = str(error) or f"no answer within {self.options.router_seconds} s"
            LOG.warning("the router at %s: %s", self.options.router, why)
            raise refuse(503, "router_unreachable", "the router that chooses an engine cannot be "
                         f"reached: {why}") from error  # fmt: skip
        return self.read_choice(answer)

    def read_choice(self, answer):
        fields = {name.lower(): value for name, value in answer.headers}
        chosen = fields.get(DESTINATION.encode())
        if answer.status >= 400:
            raise Refusal(answer.status, [(name.decode(), value) for name, value in fields.items()
                                          if name in PASSED_BACK], answer.content)  # fmt: skip
        if answer.status != 200 or not chosen:
            raise refuse(503, "router_unreachable", f"the router answered {answer.status} without "
                         f"{DESTINATION}")  # fmt: skip
        more = json.loads(answer.content).get("fallbacks", [])[: self.options.fallbacks]
        return ",".join([chosen.decode("latin-1"), *more])

    async def reaches_router(self):
        url = httpcore2.URL(**self.at, target=b"/health")
        try:
            async with asyncio.timeout(self.options.router_seconds):
                return (await self.router.request("GET", url)).status == 200
        except ROUTER_FAILURES:
            return False


async def watch_router(picker, checks):
    """Ready is who can ask the router. Liveness does not depend on it."""
    status = health_pb2.HealthCheckResponse
    while True:
        reached = await picker.reaches_router()
        for service in READY:
            await checks.set(service, status.SERVING if reached else status.NOT_SERVING)
        await asyncio.sleep(1)


def credentials(cert, key):
    """Of the files; connections that come after a change of them get the new certificate."""
    def read():
        with open(key, "rb") as key_file, open(cert, "rb") as cert_file:
            return grpc.ssl_server_certificate_configuration(
                [(key_file.read(), cert_file.read())])

    def version():
        return [os.stat(name).st_mtime_ns for name in (cert, key)]

    seen = version()

    def changed():
        nonlocal seen
        try:
            if version() == seen:
                return None
            new, seen = read(), version()
            return new
        except OSError as error:
            LOG.warning("the certificate cannot be read again: %s", error)
            return None
    return grpc.dynamic_ssl_server_credentials(read(), changed)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("router", help="where braid router listens: http://HOST:PORT")
    parser.add_argument("--listen", default="0.0.0.0:9002", help="HOST:PORT; port 0: a free one")
    parser.add_argument("--health-listen", help="HOST:PORT for health checks without TLS")
    parser.add_argument("--tls-cert", help="certificate chain, PEM")
    parser.add_argument("--tls-key", help="its private key, PEM")
    parser.add_argument("--plain", action="store_true", help="no TLS: only behind a mesh")
    parser.add_argument("--body-bytes", type=int, default=64 << 20,
                        help="largest body; the router's limit is its --server-memory / 16")
    parser.add_argument("--held-bytes", type=int, default=512 << 20,
                        help="bodies that wait for a choice, together")
    parser.add_argument("--streams", type=int, default=4096,
                        help="requests at once, until their answers end")
    parser.add_argument("--fallbacks", type=int, default=2,
                        help="engines to name after the first, for the gateway's retries")
    parser.add_argument("--router-seconds", type=float, default=5, help="the router's time")
    parser.add_argument("--drain-seconds", type=float, default=30,
                        help="time for streams in progress after SIGTERM")
    options = parser.parse_args(words)
    at = urllib.parse.urlsplit(options.router)
    if at.scheme != "http" or not at.hostname or at.path not in ("", "/"):
        parser.error(f"ROUTER must be http://HOST:PORT, not {options.router}")
    if bool(options.tls_cert) != bool(options.tls_key) or \
            bool(options.tls_cert) == options.plain:
        parser.error("give --tls-cert and --tls-key, or --plain")
    return options


async def serve(options):
    server = grpc.aio.server(options=[
        ("grpc.max_receive_message_length", options.body_bytes + MESSAGE_BYTES),
        ("grpc.max_send_message_length", -1)])
    health_server = grpc.aio.server()
    picker, checks = Picker(options), health.aio.HealthServicer()
    ext_proc_grpc.add_ExternalProcessorServicer_to_server(picker, server)
    for one in (server, health_server):
        health_pb2_grpc.add_HealthServicer_to_server(checks, one)
    if options.plain:
        port = server.add_insecure_port(options.listen)
    else:
        port = server.add_secure_port(options.listen,
                                      credentials(options.tls_cert, options.tls_key))
    if options.health_listen:
        health_server.add_insecure_port(options.health_listen)
    for service in LIVE:
        await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
    for service in READY:
        await checks.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await server.start()
    await health_server.start()
    print(f"listening on {options.listen.rpartition(':')[0]}:{port}", flush=True)
    watch = asyncio.create_task(watch_router(picker, checks))
    await stopped.wait()
    watch.cancel()
    LOG.info("stopping; %d streams have %g s to end", picker.streams, options.drain_seconds)
    for service in READY:
        await checks.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
    await server.stop(options.drain_seconds)
    await health_server.stop(0)
    await picker.router.aclose()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr,
                        format="%(asctime)s %(levelname)s %(message)s")  # fmt: skip
    asyncio.run(serve(parse(sys.argv[1:])))
