"""TLS on the HTTP and gRPC ports: real clients, renewal while they are connected, clients that do not speak it."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

from lakerunner.api.http_protocol import Bounds
from lakerunner.api.push import otlp_grpc
from lakerunner.api.push.push_store import PushStore
from lakerunner.api.tls import KeyPair, WrongKey, pinning, trusting
from lakerunner.index.index import Index
from lakerunner.model.errors import UserError
from suites.certificates import Authority
from suites.doors import Doors, open_doors
from suites.held_server import served
from suites.pushed import pushed_objects
from suites.raw_http import SECONDS, connected
from suites.requests import request_of

LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
KEY = [("authorization", "Bearer lrk_acme")]
GET = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def opened(address: str) -> socket.socket:
    host, _, port = address.rpartition("/")[2].rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def shown(address: str, trust: ssl.SSLContext) -> str:
    """The name in the certificate that a server shows."""
    with opened(address) as plain, trust.wrap_socket(plain, server_hostname="localhost") as encrypted:
        certificate: Any = encrypted.getpeercert()
        return str(certificate["subject"][0][0][1])


def wrong_pairs(authority: Authority, directory: Path) -> Iterator[tuple[Path, Path, type, str]]:
    good, other = authority.issue("good"), authority.issue("other")
    locked = authority.issue("locked", passphrase="secret")
    rubbish, absent = directory / "rubbish", directory / "absent"
    rubbish.write_text("rubbish")
    yield absent, good.key, UserError, f"{absent} cannot be read: No such file or directory"
    yield rubbish, good.key, UserError, f"{rubbish} holds no certificate in PEM"
    yield good.key, good.key, UserError, f"{good.key} holds no certificate in PEM"
    yield good.certificate, absent, WrongKey, f"{absent} cannot be read: No such file or directory"
    yield good.certificate, rubbish, WrongKey, f"{rubbish} holds no key in PEM"
    yield good.certificate, other.key, WrongKey, f"{other.key} is not the key of the certificate {good.certificate}"
    passphrase = f"{locked.key} is encrypted: write it without a passphrase, readable to the user of the server alone"
    yield locked.certificate, locked.key, WrongKey, passphrase


def test_what_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    for certificate, key, kind, message in wrong_pairs(authority, tmp_path):
        with pytest.raises(UserError) as refused:
            KeyPair.load(certificate, key)
        assert (type(refused.value), str(refused.value)) == (kind, message)
    with pytest.raises(UserError, match="absent cannot be used as CA certificates: No such file"):
        trusting(str(tmp_path / "absent"))


def test_dates_of_a_certificate_are_read_also_when_it_has_expired(authority: Authority) -> None:
    pair = authority.issue("old", valid=timedelta(days=-1)).loaded.pair
    assert pair.expires - pair.begins == 86_400
    assert pair.key not in repr(pair).encode()


def test_clients_verify_the_certificate_by_its_authority_or_by_itself(authority: Authority) -> None:
    files = authority.issue("lake", "localhost")
    with served(Bounds(), "https", certificate=files.loaded) as server:
        assert server.url.startswith("https://127.0.0.1:")
        named = server.url.replace("127.0.0.1", "localhost")
        assert httpx.get(f"{named}/quick", verify=trusting(str(authority.file))).text == "ok"
        assert httpx.get(f"{named}/quick", verify=trusting(str(files.certificate))).text == "ok"
        assert httpx.get(f"{server.url}/quick", verify=pinning(files.certificate)).text == "ok"  # of another name
        for url, trust, why in (
            (named, trusting(""), "unable to get local issuer certificate"),
            (server.url, trusting(str(authority.file)), "IP address mismatch"),
            (named, pinning(authority.issue("other").certificate), "unable to get local issuer certificate"),
        ):
            with pytest.raises(httpx.ConnectError, match=why):
                httpx.get(f"{url}/quick", verify=trust)


def test_curl_verifies_and_keeps_its_connection(authority: Authority) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl is installed")
    with served(Bounds(), "https", certificate=authority.files.loaded) as server:
        url = f"{server.url}/quick"
        done = subprocess.run(
            ["curl", "-sv", "--cacert", authority.file, url, url], capture_output=True, text=True, check=True
        )
        assert done.stdout == "okok"
        assert done.stderr.count("SSL certificate verify ok") == 1
        refused = subprocess.run(["curl", "-s", url], capture_output=True, check=False)
        assert refused.returncode == 60  # the certificate cannot be verified


def old_client(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl._create_unverified_context()
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def test_tls_is_1_2_or_newer(authority: Authority) -> None:
    with served(Bounds(), "https", certificate=authority.files.loaded) as server:
        for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
            with opened(server.url) as plain, old_client(version).wrap_socket(plain) as encrypted:
                assert encrypted.version() == name
        with opened(server.url) as plain, pytest.raises(ssl.SSLError):
            old_client(ssl.TLSVersion.TLSv1_1).wrap_socket(plain)


@pytest.mark.parametrize("said", [GET, b"\x16\x03\x01\x00\x05hello", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_a_client_without_tls_is_closed_and_leaves_nothing_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    with served(Bounds(), "https", certificate=authority.files.loaded) as server, opened(server.url) as plain:
        plain.sendall(said)
        assert b"HTTP/1.1" not in b"".join(iter(lambda: plain.recv(100), b""))
        assert shown(server.url, authority.trust) == "server"
    assert caplog.records == []


def test_a_handshake_that_does_not_end_is_given_up(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    bounds = Bounds(handshake_seconds=0.3)
    with served(bounds, "https", certificate=authority.files.loaded) as server:
        for begin in (b"", b"\x16\x03\x01\x02\x00"):
            with opened(server.url) as silent:
                silent.sendall(begin)
                assert silent.recv(1) == b""
    assert caplog.records == []


def test_a_handshake_counts_as_a_connection_and_makes_room_for_another(authority: Authority) -> None:
    with served(Bounds(connections=2), "https", certificate=authority.files.loaded) as server, ExitStack() as open_:
        busy = open_.enter_context(connected(server.url))
        busy.send(GET.replace(b"/quick", b"/wait"))
        assert server.waiting.acquire(timeout=SECONDS)
        silent = [open_.enter_context(opened(server.url)) for _ in range(3)]
        assert [one.recv(1) for one in silent[:2]] == [b"", b""]  # each had to leave for the next
        other = open_.enter_context(connected(server.url))
        other.send(GET)
        assert other.answer().text == "ok"
        assert silent[2].recv(1) == b""
        other.send(GET.replace(b"/quick", b"/wait"))
        assert server.waiting.acquire(timeout=SECONDS)
        with opened(server.url) as refused:  # all are at work
            assert refused.recv(1) == b""
        server.release.set()
        assert (busy.answer().text, other.answer().text) == ("0", "0")


def test_a_stop_waits_for_no_idle_or_silent_client(authority: Authority) -> None:
    with ExitStack() as open_:
        with served(Bounds(), "https", certificate=authority.files.loaded) as server:
            idle = open_.enter_context(connected(server.url))
            idle.send(GET)
            assert idle.answer().text == "ok"
            silent = open_.enter_context(opened(server.url))
        assert silent.recv(1) == b""
    assert server.stop_seconds < 4  # less than a request that is under way would get


def test_a_renewed_certificate_is_shown_to_new_connections(authority: Authority) -> None:
    files = authority.issue("first")
    certificate = files.loaded
    with served(Bounds(), "https", certificate=certificate) as server, connected(server.url) as before:
        assert not certificate.renew()
        files.replace(authority.issue("second"))
        assert shown(server.url, authority.trust) == "first"  # until somebody looks
        assert (certificate.renew(), certificate.renew()) == (True, False)
        assert shown(server.url, authority.trust) == "second"
        before.send(GET)
        assert before.answer().text == "ok"


@pytest.mark.parametrize("broken", ["certificate", "key"])
def test_new_files_that_cannot_be_used_leave_the_old_ones_in_force(authority: Authority, broken: str) -> None:
    files = authority.issue("first")
    certificate, good = files.loaded, authority.issue("second")
    with served(Bounds(), "https", certificate=certificate) as server:
        path: Path = getattr(files, broken)
        path.write_bytes(b"")
        with pytest.raises(UserError):
            certificate.renew()
        assert not certificate.renew()  # reported once
        path.unlink()
        with pytest.raises(UserError, match="cannot be read"):
            certificate.renew()
        assert shown(server.url, authority.trust) == "first"
        files.replace(good)
        assert certificate.renew()
        assert shown(server.url, authority.trust) == "second"


@pytest.fixture
def doors(index: Index, keeper: PushStore, warmed: None, authority: Authority) -> Iterator[Doors]:
    with open_doors(index, keeper, authority.files.loaded) as opened:
        yield opened


def channel(doors: Doors, authority: Authority, *options: tuple[str, object]) -> grpc.Channel:
    trust = grpc.ssl_channel_credentials(authority.file.read_bytes())
    return grpc.secure_channel(doors.grpc_address, trust, [("grpc.use_local_subchannel_pool", 1), *options])


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_exporters_push_over_tls_by_grpc_and_http(
    doors: Doors, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)  # it would go before the exporter's own option
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    headers = {"authorization": "Bearer lrk_acme"}
    trust = grpc.ssl_channel_credentials(authority.file.read_bytes())
    by_grpc = GrpcLogExporter(endpoint=f"https://{doors.grpc_address}", credentials=trust, headers=headers)
    url = f"{doors.url}/v1/logs"
    by_http = HttpLogExporter(endpoint=url, certificate_file=str(authority.file), headers=headers)
    for exporter, text in ((by_grpc, "over gRPC"), (by_http, "over HTTP")):
        provider = LoggerProvider()
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        record = logging.LogRecord("shop", logging.INFO, "", 0, text, (), None)
        LoggingHandler(logger_provider=provider).emit(record)
        provider.shutdown()
    stored = b"".join(pushed_objects(doors.store).values())
    assert b"over gRPC" in stored
    assert b"over HTTP" in stored


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_grpc_refuses_clients_without_tls_or_trust(doors: Doors, authority: Authority, tmp_path: Path) -> None:
    with channel(doors, authority) as trusted:
        assert trusted.unary_unary(LOGS)(request_of("a"), timeout=60, metadata=KEY) == b""
    other = Authority(tmp_path / "other")
    for untrusted in (grpc.insecure_channel(doors.grpc_address), channel(doors, other)):
        with untrusted, pytest.raises(grpc.RpcError) as refused:
            untrusted.unary_unary(LOGS)(request_of("b"), timeout=60, metadata=KEY)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    with opened(doors.grpc_address) as plain, pytest.raises(ssl.SSLError):
        old_client(ssl.TLSVersion.TLSv1_1).wrap_socket(plain)


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_a_renewed_certificate_is_shown_by_grpc(
    index: Index, keeper: PushStore, warmed: None, authority: Authority
) -> None:
    files = authority.issue("first")
    certificate = files.loaded
    with open_doors(index, keeper, certificate) as doors, channel(doors, authority) as before:
        assert before.unary_unary(LOGS)(request_of("a"), timeout=60, metadata=KEY) == b""
        files.replace(authority.issue("second"))
        assert shown(doors.grpc_address, authority.trust) == "first"
        assert certificate.renew()
        assert shown(doors.grpc_address, authority.trust) == "second"
        assert before.unary_unary(LOGS)(request_of("b"), timeout=60, metadata=KEY) == b""
        files.key.write_text("rubbish")
        with pytest.raises(WrongKey):
            certificate.renew()
        assert shown(doors.grpc_address, authority.trust) == "second"


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_a_handshake_of_grpc_that_does_not_end_is_given_up(
    index: Index, keeper: PushStore, warmed: None, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_grpc, "HANDSHAKE_SECONDS", 0.5)
    with open_doors(index, keeper, authority.files.loaded) as doors, opened(doors.grpc_address) as silent:
        assert silent.recv(1) == b""


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_a_handshake_of_grpc_counts_as_a_connection(
    index: Index, keeper: PushStore, warmed: None, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_grpc, "CONNECTIONS_MAX", 2)
    with open_doors(index, keeper, authority.files.loaded) as doors:
        with opened(doors.grpc_address), opened(doors.grpc_address), opened(doors.grpc_address) as beyond:
            assert beyond.recv(1) == b""
        with channel(doors, authority) as later:  # it tries again until there is room
            call = later.unary_unary(LOGS)
            assert call(request_of("a"), timeout=60, metadata=KEY, wait_for_ready=True) == b""
