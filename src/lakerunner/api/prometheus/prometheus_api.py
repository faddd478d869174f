"""Prometheus' HTTP API below /prometheus, so that Grafana, promtool and every client of Prometheus can query the lake.

Requests and answers are those of Prometheus; the API key alone determines the organization whose metrics are read.
docs/formats/prometheus_api.md describes every endpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakerunner.api.errors import PROMETHEUS_ROOT
from lakerunner.api.openapi import Endpoint, Operation
from lakerunner.api.prometheus import operations
from lakerunner.api.prometheus.lists import SeriesLists
from lakerunner.api.prometheus.query import PromqlQueries, PromqlRequest
from lakerunner.api.prometheus.request import Parameters, invalid, whole_number
from lakerunner.api.prometheus.response import (
    BAD_DATA,
    PrometheusError,
    account_warnings,
    error_response,
    query_text,
    run_work,
    success_body,
)
from lakerunner.api.prometheus.samples import StoredSeries
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.api.stream import whole_response
from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME, Labels
from lakerunner.model.time import MS_NS
from lakerunner.promql.document import document
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import pretty_text
from lakerunner.query.metric_answers import Listing, MetricsLake
from lakerunner.series.expression import Expression

COMPATIBLE = "3.15.0"  # the version of Prometheus' API and PromQL; clients choose their requests by it
Answer = Callable[[QueryRequest, Parameters], Awaitable[Response]]
HEAD_MS = 2 * 3_600_000  # the time that Prometheus keeps in its head
MOST = 10_000
NO_SCRAPES = (
    "Lakerunner does not scrape targets: point Prometheus' remote_write at /prometheus/api/v1/write, or send OTLP"
)
NO_RULES = "Lakerunner does not evaluate rules: run them in a Prometheus that reads from /prometheus/api/v1/read"
TARGETS: Mapping[str, Any] = {"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}}
SCRAPE_POOLS: Mapping[str, Any] = {"scrapePools": []}
RULES: Mapping[str, Any] = {"groups": []}
ALERTS: Mapping[str, Any] = {"alerts": []}
ALERTMANAGERS: Mapping[str, Any] = {"activeAlertmanagers": [], "droppedAlertmanagers": []}


@dataclass(frozen=True)
class MetricsLimits:
    """Maximum seconds of a query, and maximum rows of a list."""

    seconds: float = 300.0
    series: int = 200_000


@dataclass(frozen=True)
class PrometheusApi:
    """The endpoints. `ready`: whether it can serve."""

    lake: MetricsLake
    service: QueryService
    most: MetricsLimits = field(default_factory=MetricsLimits)
    ready: Callable[[], bool] = lambda: True

    def routes(self) -> list[Route]:
        queries = PromqlQueries(self.lake, self.most.seconds)
        lists = SeriesLists(self.lake, self.most.series)
        status = HeadStatus(self.lake, self.most.series)
        stored = StoredSeries(self.lake)
        both: dict[str, tuple[Answer, Operation]] = {
            "query": (partial(queries.answer, PromqlRequest.instant), operations.QUERY),
            "query_range": (partial(queries.answer, PromqlRequest.range), operations.QUERY_RANGE),
            "query_exemplars": (lists.exemplars, operations.EXEMPLARS),
            "series": (lists.series, operations.SERIES),
            "labels": (lists.label_names, operations.LABELS),
            "format_query": (_format_query, operations.FORMAT),
            "parse_query": (_parse_query, operations.PARSE),
        }
        gets: dict[str, tuple[Answer, Operation]] = {
            "label/{name}/values": (lists.label_values, operations.LABEL_VALUES),
            "metadata": (lists.metadata, operations.METADATA),
            "status/tsdb": (status.tsdb, operations.TSDB),
            "targets": (_always(TARGETS, NO_SCRAPES), operations.TARGETS),
            "targets/metadata": (_always([], NO_SCRAPES), operations.TARGETS_METADATA),
            "scrape_pools": (_always(SCRAPE_POOLS, NO_SCRAPES), operations.SCRAPE_POOLS),
            "rules": (_always(RULES, NO_RULES), operations.RULES),
            "alerts": (_always(ALERTS, NO_RULES), operations.ALERTS),
            "alertmanagers": (_always(ALERTMANAGERS, NO_RULES), operations.ALERTMANAGERS),
            "status/buildinfo": (_always(_build()), operations.BUILD),
        }
        return [
            *(
                self._endpoint(f"/api/v1/{path}", answer, GET=stated, POST=operations.posted(stated))
                for path, (answer, stated) in both.items()
            ),
            *(self._endpoint(f"/api/v1/{path}", answer, GET=stated) for path, (answer, stated) in gets.items()),
            self._endpoint("/federate", stored.federate, GET=operations.FEDERATE),
            self._endpoint("/api/v1/read", stored.read, _no_form, POST=operations.READ),
            Endpoint(f"{PROMETHEUS_ROOT}/-/healthy", self.healthy, GET=operations.HEALTHY),
            Endpoint(f"{PROMETHEUS_ROOT}/-/ready", self.is_ready, GET=operations.READY),
        ]

    async def healthy(self, _request: Request) -> Response:
        return PlainTextResponse("Lakerunner is healthy.\n")

    async def is_ready(self, _request: Request) -> Response:
        ready = self.ready()
        return PlainTextResponse("Lakerunner is ready.\n" if ready else "not yet\n", 200 if ready else 503)

    def _endpoint(
        self,
        path: str,
        answer: Answer,
        parameters: Callable[[Request], Awaitable[Parameters]] = Parameters.read,
        **operations: Operation,
    ) -> Endpoint:
        async def with_parameters(asked: QueryRequest) -> Response:
            return await answer(asked, await parameters(asked.http))

        return self.service.endpoint(PROMETHEUS_ROOT + path, with_parameters, error_response, **operations)


async def _format_query(asked: QueryRequest, given: Parameters) -> Response:
    return whole_response(asked.http, success_body(pretty_text(_parsed(given))))


async def _parse_query(asked: QueryRequest, given: Parameters) -> Response:
    return whole_response(asked.http, success_body(document(_parsed(given))))


def _parsed(given: Parameters) -> Expression:
    try:
        return parse(given.text("query"))
    except UserError as error:
        raise invalid("query", query_text(error)) from error


async def _no_form(_request: Request) -> Parameters:
    """Return no parameters, for an endpoint that reads its body itself."""
    return Parameters(())


def _always(data: Any, *infos: str) -> Answer:
    """Return an endpoint with a constant answer."""

    async def answer(asked: QueryRequest, _given: Parameters) -> Response:
        return whole_response(asked.http, success_body(data, infos=infos))

    return answer


def _build() -> dict[str, str]:
    """Return the build information; Grafana chooses its requests by the version."""
    own = version("lakerunner")
    return {
        "version": COMPATIBLE,
        "revision": f"lakerunner-{own}",
        "branch": "",
        "buildUser": "Lakerunner",
        "buildDate": "",
        "goVersion": "",
        "application": f"Lakerunner {own}",
    }


@dataclass(frozen=True)
class HeadStatus:
    """status/tsdb: counts of the series with a sample in the last two hours, which Prometheus would have in its head.
    At most `most` series are counted, from their label sets, which workers cache."""

    lake: MetricsLake
    most: int

    async def tsdb(self, asked: QueryRequest, given: Parameters) -> Response:
        limit, now_ns = _limit(given.text("limit")), asked.now_ns()
        end = now_ns // MS_NS
        time = end - HEAD_MS, end

        def count() -> tuple[Listing, dict[str, Any]]:
            listing = self.lake.series(asked.organization, [], *time, limit=self.most, now_ns=now_ns)
            return listing, status_of(listing.rows, time, listing.account.read, limit)

        listing, found = await run_work(asked, count)
        warnings = account_warnings(listing.account)
        if listing.truncated:
            warnings.append(f"only {self.most:,} series were counted (metrics_max_series)")
        return whole_response(asked.http, success_body(found, warnings))


def status_of(series: Iterable[Labels], time: tuple[int, int], chunks: int, limit: int) -> dict[str, Any]:
    """Return the data of Prometheus' status/tsdb; `chunks` is the number of segments that were read."""
    pairs: Counter[tuple[str, str]] = Counter()
    count = 0
    for labels in series:
        pairs.update(labels)
        count += 1
    values: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for (name, value), number in pairs.items():
        values[name] += 1
        memory[name] += (len(name.encode()) + len(value.encode()) + 2) * number  # as Prometheus stores labels
    metrics = {value: number for (name, value), number in pairs.items() if name == NAME}
    stats = {"numSeries": count, "numLabelPairs": len(pairs), "chunkCount": chunks}
    return {
        "headStats": {**stats, "minTime": time[0], "maxTime": time[1]},
        "seriesCountByMetricName": _first(metrics, limit),
        "labelValueCountByLabelName": _first(values, limit),
        "memoryInBytesByLabelName": _first(memory, limit),
        "seriesCountByLabelValuePair": _first({f"{n}={v}": number for (n, v), number in pairs.items()}, limit),
    }


def _first(counts: Mapping[str, int], limit: int) -> list[dict[str, Any]]:
    """Return the largest counts, equal ones by name."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:limit]
    return [{"name": name, "value": value} for name, value in ordered]


def _limit(text: str) -> int:
    limit = whole_number(text) if text else 10
    if limit is None or limit < 1:
        raise PrometheusError(BAD_DATA, "limit must be a positive number")
    if limit > MOST:
        raise PrometheusError(BAD_DATA, f"limit must not exceed {MOST}")
    return limit
