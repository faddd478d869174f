"""Who may go without a key: programs of this machine that talk to it by its own name, and nobody else."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from lakerunner.api.auth import Authenticator
from lakerunner.api.server import bind, is_loopback
from lakerunner.commands.terminal.client import Client
from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Role
from lakerunner.services.home import Home
from lakerunner.services.parts import http_bounds, web_origins
from lakerunner.settings import load_settings
from suites.open_api import OpenApi, open_api
from suites.requests import request_of

REPO = Path(__file__).resolve().parents[2]
PAGE = "https://app.example"

# A spelling of a host, and the address that a socket bound to it has; None: it cannot be bound.
SPELLINGS = {
    "127.0.0.1": "127.0.0.1",
    "127.1": "127.0.0.1",
    "127.0.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0x7f000001": "127.0.0.1",
    "0177.0.0.1": "127.0.0.1",
    "127.8.9.10": "127.8.9.10",
    "localhost": "127.0.0.1",
    "LOCALHOST": "127.0.0.1",
    "::1": "::1",
    "0:0:0:0:0:0:0:1": "::1",
    "::ffff:127.0.0.1": "::ffff:127.0.0.1",
    "::ffff:7f00:1": "::ffff:127.0.0.1",
    "0": "0.0.0.0",
    "0.0": "0.0.0.0",
    "00": "0.0.0.0",
    "0x0": "0.0.0.0",
    "0.0.0.0": "0.0.0.0",
    "": "0.0.0.0",
    "::": "::",
    "::ffff:0.0.0.0": "::ffff:0.0.0.0",
    "::ffff:0:0": "::ffff:0.0.0.0",
    "no.such.host.invalid": None,
    "<broadcast>": None,
}


@pytest.mark.parametrize(("spelling", "address"), SPELLINGS.items())
def test_a_spelling_is_loopback_if_the_socket_that_is_bound_to_it_is(spelling: str, address: str | None) -> None:
    assert is_loopback(spelling) == (address is not None and address.endswith(("127.0.0.1", "::1", "127.8.9.10")))
    if address is None:
        with pytest.raises(UserError, match="cannot listen"):
            bind(spelling, 0)
        return
    if ":" in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with bind(spelling, 0) as listener:
        assert listener.getsockname()[0] == address


def test_the_name_that_the_server_listens_on_is_its_own() -> None:
    named = Authenticator(lambda _secret: None, DEFAULT_ORGANIZATION, names=frozenset({"lake-1"}))
    assert named.caller({"host": "Lake-1:7080"}, Role.READ).organization == DEFAULT_ORGANIZATION
    with pytest.raises(NotAllowed, match="Host 'lake-2:7080' is not localhost"):
        named.caller({"host": "lake-2:7080"}, Role.READ)


@pytest.fixture(scope="module")
def api(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory, warmed: None) -> Iterator[OpenApi]:
    with open_api(embedded_postgres_url, tmp_path_factory.mktemp("keyless"), cors_origins=PAGE) as opened:
        yield opened


def test_the_token_is_private_new_with_every_start_and_gone_after_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "token").write_text("left by a killed process, for all to read")
        (tmp_path / "token.new").write_text("the same")
        tokens = set()
        for _ in range(2):
            home = Home(tmp_path)
            assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
            assert (tmp_path / "token").read_text() == f"{home.token}\n"
            tokens.add(home.token)
            home.close()
            assert not (tmp_path / "token").exists()
    finally:
        os.umask(before)
    assert len(tokens) == 2


def test_the_token_manages_keys_and_no_keyless_request_does(api: OpenApi) -> None:
    token = {"authorization": f"Bearer {api.token}"}
    body = {"name": "by-token", "roles": ["admin"]}
    assert httpx.post(f"{api.url}/api/v1/keys", json=body).status_code == 401
    made = httpx.post(f"{api.url}/api/v1/keys", json=body, headers=token)
    assert made.status_code == 201
    assert httpx.delete(f"{api.url}/api/v1/keys/by-token").status_code == 401
    own = {"authorization": f"Bearer {made.json()['secret']}"}
    assert httpx.delete(f"{api.url}/api/v1/keys/by-token", headers=own).status_code == 204


def test_commands_send_the_token_of_their_home_and_to_nobody_else(api: OpenApi) -> None:
    settings = load_settings({}, {"home": api.home})
    for url, key, sent in (
        (None, None, f"Bearer {api.token}"),
        (None, "lrk_other", "Bearer lrk_other"),
        (api.url, None, None),
        ("http://elsewhere.example", None, None),
    ):
        assert Client.find(settings, url, key)._http.headers.get("authorization") == sent
    assert Client.find(settings, None, None)._json("GET", "/api/v1/keys", {})["keys"] is not None
    (table,) = [one for one in Client.find(settings, None, None).tables() if one["name"] == "logs"]
    assert table["columns"]


def test_a_page_of_an_allowed_origin_may_call_with_a_key(api: OpenApi) -> None:
    asks = {"origin": PAGE, "access-control-request-method": "POST"}
    for url in (f"{api.url}/api/v1/sql", f"{api.otlp_url}/v1/logs"):
        preflight = httpx.options(url, headers=asks | {"access-control-request-headers": "authorization,content-type"})
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, PAGE)
    sent = {"query": "select 1 as n"}
    with_key = {"origin": PAGE, "sec-fetch-site": "cross-site", "authorization": f"Bearer {api.token}"}
    answer = httpx.post(f"{api.url}/api/v1/sql", json=sent, headers=with_key)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    without = httpx.post(f"{api.url}/api/v1/sql", json=sent, headers={"origin": PAGE})
    assert without.status_code == 403


def test_a_page_of_another_origin_may_not(api: OpenApi) -> None:
    asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    preflight = httpx.options(f"{api.url}/api/v1/sql", headers=asks)
    assert preflight.status_code == 400
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("origins", ["app.example", "https://app.example/", "https://a.example,null", "*"])
def test_what_is_no_origin_is_refused_at_the_start(origins: str) -> None:
    with pytest.raises(UserError, match="setting cors_origins"):
        web_origins(load_settings({}, {"cors_origins": origins}))


def test_origins_are_a_list_and_none_by_default() -> None:
    assert web_origins(load_settings({})) == ()
    assert web_origins(load_settings({}, {"cors_origins": "https://a.example, http://b.example:3000"})) == (
        "https://a.example",
        "http://b.example:3000",
    )


def documented() -> list[str]:
    """Every curl command of docs/formats that posts a query; those of the guides: tests/end_to_end/test_pages.py."""
    texts = [one.read_text() for one in sorted(REPO.glob("docs/formats/*.md"))]
    commands = [line for text in texts for line in text.replace("\\\n", " ").splitlines() if line.startswith("curl ")]
    return [one for one in commands if "7080" in one and "@" not in one]


@pytest.mark.parametrize("command", documented())
def test_the_commands_of_the_documentation_work_without_a_key(api: OpenApi, command: str, tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl is installed")
    words = shlex.split(command.replace("http://127.0.0.1:7080", api.url), comments=True)
    words += ["-w", "%{http_code}", "--max-time", "60"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=90, check=True)
    assert done.stdout[-3:] == "200", done.stdout


def test_connections_are_no_more_than_half_of_the_files_that_may_be_open() -> None:
    assert http_bounds(load_settings({}, {"http_max_connections": 10})).connections == 10


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ([], None),
        ([("origin", "http://evil.example")], grpc.StatusCode.PERMISSION_DENIED),
        ([("x-forwarded-for", "203.0.113.7")], grpc.StatusCode.PERMISSION_DENIED),
        ([("host", "evil.example")], grpc.StatusCode.PERMISSION_DENIED),
        ([("x-api-key", "a"), ("authorization", "Bearer b")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Basic ====")], grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_grpc_reads_the_same_headers_in_the_same_way(
    api: OpenApi, metadata: list[tuple[str, str]], code: grpc.StatusCode | None
) -> None:
    with grpc.insecure_channel(api.grpc_address) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        if code is None:
            assert export(request_of("by gRPC"), timeout=60, metadata=metadata) == b""
            return
        with pytest.raises(grpc.RpcError) as refused:
            export(request_of("by gRPC"), timeout=60, metadata=metadata)
    assert refused.value.code() == code
