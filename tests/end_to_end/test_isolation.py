"""Nobody reaches another organization's data: not through any endpoint, format, cache or error text.

The property is non-interference. Two organizations share one lake, and each has a lake where it is alone. Whatever they
send, in any order, with caches warm from both, each gets from the shared lake exactly what its own lake answers; and no
answer holds a word of the other's that was not in the request.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from lakerunner.model.source import SourceObject
from lakerunner.pipeline.warm import warm_ingest
from suites.hostile_requests import Sent, requests_about
from suites.pushed import lines_of, pushed_objects
from suites.requests import request_of
from suites.tenants import AMBER, BASIL, DAY, Tenant, TenantLake, tenant_lake

pytestmark = pytest.mark.heavy
OTHER = {AMBER: BASIL, BASIL: AMBER}
_SECRET = re.compile(r"lrk_[\w-]{43}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00")
_SECONDS = re.compile(r'"seconds":\{[^}]*\}|seconds [^"]*')
_PASSING = ('{"type":"progress"', '{"type":"heartbeat"')
_ROLES_DRAWN = ["admin"] * 5 + ["reader", "writer", "wrong", ""]
_MESSAGE = re.compile(r"(q7 said) \d+")


@dataclass(frozen=True)
class Lakes:
    """`alone` by tenant. `logged` are the lines of all servers."""

    shared: TenantLake
    alone: dict[Tenant, TenantLake]
    logged: list[str]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.__dict__}")


@pytest.fixture(scope="module")
def lakes(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    warm_ingest()
    root = tmp_path_factory.mktemp("tenants")
    lines, speakers = _Lines(), [logging.getLogger(name) for name in ("lakerunner", "uvicorn", "psycopg")]
    levels = [speaker.level for speaker in speakers]
    for speaker in speakers:
        speaker.addHandler(lines)
        speaker.setLevel(logging.DEBUG)
    with (
        tenant_lake(root / "shared", embedded_postgres_url, AMBER, BASIL) as shared,
        tenant_lake(root / "amber", embedded_postgres_url, AMBER) as amber,
        tenant_lake(root / "basil", embedded_postgres_url, BASIL) as basil,
    ):
        yield Lakes(shared, {AMBER: amber, BASIL: basil}, lines.lines)
    for speaker, level in zip(speakers, levels, strict=True):
        speaker.removeHandler(lines)
        speaker.setLevel(level)


def answered(lake: TenantLake, sent: Sent, secret: str | None) -> httpx.Response:
    headers = sent.headers | ({"x-api-key": secret} if secret else {})
    return lake.http.request(
        sent.method, sent.path, json=sent.body, content=sent.data, headers=headers, params=sent.query
    )


def told(response: httpx.Response) -> str:
    """All that the response says, in lower case."""
    said = [response.content.decode("latin-1"), *response.headers.values()]
    if response.headers.get("content-type") == "application/vnd.apache.parquet":
        said.append(str(pq.read_table(io.BytesIO(response.content)).to_pylist()))
    return "\n".join(said).lower()


def comparable(response: httpx.Response) -> tuple[int, str, list[str]]:
    """The answer without what a clock or chance has a part in: rows in an order, no seconds, no secrets."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    match kind:
        case "application/vnd.apache.parquet":
            lines = [str(row) for row in pq.read_table(io.BytesIO(response.content)).to_pylist()]
        case "application/vnd.apache.arrow.stream" if response.content:
            lines = [str(row) for row in pa.ipc.open_stream(response.content).read_all().to_pylist()]
        case "application/json" if '"rows"' in response.text:
            answer = response.json()
            lines = [json.dumps({**answer, "rows": None}, separators=(",", ":")), *map(json.dumps, answer["rows"])]
        case _:
            # Events of progress come as often as time allows, each with a blank line behind it.
            lines = [
                line
                for line in response.text.splitlines()
                if line and not line.removeprefix("data: ").startswith(_PASSING)
            ]
    for pattern, instead in ((_SECRET, "SECRET"), (_MOMENT, "MOMENT"), (_SECONDS, "SECONDS"), (_MESSAGE, r"\1")):
        lines = [pattern.sub(instead, line) for line in lines]
    return response.status_code, kind, sorted(lines)


def assert_told_nothing_of(others: set[Tenant], sent: Sent, response: httpx.Response) -> None:
    said = told(response)
    leaked = [word for other in others for word in other.markers if word in said and word not in sent.text]
    assert not leaked, (sent, response.status_code, leaked, response.text[:2000])


def try_to_reach(lakes: Lakes, data: st.DataObject, most: int) -> None:
    for _ in range(data.draw(st.integers(1, most), label="requests")):
        tenant = data.draw(st.sampled_from([AMBER, BASIL]), label="tenant")
        sent = data.draw(requests_about(OTHER[tenant], tenant), label="sent")
        role = data.draw(st.sampled_from(_ROLES_DRAWN), label="role")
        if role in ("", "wrong"):
            secret = lakes.shared.secret(tenant) + "x" if role else None
            response = answered(lakes.shared, sent, secret)
            assert_told_nothing_of({AMBER, BASIL}, sent, response)
            continue
        response = answered(lakes.shared, sent, lakes.shared.secret(tenant, role))
        assert response.status_code < 500 or sent.path == "/readyz", (sent, response.text)
        assert_told_nothing_of({OTHER[tenant]}, sent, response)
        alone = answered(lakes.alone[tenant], sent, lakes.alone[tenant].secret(tenant, role))
        note(f"shared: {response.text[:2000]}\nalone: {alone.text[:2000]}")
        if sent.steady:
            assert comparable(response) == comparable(alone)


# Lakes remember what was sent, so a failure cannot be made smaller by sending less: the whole example is shown.
_PATIENT: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],
    "database": None,
}


@settings(max_examples=80, **_PATIENT)
@given(data=st.data())
def test_nobody_reaches_what_is_anothers(lakes: Lakes, data: st.DataObject) -> None:
    try_to_reach(lakes, data, 6)


@pytest.mark.slow
@settings(max_examples=400, **_PATIENT)
@given(data=st.data())
def test_nobody_reaches_what_is_anothers_however_often_they_try(lakes: Lakes, data: st.DataObject) -> None:
    try_to_reach(lakes, data, 8)


def test_keys_are_whole_after_all(lakes: Lakes) -> None:
    """Whatever was tried, each tenant's own keys open its own data."""
    for tenant in OTHER:
        for role in ("admin", "reader"):
            rows = asked(lakes.shared, lakes.shared.secret(tenant, role), "SELECT DISTINCT organization_id FROM logs")
            assert rows == [{"organization_id": str(tenant.organization.id)}]


def asked(lake: TenantLake, secret: str | None, sql: str) -> list[dict[str, Any]]:
    response = answered(lake, Sent("POST", "/api/v1/sql", {"query": sql}), secret)
    assert response.status_code == 200, response.text
    rows: list[dict[str, Any]] = response.json()["rows"]
    return rows


def test_to_each_its_own_and_all_of_it(lakes: Lakes) -> None:
    """Every word that must not be told to others is told to its owner: the words are looked for where they are."""
    whole = [Sent("POST", "/api/v1/sql", {"query": f"SELECT * FROM {table}"}) for table in ("logs", "metrics", "spans")]
    whole += [
        Sent("GET", "/api/v1/rules/materialization"),
        Sent("GET", "/api/v1/keys"),
        Sent("GET", "/api/v1/objects"),
        Sent("POST", "/api/v1/logs/tags", DAY),
    ]
    for tenant, other in OTHER.items():
        secret = lakes.shared.secret(tenant)
        said = "".join(told(answered(lakes.shared, sent, secret)) for sent in whole)
        words = {word for word in tenant.markers if word.endswith(".q7")} - {tenant.organization.name}
        assert {word for word in words if word not in said} <= {tenant.word("reason")}  # gone once it was tried again
        assert tenant.trace.hex() in said
        assert not [word for word in other.markers if word in said]


@pytest.mark.parametrize("sql", ["SELECT count(*) AS n FROM logs", "SELECT DISTINCT service_name AS n FROM spans"])
def test_the_same_text_at_once(lakes: Lakes, sql: str) -> None:
    """What the one's answer was kept under is not what the other's is looked for under."""
    wanted: dict[Tenant, object] = {tenant: tenant.word("svc") for tenant in OTHER}
    if "count" in sql:
        wanted = {tenant: 2 * tenant.rows for tenant in OTHER}
    asking = [*OTHER] * 12
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda tenant: asked(lakes.shared, lakes.shared.secret(tenant), sql), asking))
    assert found == [[{"n": wanted[tenant]}] for tenant in asking]
    assert asked(lakes.shared, None, "SELECT count(*) AS n FROM logs") == [{"n": 0}]


@pytest.mark.parametrize("kind", ["", "series", "exemplars"])
def test_the_same_promql_at_once(lakes: Lakes, kind: str) -> None:
    """A series that both have: each sees its own, whatever the other has asked before; a writer's key sees none."""
    root, times = "/prometheus/api/v1", {"start": "1704067200", "end": "1704070800"}
    sent = {
        "": Sent("GET", f"{root}/query", query={"query": "sum(served_total)", "time": times["start"]}),
        "series": Sent("GET", f"{root}/series", query={"match[]": "served_total", **times}),
        "exemplars": Sent("GET", f"{root}/query_exemplars", query={"query": "served_total", **times}),
    }[kind]
    for tenant in [*OTHER] * 4:
        response = answered(lakes.shared, sent, lakes.shared.secret(tenant))
        assert response.status_code == 200, response.text
        data = response.json()["data"]
        if kind == "":
            assert [row["value"][1] for row in data["result"]] == [str(tenant.byte)]
        else:
            labels = {"": None, "series": data[0], "exemplars": data[0].get("seriesLabels")}[kind]
            assert (len(data), labels["job"]) == (1, tenant.word("svc"))
        assert (tenant.word("tier") in told(response)) == (kind == "exemplars")
        assert_told_nothing_of({OTHER[tenant]}, sent, response)
        refused = answered(lakes.shared, sent, lakes.shared.secret(tenant, "writer"))
        assert (refused.status_code, refused.json()["errorType"]) == (403, "forbidden")
    nobodys = answered(lakes.shared, sent, None).json()["data"]
    assert (nobodys["result"] if kind == "" else nobodys) == []


def test_what_is_pushed_is_stored_as_the_pushers(lakes: Lakes) -> None:
    for tenant, other in OTHER.items():
        sent = Sent("POST", "/v1/logs", data=request_of(f"{tenant.name} pushed", service=other.word("svc")))
        for name, status in (("x-organization-id", 200), ("x-scope-orgid", 403)):
            headers = {"content-type": "application/x-protobuf", name: str(other.organization.id)}
            response = answered(lakes.shared, replace(sent, headers=headers), lakes.shared.secret(tenant, "writer"))
            assert response.status_code == status, response.text
    stored = pushed_objects(lakes.shared.store)
    assert stored
    for tenant in OTHER:
        prefix = f"otel-raw/{tenant.organization.id}/"
        lines = {line for key, data in stored.items() if key.startswith(prefix) for line in lines_of(data)}
        assert lines == {f"{tenant.name} pushed"}


def test_without_a_key_nobodys_objects_are_seen_or_sent_again(lakes: Lakes) -> None:
    """A request without a key is of the default organization, which has none; what is of none it sees."""
    lost = SourceObject("local", "otel-raw/nobody/edge/logs.binpb", "etag", 1, 1)
    lakes.shared.index.sources.set_aside(lost, "nobody is not known")
    listed = answered(lakes.shared, Sent("GET", "/api/v1/objects"), None).json()
    assert [one["key"] for one in listed["objects"] if one["organization_id"] is None] == [lost.key]
    assert_told_nothing_of(set(OTHER), Sent("GET", "/api/v1/objects"), httpx.Response(200, json=listed))
    assert sum(listed["counts"].values()) == len(listed["objects"])
    states = [lakes.shared.index.sources.counts(tenant.organization.id) for tenant in OTHER]
    assert answered(lakes.shared, Sent("POST", "/api/v1/objects/retry"), None).json() == {"retried": 0}
    assert [lakes.shared.index.sources.counts(tenant.organization.id) for tenant in OTHER] == states


def test_no_secret_is_logged_and_none_is_told_twice(lakes: Lakes) -> None:
    """The last here: the lines are those of all the others too."""
    made = answered(
        lakes.shared, Sent("POST", "/api/v1/keys", {"name": "last", "roles": ["read"]}), lakes.shared.secret(AMBER)
    )
    secrets = {made.json()["secret"], *lakes.shared.secrets.values()}
    for secret in sorted(secrets):
        wrong = answered(lakes.shared, Sent("POST", "/api/v1/sql", data=b"{"), f"{secret}x")
        assert (wrong.status_code, secret in told(wrong)) == (401, False)
    readers = {"/api/v1/keys": lakes.shared.secret(AMBER), "/metrics": None}
    told_later = [told(answered(lakes.shared, Sent("GET", path), reader)) for path, reader in readers.items()]
    assert lakes.logged
    assert not [secret for secret in secrets for text in (*lakes.logged, *told_later) if secret.lower() in text.lower()]
