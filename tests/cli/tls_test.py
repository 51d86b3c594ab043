"""TLS of `braid serve`: requests and streams over it, another certificate at SIGHUP, bad files."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import serving  # noqa: E402


def make_certificate(folder, name):
    """(certificate, key) of a fresh self-signed pair for 127.0.0.1."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate, key


def connect(port, certificate):
    context = ssl.create_default_context(cafile=certificate)
    return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder, "first")
    with serving("--tls-cert", str(certificate), "--tls-key", str(key)) as served:
        assert served.address.startswith("https://")
        yield served, certificate, key


BODY = {"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "stream": True}


def test_answers_and_streams_go_over_tls_with_keep_alive(secure):
    served, certificate, _ = secure
    connection = connect(served.port, certificate)
    for _ in range(3):
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        assert response.status == 200 and json.load(response)["data"]
    connection.request("POST", "/v1/completions", json.dumps(BODY),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    lines = [line for line in response.read().decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]" and len(lines) > 10
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")


def test_the_end_of_a_stream_without_a_length_is_told_from_a_cut(secure):
    """HTTP/1.0 ends a body by closing; only TLS's goodbye says that nothing is missing."""
    served, certificate, _ = secure
    context = ssl.create_default_context(cafile=certificate)
    body = json.dumps(BODY).encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1",
                                 suppress_ragged_eofs=False) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.0\r\n"
                               b"Content-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            received = b""
            while piece := connection.recv(65536):  # raises at a cut
                received += piece
    assert received.endswith(b"data: [DONE]\n\n")


def test_a_client_that_leaves_ends_its_request(secure):
    served, certificate, _ = secure

    def running():
        connection = connect(served.port, certificate)
        connection.request("GET", "/v1/running")
        return json.load(connection.getresponse())["data"]

    connection = connect(served.port, certificate)
    connection.request("POST", "/v1/completions", json.dumps({**BODY, "max_tokens": 100000}),
                       {"Content-Type": "application/json"})
    assert connection.getresponse().readline().startswith(b"data: ")
    assert len(running()) == 1
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    end = time.monotonic() + 20
    while running():
        assert time.monotonic() < end


def is_held(server_port, client_port):
    """Whether the server's process still has its end of a connection."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = [int(address.split(":")[1], 16) for address in fields[1:3]]
        if ports == [server_port, client_port]:
            return fields[9] != "0"  # the inode
    return False


def test_a_refused_client_that_stays_silent_is_closed(secure):
    served, certificate, _ = secure
    context = ssl.create_default_context(cafile=certificate)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            port = connection.getsockname()[1]
            assert is_held(served.port, port)
            connection.sendall(b"x\r\n\r\n")
            received = b""
            while piece := connection.recv(65536):
                received += piece
            assert received.startswith(b"HTTP/1.1 400")
            end = time.monotonic() + 8  # it waits 2 s for the client's goodbye
            while is_held(served.port, port):
                assert time.monotonic() < end
                time.sleep(0.05)


def resident_kib(served):
    status = pathlib.Path(f"/proc/{served.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_connections_stay_within_their_share_of_the_memory(tmp_path):
    certificate, key = make_certificate(tmp_path, "many")

    def ask(stack, path):
        connection = stack.enter_context(contextlib.closing(connect(served.port, certificate)))
        connection.request("GET", path, headers={f"X-{i}": "x" * 7000 for i in range(4)})
        response = connection.getresponse()
        return response.status, response.read()

    with serving("--memory", "200M", "--server-memory", "400M", "--tls-cert", str(certificate),
                 "--tls-key", str(key)) as served:
        with contextlib.ExitStack() as stack:
            limits = json.loads(ask(stack, "/server_info")[1])["limits"]
            # A third of what 96 MiB for the process, 64 for stored responses and 192 to prepare
            # a body leave.
            count = next(row["value"] for row in limits if row["name"] == "connections")
            assert count == (400 - 96 - 64 - 192) * 1024 // 3 // 112
            for _ in range(19):
                assert ask(stack, "/health")[0] == 200
            before = resident_kib(served)
            for _ in range(20, count):
                assert ask(stack, "/health")[0] == 200
            grown = resident_kib(served) - before
            assert ask(stack, "/v1/models")[0] == 503
            if os.environ.get("BRAID_PRESET", "release") == "release":
                assert 50 * (count - 20) < grown < 112 * (count - 20)


def test_speaking_plainly_or_nonsense_closes_and_harms_nobody(secure):
    served, certificate, _ = secure
    plain = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for data in (plain, b"\x16\x03\x01\xff\xff" + b"x" * 70000, b""):
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as plain:
            try:
                plain.sendall(data)
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(65536):
                    pass
            except OSError:  # it may be reset at once
                pass
    connection = connect(served.port, certificate)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200


def test_old_versions_of_tls_are_refused(secure):
    served, _, _ = secure
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as plain:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(plain)


def test_another_certificate_is_taken_at_sighup(secure, tmp_path):
    served, certificate, key = secure
    first = certificate.read_bytes(), key.read_bytes()
    old = connect(served.port, certificate)
    old.request("GET", "/health")
    old.getresponse().read()
    certificate.write_text("nonsense")
    served.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while not any("stays as it was" in line for line in served.log):
        assert time.monotonic() < end
        time.sleep(0.01)
    second = make_certificate(tmp_path, "second")
    (tmp_path / "old.pem").write_bytes(first[0])
    certificate.write_bytes(second[0].read_bytes())
    key.write_bytes(second[1].read_bytes())
    served.process.send_signal(signal.SIGHUP)
    while True:
        assert time.monotonic() < end
        try:
            connection = connect(served.port, second[0])
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            break
        except ssl.SSLError:
            time.sleep(0.01)
    old.request("GET", "/health")
    assert old.getresponse().status == 200, "a connection keeps what it began with"
    with pytest.raises(ssl.SSLError):
        connect(served.port, tmp_path / "old.pem").request("GET", "/health")


def test_wrong_files_are_named_at_the_start(tmp_path, braid, tiny):
    certificate, key = make_certificate(tmp_path, "a")
    other_key = make_certificate(tmp_path, "b")[1]
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "ec", "-in", key, "-out", locked, "-aes128", "-passout",
                    "pass:abcd"], check=True, capture_output=True)
    cases = [(tmp_path / "none.pem", key, "--tls-cert"), (key, key, "--tls-cert"),
             (certificate, tmp_path / "none.key", "--tls-key"), (certificate, locked, "--tls-key"),
             (certificate, other_key, "--tls-key")]
    for one, two, named in cases:
        done = braid("serve", tiny, "--port", "0", "--tls-cert", one, "--tls-key", two)
        assert done.returncode == 1 and named in done.stderr, (done.stderr, named)
        assert len(done.stderr.strip().splitlines()) == 1
    done = braid("serve", tiny, "--port", "0", "--tls-cert", certificate)
    assert done.returncode == 1 and "belong together" in done.stderr


def test_a_configuration_that_openssl_cannot_use_is_an_error_and_no_crash(tmp_path, braid, tiny):
    certificate, key = make_certificate(tmp_path, "good")
    config = tmp_path / "openssl.cnf"
    config.write_text("config_diagnostics = 1\nopenssl_conf = all\n[all]\nproviders = list\n"
                      "[list]\nother = other_section\n[other_section]\n"
                      "module = /nonexistent/other.so\nactivate = 1\n")
    done = braid("serve", tiny, "--port", 0, "--tls-cert", certificate, "--tls-key", key,
                 env={"OPENSSL_CONF": str(config)}, timeout=60)
    assert done.returncode == 1 and "OPENSSL_CONF" in done.stderr
