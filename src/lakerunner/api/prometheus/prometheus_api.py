"""Prometheus' HTTP API below /prometheus, so that Grafana, promtool and every client of Prometheus can ask the lake.

Comes in: requests as Prometheus' API takes them, with an API key, which alone says whose metrics are asked about. Goes
out: Prometheus' JSON. docs/formats/prometheus_api.md states every endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.errors import PROMETHEUS_ROOT
from lakerunner.api.limits import QueryLimits
from lakerunner.api.openapi import Endpoint, Handler, Operation
from lakerunner.api.prometheus import operations as said
from lakerunner.api.prometheus.error_types import error_response, query_text
from lakerunner.api.prometheus.lists import Lists
from lakerunner.api.prometheus.query import Asked, Queries
from lakerunner.api.prometheus.request import Parameters, invalid
from lakerunner.api.prometheus.response import success, whole
from lakerunner.api.prometheus.samples import StoredSeries
from lakerunner.api.prometheus.server_status import (
    ALERTMANAGERS,
    ALERTS,
    NO_RULES,
    NO_SCRAPES,
    RULES,
    SCRAPE_POOLS,
    TARGETS,
    HeadStatus,
)
from lakerunner.api.stopping import Stopping, is_cut_off
from lakerunner.model.caller import Caller, Role
from lakerunner.model.errors import UserError
from lakerunner.promql.document import document
from lakerunner.promql.parse import parse
from lakerunner.promql.pretty import pretty_text
from lakerunner.query.metrics.answer import MetricsLake
from lakerunner.series.expression import Expression

COMPATIBLE = "3.15.0"  # the Prometheus whose API and PromQL this is; clients look here for what they may ask
Answer = Callable[[Request, Caller, Parameters, int], Awaitable[Response]]


@dataclass(frozen=True)
class MetricsLimits:
    """How long a query may run, and how many rows a list has at most."""

    seconds: float = 300.0
    series: int = 200_000


@dataclass(frozen=True)
class PrometheusApi:
    """`now_ns` is the clock, handed in; `limits` are those of all queries; `ready`: whether the process can serve."""

    lake: MetricsLake
    authenticator: Authenticator
    now_ns: Callable[[], int]
    limits: QueryLimits
    most: MetricsLimits = field(default_factory=MetricsLimits)
    ready: Callable[[], bool] = lambda: True

    def routes(self) -> list[Route]:
        lists = Lists(self.lake, self.limits, self.most.series)
        status = HeadStatus(self.lake, self.limits, self.most.series)
        stored = StoredSeries(self.lake, self.limits)
        both: dict[str, tuple[Answer, Operation]] = {
            "query": (self.query, said.QUERY),
            "query_range": (self.query_range, said.QUERY_RANGE),
            "query_exemplars": (lists.exemplars, said.EXEMPLARS),
            "series": (lists.series, said.SERIES),
            "labels": (lists.label_names, said.LABELS),
            "format_query": (self.format_query, said.FORMAT),
            "parse_query": (self.parse_query, said.PARSE),
        }
        gets: dict[str, tuple[Answer, Operation]] = {
            "label/{name}/values": (lists.label_values, said.LABEL_VALUES),
            "metadata": (lists.metadata, said.METADATA),
            "status/tsdb": (status.tsdb, said.TSDB),
            "targets": (_always(TARGETS, NO_SCRAPES), said.TARGETS),
            "targets/metadata": (_always([], NO_SCRAPES), said.TARGETS_METADATA),
            "scrape_pools": (_always(SCRAPE_POOLS, NO_SCRAPES), said.SCRAPE_POOLS),
            "rules": (_always(RULES, NO_RULES), said.RULES),
            "alerts": (_always(ALERTS, NO_RULES), said.ALERTS),
            "alertmanagers": (_always(ALERTMANAGERS, NO_RULES), said.ALERTMANAGERS),
            "status/buildinfo": (_always(_build()), said.BUILD),
        }
        routes: list[Route] = [
            Endpoint(f"{PROMETHEUS_ROOT}/api/v1/{path}", self._told(answer), GET=stated, POST=said.posted(stated))
            for path, (answer, stated) in both.items()
        ]
        routes += [
            Endpoint(f"{PROMETHEUS_ROOT}/api/v1/{path}", self._told(answer), GET=stated)
            for path, (answer, stated) in gets.items()
        ]
        routes.append(Endpoint(f"{PROMETHEUS_ROOT}/federate", self._told(stored.federate), GET=said.FEDERATE))
        routes.append(Endpoint(f"{PROMETHEUS_ROOT}/api/v1/read", self._told(stored.read, _no_form), POST=said.READ))
        routes.append(Endpoint(f"{PROMETHEUS_ROOT}/-/healthy", self.healthy, GET=said.HEALTHY))
        routes.append(Endpoint(f"{PROMETHEUS_ROOT}/-/ready", self.is_ready, GET=said.READY))
        return routes

    async def query(self, request: Request, caller: Caller, given: Parameters, now_ns: int) -> Response:
        return await self._queries.answer(request, caller, Asked.instant(given, now_ns))

    async def query_range(self, request: Request, caller: Caller, given: Parameters, now_ns: int) -> Response:
        return await self._queries.answer(request, caller, Asked.range(given, now_ns))

    async def format_query(self, request: Request, _caller: Caller, given: Parameters, _now_ns: int) -> Response:
        return whole(request, success(pretty_text(_parsed(given))))

    async def parse_query(self, request: Request, _caller: Caller, given: Parameters, _now_ns: int) -> Response:
        return whole(request, success(document(_parsed(given))))

    async def healthy(self, _request: Request) -> Response:
        return PlainTextResponse("Lakerunner is healthy.\n")

    async def is_ready(self, _request: Request) -> Response:
        ready = self.ready()
        return PlainTextResponse("Lakerunner is ready.\n" if ready else "not yet\n", 200 if ready else 503)

    @property
    def _queries(self) -> Queries:
        return Queries(self.lake, self.limits, self.most.seconds)

    def _told(self, answer: Answer, parameters: Callable[[Request], Awaitable[Parameters]] = Parameters.of) -> Handler:
        """The endpoint: who asks, what, and every error in Prometheus' form."""

        async def endpoint(request: Request) -> Response:
            try:
                caller = await self.authenticator.admit(request, Role.READ)
                return await answer(request, caller, await parameters(request), self.now_ns())
            except asyncio.CancelledError:
                if not is_cut_off():
                    raise
                return error_response(Stopping())
            except Exception as error:  # noqa: BLE001 - told to the client, and logged where it is a bug
                return error_response(error)

        return endpoint


def _parsed(given: Parameters) -> Expression:
    try:
        return parse(given.text("query"))
    except UserError as error:
        raise invalid("query", query_text(error)) from error


async def _no_form(_request: Request) -> Parameters:
    """For a body that its endpoint reads itself."""
    return Parameters(())


def _always(data: Any, *infos: str) -> Answer:
    async def answer(request: Request, _caller: Caller, _given: Parameters, _now_ns: int) -> Response:
        return whole(request, success(data, infos=infos))

    return answer


def _build() -> dict[str, str]:
    """As Prometheus tells of its build; Grafana reads the version and chooses by it what it asks."""
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
