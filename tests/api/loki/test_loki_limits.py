"""Queries that would take all memory or all time: each is refused by a limit that it names, or answered within them."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from api.loki.loki_lake import NOW, SECOND, LokiClient, add_lines, lines_lake, loki_server
from conformance.answer import LogEntry
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.loki.loki_api import LokiApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.logql.log_limits import LogLimits
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from query.sample_lake import OWN, START, Lake
from suites.leaving import leaving
from suites.scripted import Scripted

BIG, DEEP, MANY = ((("app", name),) for name in ("big", "deep", "many"))
MEGABYTE = 1_000_000
LEVELS = 20_000  # of {"a":, behind which the line is as deep as long
GROWTH = 1 << 30  # bytes of this process, which serves all of it
ALL: dict[str, Any] = {"query": '{app=~".+"}', "start": START, "end": NOW}
MATCHERS = ",".join(f'l{number}!="v"' for number in range(255))
LIST = "[" + ",".join("1" * 100) + "]"
LOOP = ("{{range fromJson `" + LIST + "`}}") * 3 + "x" + "{{end}}" * 3
CHAIN = " + ".join(["vector(1)"] * 1000)


def line_of(number: int) -> str:
    return f"id={number} {'y' * 100}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = lines_lake(tmp_path_factory.mktemp("limits"))
    lines = (
        LogEntry(START + SECOND, "x" * MEGABYTE, BIG),
        LogEntry(START + SECOND, '{"a":' * LEVELS + "1" + "}" * LEVELS, DEEP),
        *(LogEntry(START + 1 + number, line_of(number), MANY) for number in range(301)),
    )
    add_lines(lake, OWN, lines)
    return lake


@pytest.fixture(scope="module")
def loki(lake: Lake) -> Iterator[LokiClient]:
    with loki_server(lake) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('{app="big"} |= "' + "x" * (1 << 17) + '"', "input size too long (131"),
        (f'{{app="a", {MATCHERS}, one="more"}}', "the query has 257 matchers, the limit is 256"),
        ('{app="a"}' + ' |= "x"' * 257, "the query has 257 stages, the limit is 256"),
        (
            " + ".join([f'count_over_time({{app="a", {MATCHERS}}}[1m])'] * 2),
            "the query has 512 matchers, the limit is 256",
        ),
        (CHAIN, "more than 200 levels deep"),
        ("(" * 30_000 + "1", "parse error"),
        (
            '{app="many"} | line_format "' + LOOP.replace('"', "") + '"',
            "a template takes more than 100000 steps on one line",
        ),
        ('{app="many"} | line_format `{{repeat 9999999 "x"}}`', "a text of more than 4194304 characters"),
        ('{app="many"} | label_format a=`{{repeat 9999999 "x"}}`', "a text of more than 4194304 characters"),
        ('{app="big"} | line_format `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`', "more than 100 deep"),
        (r'{app=~"((a{1000}){1000}){1000}"}', "invalid repeat count"),
        (r'{app="many"} |~ "(\\pL{100}){10}"', "expression too large"),
        (r'{app="many"} | regexp "(?P<a>(\\pL{100}){10})"', "expression too large"),
        ('{app="big"} | regexp "' + "".join(f"(?P<g{n}>.*)" for n in range(300)) + '"', "regular expression"),
    ],
)
def test_hostile_queries_are_refused_by_a_limit_that_they_name(loki: LokiClient, query: str, words: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    given = {**ALL, "query": query}
    response = _posted(loki, "query_range", given)
    assert (response.status_code, words in response.text) == (400, True), response.text[:500]
    assert len(response.text) < 200_000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH


def _posted(loki: LokiClient, path: str, given: dict[str, Any]) -> Any:
    url = f"{loki.url}/loki/api/v1/{path}"
    return httpx.post(url, data=given, headers={"x-api-key": "own"}, timeout=120)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ('{app="big"}', 1),
        ('{app="big"} |~ "(x+x+)+y"', 0),
        ('{app="big"} |~ "(.*)*(.*)*(.*)*x$"', 1),
        ('{app="big"} | json | logfmt | drop __error__, __error_details__', 1),
        ('{app="big"} | pattern `<a>x<b>y<c>`', 1),
        ('{app="deep"} | json | __error__="JSONParserErr" | line_format ""', 1),
        ('{app="deep"} | json b="a.a.a[0]" | line_format ""', 1),
        ('{app="deep"} | unpack | line_format ""', 1),
        ('{app="deep"} |> `<_>{"a":1}<_>` | line_format ""', 1),
        ('{app=~".*", app=~".+"} |~ ".*" | line_format ""', 308),
    ],
)
def test_long_and_deep_lines_are_answered(loki: LokiClient, query: str, count: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = loki.data("query_range", **{**ALL, "query": query}, limit=5000)
    assert sum(len(one["values"]) for one in found["result"]) == count
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH


@pytest.mark.heavy
def test_json_that_is_10_mb_deep_is_answered_within_memory(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    add_lines(lake, OWN, (LogEntry(START + SECOND, '{"a":' * 1_700_000 + "1" + "}" * 1_700_000, DEEP),))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with loki_server(lake) as client:
        for stage in ("json", "unpack"):
            query = f'{{app="deep"}} | {stage} | __error__="JSONParserErr" | line_format ""'
            response = client.get("query_range", **{**ALL, "query": query})
            if stage == "json" and response.status_code == 200:
                assert len(response.json()["data"]["result"]) == 1
            else:
                assert response.status_code == 200 or "query_seconds" in response.text, response.text[:500]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH


def test_limits_hold_one_past_them(lake: Lake) -> None:
    """Each limit is the number of what the lake holds, then one less."""
    many = '{app="many"}'
    series = f"count_over_time({many} | logfmt [1h])"
    labels = '{"app":"many","service_name":"many"}{"detected_level":"unknown"}{}'
    size = sum(len(line_of(number)) + len(labels) for number in range(301))
    for less, status in ((0, 200), (1, 400)):
        limits = LokiLimits(5000, LogLimits(301 - less, 301), size - less)
        with loki_server(lake, most=limits) as client:
            by_series = client.get("query", query=series, time=NOW)
            assert (by_series.status_code, "(metrics_max_series)" in by_series.text) == (status, bool(less))
            lines = client.get("query_range", **{**ALL, "query": many}, limit=5000)
            assert (lines.status_code, f"more than {size - less} bytes" in lines.text) == (status, bool(less))
            listed = client.get("series", **{**ALL, "match[]": [many] * 2})
            assert listed.status_code == 200
        with loki_server(lake, most=LokiLimits(5000, LogLimits(1000, 301 - less))) as client:
            samples = client.get("query", query=series, time=NOW)
            assert (samples.status_code, "metrics_max_samples" in samples.text) == (status, bool(less)), samples.text


def test_matchers_of_lists_hold_one_past_their_limit(loki: LokiClient) -> None:
    for count, status in ((255, 200), (256, 400)):
        selector = "{" + ",".join(['app=~".+"', *(f'l{n}!="v"' for n in range(count))]) + "}"
        for path, name in (("labels", "query"), ("series", "match[]"), ("index/stats", "query")):
            response = _posted(loki, path, {"start": START, "end": NOW, name: selector})
            assert response.status_code == status, (path, response.text[:200])
            assert ("the limit is 256" in response.text) == (status == 400)


class WaitingEngine:
    """An engine whose answers wait until they are closed."""

    def __init__(self) -> None:
        self.answers: list[Scripted] = []
        self.asked = threading.Event()

    def answer(self, *_given: Any) -> Scripted:
        self.answers.append(Scripted(["wait"]))
        self.asked.set()
        return self.answers[-1]


def test_a_client_that_leaves_ends_its_query() -> None:
    limits = QueryLimits(Capacity(4, 1000.0, 4, queue_seconds=10.0), lambda: 0.0)
    service = QueryService(Authenticator(lambda _: None, DEFAULT_ORGANIZATION), limits, lambda: NOW)
    engine = WaitingEngine()
    routes = LokiApi(engine, service).routes()  # type: ignore[arg-type]
    server = HttpServer(build_app(routes), bind("127.0.0.1", 0), print)
    server.start()
    selector = quote('{a="b"}')
    try:
        for path in ("query_range", "labels", "index/volume", "series"):
            engine.asked.clear()
            with leaving(f"{server.url}/loki/api/v1/{path}?query={selector}&match={selector}"):
                assert engine.asked.wait(60)
                assert engine.answers[-1].waits.wait(60)
            assert engine.answers[-1].closed.wait(60), path
    finally:
        server.stop()
