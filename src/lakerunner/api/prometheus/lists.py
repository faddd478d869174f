"""Lists of series, labels, label values, metadata and exemplars, as Prometheus returns them.

A list is complete, or a warning says that it was cut: at the `limit` of the request, or at that of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response

from lakerunner.api.formats.series_json import labels_json, stamp
from lakerunner.api.prometheus.request import MIN_MS, Parameters, invalid, unescaped_label, whole_number
from lakerunner.api.prometheus.response import (
    BAD_DATA,
    TRUNCATED,
    PrometheusError,
    account_warnings,
    query_text,
    run_work,
    success_body,
)
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import whole_response
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.time import MAX_NS, MIN_NS, MS_NS
from lakerunner.promql.parse import parse, parse_selector
from lakerunner.query.contract.account import Account
from lakerunner.query.metric_answers import Listing, MetricsLake
from lakerunner.series.expression import Expression, Selector, parts
from lakerunner.series.numerals import json_number

Selectors = list[tuple[Matcher, ...]]
Find = Callable[..., Listing]
MAX_SELECTORS = 256


@dataclass(frozen=True)
class SeriesLists:
    """The endpoints of lists. `most` is the maximum number of rows of a request without a limit."""

    lake: MetricsLake
    most: int

    async def series(self, asked: QueryRequest, given: Parameters) -> Response:
        if not given.all("match[]"):
            raise PrometheusError(BAD_DATA, "no match[] parameter provided")
        return await self._list(asked, given, self.lake.series, series=True)

    async def label_names(self, asked: QueryRequest, given: Parameters) -> Response:
        return await self._list(asked, given, self.lake.label_names)

    async def label_values(self, asked: QueryRequest, given: Parameters) -> Response:
        name = unescaped_label(given.path["name"])
        if not name:
            raise PrometheusError(BAD_DATA, 'invalid label name: ""')
        return await self._list(asked, given, self.lake.label_values, name)

    async def metadata(self, asked: QueryRequest, given: Parameters) -> Response:
        limit, per_metric = _number(given, "limit"), _number(given, "limit_per_metric")
        if limit == 0:
            return whole_response(asked.http, success_body({}))
        listed = partial(
            self.lake.metadata, asked.organization, metric=given.text("metric") or None, now_ns=asked.now_ns()
        )
        most, per_metric = limit if limit > 0 else self.most, max(per_metric, 0)
        listing = await run_work(asked, lambda: listed(limit=most, limit_per_metric=per_metric))
        found: dict[str, list[dict[str, str]]] = {}
        for metric, type_, help_, unit in listing.rows:
            found.setdefault(metric, []).append({"type": type_, "help": help_, "unit": unit})
        return self._response(asked, listing, found, max(limit, 0))

    async def exemplars(self, asked: QueryRequest, given: Parameters) -> Response:
        start, end = _time_range(given)
        if end < start:
            raise PrometheusError(BAD_DATA, "end timestamp must not be before start timestamp")
        try:
            selectors = selectors_in(parse(given.text("query")))
        except UserError as error:
            raise PrometheusError(BAD_DATA, query_text(error)) from error
        if not selectors:
            return whole_response(asked.http, success_body([]))
        listed = partial(self.lake.exemplars, asked.organization, selectors, start, end, asked.now_ns())
        listing = await run_work(asked, listed)
        rows = b",".join(_exemplars(labels, exemplars) for labels, exemplars in listing.rows)
        warnings = account_warnings(listing.account)
        tail = orjson.dumps({"warnings": warnings})[1:] if warnings else b"}"
        body = b'{"status":"success","data":[' + rows + b"]" + (b"," if warnings else b"") + tail
        return whole_response(asked.http, body)

    async def _list(
        self, asked: QueryRequest, given: Parameters, find: Find, *of: str, series: bool = False
    ) -> Response:
        """Respond with what the selectors of the request match, or with an empty list if the end is before the start.
        A list of series names the parameter of a wrong selector, as in Prometheus."""
        limit, (start, end) = given.count("limit"), _time_range(given)
        try:
            selectors = read_selectors(given.all("match[]"))
        except PrometheusError as error:
            raise invalid("match[]", error.message) if series else error from None
        most, now_ns = limit or self.most, asked.now_ns()
        listed = partial(find, asked.organization, *of, selectors, start, end, limit=most, now_ns=now_ns)
        listing = await run_work(asked, listed) if start <= end else Listing([], False, Account())
        rows = [dict(labels) for labels in listing.rows] if series else listing.rows
        return self._response(asked, listing, rows, limit)

    def _response(self, asked: QueryRequest, listing: Listing, data: Any, limit: int) -> Response:
        warnings = account_warnings(listing.account)
        if listing.truncated:
            warnings.append(TRUNCATED if limit else f"{TRUNCATED} metrics_max_series {self.most}")
        return whole_response(asked.http, success_body(data, warnings))


def read_selectors(texts: Sequence[str]) -> Selectors:
    """Parse the selectors of `match[]`, each once; one that could match every series is refused, as in Prometheus."""
    found: dict[tuple[Matcher, ...], None] = {}
    for text in texts:
        try:
            found[parse_selector(text)] = None
        except UserError as error:
            raise PrometheusError(BAD_DATA, query_text(error)) from error
    return _check_count(list(found))


def selectors_in(expression: Expression) -> Selectors:
    """Return the matchers of every selector of an expression, in order, each once."""
    found: dict[tuple[Matcher, ...], None] = {}
    waiting = [expression]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, Selector):
            found[one.matchers] = None
        waiting = [*parts(one), *waiting]
    return _check_count(list(found))


def _check_count(selectors: Selectors) -> Selectors:
    """Limit the number of selectors: each is searched by itself, in the index and in segments."""
    if len(selectors) > MAX_SELECTORS:
        raise UserError(f"{len(selectors)} selectors; at most {MAX_SELECTORS} can be listed at once")
    return selectors


def _time_range(given: Parameters) -> tuple[int, int]:
    """Return start and end in ms, both included; the end may be before the start."""
    start, end = given.time("start", MIN_NS), given.time("end", MAX_NS)
    return max(start // MS_NS, MIN_MS), end // MS_NS


def _number(given: Parameters, name: str) -> int:
    """Parse a number; -1 if the parameter is missing."""
    found = whole_number(given.text(name) or "-1")
    if found is None:
        raise PrometheusError(BAD_DATA, f"{name} must be a number")
    return found


def _exemplars(labels: Labels, exemplars: Sequence[dict[str, Any]]) -> bytes:
    written = (
        b'{"labels":%s,"value":"%s","timestamp":%s}'
        % (labels_json(one["labels"]), json_number(one["value"]).encode(), stamp(one["timestamp"]))
        for one in exemplars
    )
    return b'{"seriesLabels":%s,"exemplars":[%s]}' % (labels_json(labels), b",".join(written))
