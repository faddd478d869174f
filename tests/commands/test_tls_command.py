"""TLS by settings: what is checked before a process starts, what it shows, how commands find and verify it, renewal."""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest

from lakerunner.model.setting_value import WrongSettings
from lakerunner.services import meters
from lakerunner.services.preflight import check_settings
from lakerunner.services.renewal import Renewal
from lakerunner.settings import read_settings
from servers.lake import Lake, lakerunner, query_api, wait_until
from servers.postgres import drop_database, fresh_database
from suites.certificates import Authority, Files
from suites.requests import request_of

DAY = 86_400
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def database(embedded_postgres_url: str) -> Iterator[str]:
    url = fresh_database(embedded_postgres_url)
    yield url
    drop_database(url)


def tls(files: Files) -> dict[str, str]:
    return {"LAKERUNNER_TLS_CERTIFICATE": str(files.certificate), "LAKERUNNER_TLS_KEY": str(files.key)}


def problems(parts: list[str], **settings: object) -> list[tuple[str, str]]:
    given = {f"LAKERUNNER_{name.upper()}": str(value) for name, value in settings.items()}
    try:
        check_settings(read_settings({"LAKERUNNER_LISTEN": "127.0.0.1:0", **given}), parts)
    except WrongSettings as wrong:
        return [(one.name, one.reason) for one in wrong.problems]
    return []


def test_files_are_checked_before_anything_starts(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.issue("good"), authority.issue("other")
    pair = {"tls_certificate": good.certificate, "tls_key": good.key}
    assert problems(["query-worker"], **pair) == []
    assert problems(["query-worker"], tls_key=good.key) == [
        ("tls_certificate", "is missing: tls_key is set, and TLS needs both")
    ]
    assert problems(["query-worker"], tls_certificate=good.certificate) == [
        ("tls_key", "is missing: tls_certificate is set, and TLS needs both")
    ]
    assert problems(["query-worker"], **pair | {"tls_key": other.key}) == [
        ("tls_key", f"cannot be used: {other.key} is not the key of the certificate {good.certificate}")
    ]
    assert problems(["query-worker"], **pair | {"tls_certificate": tmp_path}) == [
        ("tls_certificate", f"cannot be used: {tmp_path} cannot be read: Is a directory")
    ]
    assert (
        "tls_ca",
        "cannot be used: absent cannot be used as CA certificates: No such file or directory",
    ) in problems(["query-api"], tls_ca="absent")
    shown = read_settings({"LAKERUNNER_TLS_KEY": "/etc/lake.key"}).problem("tls_key", "is a path")
    assert shown.value == "/etc/lake.key"


def test_dates_and_modes_are_warned_of_and_shown(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """An expired certificate is no reason not to start: it can be renewed at any time."""
    caplog.set_level(logging.INFO, "lakerunner.tls")
    files, chains = authority.issue("lake", valid=timedelta(days=30)), list[bytes]()
    certificate, first = files.loaded, files.certificate.read_bytes()
    now = certificate.pair.expires - 8 * DAY
    renewal = Renewal(certificate, chains.append, lambda: now)

    def warned() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    renewal.report()
    assert warned() == []
    assert next(iter(meters.CERTIFICATE_EXPIRES.collect())).samples[0].value == certificate.pair.expires
    now += 1.5 * DAY
    renewal.look()
    renewal.look()
    assert warned() == ["the certificate expires soon"]
    now += 7 * DAY
    renewal.look()
    renewal.look()
    assert warned() == ["clients refuse the certificate: it has expired"]
    files.key.write_text("rubbish")
    renewal.look()
    renewal.look()
    assert warned() == ["the new certificate cannot be used; the previous one stays in force"]
    files.replace(authority.issue("renewed", valid=timedelta(days=90)))
    files.key.chmod(0o644)
    renewal.look()
    assert warned() == ["every user of this machine may read the file of tls_key: chmod 600", "certificate renewed"]
    assert chains == [first, files.certificate.read_bytes()]
    now = certificate.pair.begins - 1
    renewal.look()
    assert warned() == ["clients refuse the certificate: it is not valid yet"]


@pytest.mark.heavy
def test_commands_verify_the_lake_of_their_home_and_follow_its_certificate(
    authority: Authority, database: str, tmp_path: Path
) -> None:
    """The certificate is of another name than 127.0.0.1, which is how the address calls the lake."""
    files = authority.issue("first", "lake.example", "localhost")
    environment = {"DATABASE_URL": database, "LAKERUNNER_QUERY_SPARK": "off"}
    with query_api(tmp_path / "home", environment | tls(files)) as served:
        lake = replace(served, environment=environment)  # commands know nothing of TLS
        assert lake.url.startswith("https://127.0.0.1:")
        lake.process.wait_for(f"lakerunner query-api is ready at {lake.url}")
        for path in ("livez", "healthz", "readyz", "metrics", "openapi.json"):  # it may still be getting ready
            url = f"{_named(lake)}/{path}"
            wait_until(partial(_is_ok, url, authority.trust), url, 60)
        assert _asked(lake) == "2"
        counted = 'lakerunner_queries_total{state="answered"} 1.0'  # after the last byte of the answer has left
        wait_until(lambda: counted in httpx.get(f"{_named(lake)}/metrics", verify=authority.trust).text, counted, 60)
        by_name = ("--url", _named(lake))
        untrusted = lake.command("sql", "select 1 + 1", *by_name)
        assert untrusted.returncode == 1
        assert "certificate verify failed: unable to get local issuer certificate" in untrusted.stderr
        knowing = replace(lake, environment=environment | {"LAKERUNNER_TLS_CA": str(authority.file)})
        assert _asked(knowing, *by_name) == "2"
        assert "IP address mismatch" in knowing.command("sql", "select 1", "--url", lake.url).stderr
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{lake.url.replace('https', 'http')}/livez")

        second = authority.issue("second", "localhost")
        files.replace(second)
        lake.process.wait_for("certificate renewed")
        assert (lake.home / "certificate").read_text().strip() == second.certificate.read_text().strip()
        assert _asked(lake) == "2"
        files.key.write_text("rubbish")
        lake.process.wait_for("the new certificate cannot be used; the previous one stays in force")
        assert _asked(lake) == "2"
        assert lake.process.stop() == 0
        assert "Traceback" not in lake.process.text()
        assert not (lake.home / "certificate").exists()


def _is_ok(url: str, trust: ssl.SSLContext) -> bool:
    return httpx.get(url, verify=trust).status_code == 200


def _named(lake: Lake) -> str:
    return lake.url.replace("127.0.0.1", "localhost")


def _asked(lake: Lake, *options: str) -> str:
    done = lake.command("sql", "--format", "csv", "select 1 + 1 as n", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.heavy
def test_every_port_of_the_doors_speaks_tls(authority: Authority, database: str, tmp_path: Path) -> None:
    environment = {
        "DATABASE_URL": database,
        "LAKERUNNER_OTLP_LISTEN": "127.0.0.1",
        "LAKERUNNER_OTLP_GRPC_PORT": "0",
        "LAKERUNNER_OTLP_HTTP_PORT": "0",
    }
    command = ["pubsub", "--home", str(tmp_path / "home"), "--listen", "127.0.0.1:0"]
    with lakerunner(command, tmp_path / "log", environment | tls(authority.files)) as process:
        process.wait_for("guide")
        ready = process.text()
        grpc_address = re.findall(r"OTLP gRPC +(\S+) \(TLS\)\n", ready)[0]
        urls = re.findall(r"(?:ready at|OTLP HTTP) +(https://[0-9.]+:\d+)\n", ready)
        assert len(urls) == 2
        trust = grpc.ssl_channel_credentials(authority.file.read_bytes())
        with grpc.secure_channel(grpc_address, trust) as channel:
            assert channel.unary_unary(LOGS)(request_of("by gRPC"), timeout=120) == b""
        for url in urls:
            headers = {"content-type": "application/x-protobuf"}
            sent = httpx.post(f"{url}/v1/logs", content=request_of(url), headers=headers, verify=authority.trust)
            assert sent.status_code == 200
