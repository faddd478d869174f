"""No byte of another organization in any answer of Loki's API, from segments or from caches.

The endpoints are those of the app: a new one is tested without a line here. Its parameters are drawn from `PARAMETERS`;
a name that no endpoint had before is added there. Two organizations have the same streams, times and shapes of lines;
what is theirs alone is marked by a word.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from api.loki.loki_lake import NOW, SECOND, LokiClient, add_lines, loki_server
from conformance.answer import LogEntry
from lakerunner.query.result_cache import ResultCache
from query.sample_lake import OTHER, OWN, START, Lake

MARKS = {"own": "amber", "other": "basil"}
# Endpoints that are no HTTP requests have their own tests of isolation: {path: test}.
SOCKETS = {"/loki/api/v1/tail": "test_tail*.py"}

QUERIES = (
    '{app=~".+"}',
    '{env="prod"}',
    '{env="prod"} | json | logfmt | drop __error__, __error_details__',
    '{env=~".+"} |= "took" | logfmt | took != "0"',
    'sum by (app, trace_id) (count_over_time({env="prod"}[1h]))',
    'rate({service_name=~".+"} | json [1m])',
    "vector(1) + vector(1)",
    "{",
    '{env="prod"} | json | unwrap missing [5m]',
)
PARAMETERS: dict[str, tuple[str, ...]] = {
    "query": QUERIES,
    "match[]": (*QUERIES[:2], "{}"),
    "match": QUERIES[:2],
    "start": (str(START), str(START + 2 * SECOND), "1"),
    "end": (str(NOW), str(START + 3 * SECOND)),
    "since": ("1h", "5m"),
    "time": (str(NOW), str(START + 60 * SECOND)),
    "step": ("60", "15s"),
    "interval": ("1s",),
    "limit": ("1", "100", "6000"),
    "line_limit": ("100",),
    "direction": ("forward", "backward"),
    "targetLabels": ("app", "mark"),
    "aggregateBy": ("labels", "series"),
    "regexp": ("took", "."),
}
NAMES = ("app", "env", "mark", "service_name", "detected_level", "took", "trace_id", "missing")


def lines_of(mark: str) -> tuple[LogEntry, ...]:
    streams = ((("app", f"{mark}-cart"), ("env", "prod")), (("env", "prod"), ("mark", mark), (f"{mark}_label", "1")))
    return tuple(
        LogEntry(
            START + number * SECOND,
            f"took={number}ms who={mark}" if number % 2 else f'{{"took": "{number}", "{mark}_key": "{mark}"}}',
            streams[number % 3 == 0],
            (("trace_id", f"{mark}-{number}"),),
        )
        for number in range(8)
    )


@pytest.fixture(scope="module")
def loki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LokiClient]:
    lake = Lake(tmp_path_factory.mktemp("isolation"))
    for organization, key in ((OWN, "own"), (OTHER, "other")):
        add_lines(lake, organization, lines_of(MARKS[key]))
    with loki_server(lake, results=ResultCache(1 << 24, 300.0, time.monotonic)) as client:
        yield client


def http_routes(loki: LokiClient) -> list[Route]:
    others = [one for one in loki.routes if not isinstance(one, Route)]
    assert [one.path for one in others if one.path not in SOCKETS] == [], "who tests their isolation?"
    return [one for one in loki.routes if isinstance(one, Route)]


def sent(loki: LokiClient, key: str, method: str, path: str, given: list[tuple[str, str]]) -> httpx.Response:
    headers = {"x-api-key": key, "x-loki-response-encoding-flags": "categorize-labels"}
    where = {"data": dict(given)} if method == "POST" else {"params": given}
    return httpx.request(method, f"{loki.url}{path}", headers=headers, timeout=120, **where)


def told(response: httpx.Response) -> tuple[int, str]:
    """Return status and body, without what depends on the time that a query took."""
    body = re.sub(r'"(stats|execTime|queueTime)":(\{.*?\}\}\}|[0-9.e-]+)', "", response.text)
    return response.status_code, re.sub(r'"stats":.*', "", body, flags=re.DOTALL)


def check(loki: LokiClient, method: str, path: str, parameters: list[tuple[str, str]]) -> str:
    """Send a request by both organizations, and again; return the first one's answer."""
    first = sent(loki, "own", method, path, parameters)
    second = sent(loki, "other", method, path, parameters)
    again = sent(loki, "own", method, path, parameters)
    for response, foreign in ((first, MARKS["other"]), (second, MARKS["own"]), (again, MARKS["other"])):
        whole = f"{response.text} {dict(response.headers)}"
        assert foreign not in whole, (method, path, parameters, whole[:2000])
    assert told(first) == told(again)
    return first.text


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, dict[str, str], str]:
    names = draw(st.lists(st.sampled_from(sorted(PARAMETERS)), max_size=6, unique=True))
    given = {name: draw(st.sampled_from(PARAMETERS[name])) for name in {"query", "start", "end", *names}}
    return draw(st.integers(0, 999)), draw(st.integers(0, 9)), given, draw(st.sampled_from(NAMES))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_any_request_shows_nothing_of_the_other_organization(
    loki: LokiClient, drawn: tuple[int, int, dict[str, str], str]
) -> None:
    number, method, parameters, name = drawn
    routes = http_routes(loki)
    route = routes[number % len(routes)]
    methods = sorted((route.methods or {"GET"}) - {"HEAD"})
    path = re.sub(r"\{[^}]*\}", name, route.path_format)
    check(loki, methods[method % len(methods)], path, list(parameters.items()))


def test_every_endpoint_shows_its_own_organization_alone(loki: LokiClient) -> None:
    """Ask each endpoint once for everything; most of the answers hold the words of the own organization."""
    own = {}
    everything = {"query": '{env="prod"}', "start": str(START), "end": str(NOW), "limit": "100"}
    for route in http_routes(loki):
        path = re.sub(r"\{[^}]*\}", "mark", route.path_format)
        metric = 'count_over_time({env="prod"}[1h])' if path == "/loki/api/v1/query" else None
        parameters: dict[str, Any] = everything | ({"query": metric, "time": str(NOW)} if metric else {})
        own[path] = MARKS["own"] in check(loki, "GET", path, list(parameters.items()))
    silent = {path for path, shows in own.items() if not shows}
    assert not silent & {f"/loki/api/v1/{one}" for one in ("query", "query_range", "series", "label/mark/values")}
    assert sum(own.values()) >= 9, own


def test_a_key_of_another_organization_is_refused_by_the_tenant_header(loki: LokiClient) -> None:
    for route in http_routes(loki):
        if route.path == "/ready" or route.path.startswith("/api/v1/"):  # the native API has no such header
            continue
        path = re.sub(r"\{[^}]*\}", "mark", route.path_format)
        response = replace(loki, key="own").send(path, {}, {"x-scope-orgid": "other"})
        assert response.status_code == 403, path
        assert MARKS["other"] not in response.text
