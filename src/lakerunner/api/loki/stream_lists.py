"""Lists of labels, values, series, and sizes of streams, as Loki returns them.

Comes in: parameters. Goes out: Loki's JSON, made of one list of streams (logql/stream_list.py). What always holds: the
lines of [start, end) count; sizes are the exact bytes of lines, where Loki estimates them from chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_json import MATRIX, VECTOR, number_text, selector_text
from lakerunner.api.loki.log_parameters import DEFAULT_LIMIT, LogParameters
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.loki.loki_errors import LokiError, to_query_error
from lakerunner.api.loki.query_stats import query_stats
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import Close, whole_response
from lakerunner.logql.stream_list import LogStreams, Selectors, read_matchers, read_series_matchers, streams_plan
from lakerunner.logql.text.parse import MAX_MATCHERS
from lakerunner.model.labels.matcher import Matcher, Matchers
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from lakerunner.model.time import MS_NS, TimeRange
from lakerunner.query.contract.account import Account
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options

_ANY = "{}"
_STATIC = frozenset(("cluster", "namespace", "instance", "pod"))  # shown however their values look


class StreamRow(NamedTuple):
    labels: dict[str, str]
    bucket: int
    entries: int
    bytes: int


@dataclass(frozen=True)
class StreamRows:
    """A list of streams, what it took, and how many seconds."""

    rows: Sequence[StreamRow]
    account: Account
    seconds: float

    def label_names(self) -> list[str]:
        return sorted({name for row in self.rows for name in row.labels})

    def values(self, name: str) -> list[str]:
        return sorted({row.labels[name] for row in self.rows if name in row.labels})


Write = Callable[[StreamRows], Any]


@dataclass(frozen=True)
class StreamLists:
    """The endpoints of lists."""

    engine: Engine
    most: LokiLimits
    rules: KnownRules

    async def label_names(self, asked: QueryRequest, given: LogParameters) -> Response:
        return await self._labels(asked, given, lambda found: _texts(found.label_names()))

    async def label_values(self, asked: QueryRequest, given: LogParameters) -> Response:
        name = given.path["name"]
        return await self._labels(asked, given, lambda found: _texts(found.values(name)))

    async def legacy_names(self, asked: QueryRequest, given: LogParameters) -> Response:
        return await self._labels(asked, given, lambda found: {"values": found.label_names()})

    async def legacy_values(self, asked: QueryRequest, given: LogParameters) -> Response:
        name = given.path["name"]
        return await self._labels(asked, given, lambda found: {"values": found.values(name)})

    async def series(self, asked: QueryRequest, given: LogParameters) -> Response:
        bounds = given.bounds(asked.now_ns())
        texts = sorted({*given.all("match"), *given.all("match[]")})
        if [text.replace(" ", "") for text in texts] == [_ANY]:
            texts = []
        selectors = tuple(map(read_series_matchers, texts))
        if (count := sum(map(len, selectors))) > MAX_MATCHERS:
            raise LokiError(f"the selectors have {count} matchers, the limit is {MAX_MATCHERS}")
        streams = self._streams(selectors)
        return await self._list(asked, streams, bounds, lambda found: _all([row.labels for row in found.rows]))

    async def stats(self, asked: QueryRequest, given: LogParameters) -> Response:
        bounds = given.ordered_bounds(asked.now_ns())
        streams = self._streams((read_matchers(given.text("query")),), sized=True)
        return await self._list(asked, streams, bounds, _index_stats)

    async def volume(self, asked: QueryRequest, given: LogParameters) -> Response:
        request = VolumeRequest.read(given, given.ordered_bounds(asked.now_ns()), 0)
        return await self._volume(asked, request)

    async def volume_range(self, asked: QueryRequest, given: LogParameters) -> Response:
        bounds = given.ordered_bounds(asked.now_ns())
        step = max(given.step(*bounds) // MS_NS, 1) * MS_NS
        return await self._volume(asked, VolumeRequest.read(given, bounds, step))

    async def detected_labels(self, asked: QueryRequest, given: LogParameters) -> Response:
        bounds = given.ordered_bounds(asked.now_ns())
        return await self._list(asked, self._streams(_optional(given.text("query"))), bounds, _detected)

    async def _labels(self, asked: QueryRequest, given: LogParameters, write: Write) -> Response:
        bounds = given.bounds(asked.now_ns())
        text = given.text("query")
        return await self._list(asked, self._streams((read_matchers(text),) if text else ()), bounds, write)

    async def _volume(self, asked: QueryRequest, request: VolumeRequest) -> Response:
        streams = self._streams(request.selectors, sized=True, bucket_ns=request.step_ns)
        return await self._list(asked, streams, request.bounds, request.answer)

    def _streams(self, selectors: Selectors, *, sized: bool = False, bucket_ns: int = 0) -> LogStreams:
        return LogStreams(selectors, DEFAULT_RULES, bucket_ns, sized)

    async def _list(self, asked: QueryRequest, streams: LogStreams, bounds: tuple[int, int], write: Write) -> Response:
        began, now_ns = time.perf_counter(), asked.now_ns()
        start, end = bounds
        if end < start:  # as Loki answers for labels and series
            return whole_response(asked.http, orjson.dumps(write(StreamRows((), Account(), 0.0))))
        within = TimeRange(start, max(end, start + 1))

        def begin() -> Any:
            own = replace(streams, rules=self.rules.of(asked.organization))
            return self.engine.answer(asked.organization, streams_plan(own, within), Options(now_ns))

        async def respond(answer: Any, close: Close) -> Response:
            rows = await to_thread.run_sync(self._read, answer, abandon_on_cancel=True)
            found = StreamRows(rows, answer.account, time.perf_counter() - began)
            await to_thread.run_sync(close)
            return whole_response(asked.http, orjson.dumps(write(found)))

        try:
            return await asked.respond(begin, respond)
        except Exception as error:
            raise to_query_error(error) from error

    def _read(self, answer: Any) -> list[StreamRow]:
        rows: list[StreamRow] = []
        for batch in answer:
            rows += (_row(one) for one in batch.to_pylist())
            self.most.query.check_series(len(rows))
        return rows


def _row(one: dict[str, Any]) -> StreamRow:
    return StreamRow(orjson.loads(one["stream"]), one["bucket"], one["entries"], one["bytes"])


def _optional(text: str) -> Selectors:
    """Parse a selector that may be missing or empty: then all streams are meant."""
    return () if text.replace(" ", "") in ("", _ANY) else (read_matchers(text),)


def _texts(data: list[str]) -> dict[str, Any]:
    """Return a list of texts as Loki does: without `data` if it is empty."""
    return _all(data) if data else {"status": "success"}


def _all(data: list[Any]) -> dict[str, Any]:
    return {"status": "success", "data": data}


def _index_stats(found: StreamRows) -> dict[str, int]:
    return {
        "streams": len(found.rows),
        "chunks": found.account.read,
        "bytes": sum(row.bytes for row in found.rows),
        "entries": sum(row.entries for row in found.rows),
    }


def _detected(found: StreamRows) -> dict[str, Any]:
    """Return the labels to show first, with the number of their values; those whose values are only ids or numbers are
    left out, as in Loki."""
    labels = ((name, found.values(name)) for name in found.label_names())
    shown = [(name, values) for name, values in labels if name in _STATIC or not all(map(_is_id, values))]
    return {"detectedLabels": [{"label": name, "cardinality": len(values)} for name, values in shown]}


def _is_id(value: str) -> bool:
    for read in (float, UUID):
        try:
            read(value)
        except ValueError:
            continue
        return True
    return False


# ---- volumes


@dataclass(frozen=True)
class VolumeRequest:
    """Which streams, and by what their bytes are added: by series, as far as the labels of `targets`, of the selector
    if there are none, or all labels without a selector; or by the names of labels. `step_ns` 0: one sum for all."""

    selectors: Selectors
    targets: tuple[str, ...]
    by_series: bool
    limit: int
    bounds: tuple[int, int]
    step_ns: int

    @classmethod
    def read(cls, given: LogParameters, bounds: tuple[int, int], step_ns: int) -> VolumeRequest:
        limit, by = given.limit(zero=DEFAULT_LIMIT), given.text("aggregateBy") or "series"
        if by not in ("series", "labels"):
            raise LokiError("invalid aggregation option")
        targets = given.texts("targetLabels")
        matchers = (*_volume_matchers(given.text("query")), *(Matcher(name, "=~", ".+") for name in targets))
        return cls((matchers,) if matchers else (), targets, by == "series", limit, bounds, step_ns)

    def answer(self, found: StreamRows) -> dict[str, Any]:
        samples: dict[str, dict[int, int]] = {}
        metrics: dict[str, dict[str, str]] = {}
        for time_ms, volumes in self._by_time(found.rows):
            for name in sorted(volumes, key=lambda one: (-volumes[one][1], one))[: self.limit]:
                metrics[name], size = volumes[name]
                samples.setdefault(name, {})[time_ms] = size
        ordered = sorted(samples, key=lambda name: (-next(iter(samples[name].values())), name))
        matrix = any(len(own) > 1 for own in samples.values())
        result = [_series(metrics[name], samples[name], matrix=matrix) for name in ordered]
        entries = sum(row.entries for row in found.rows)
        stats = query_stats(found.account, found.seconds, entries)
        data = {"resultType": MATRIX if matrix else VECTOR, "result": result, "stats": stats}
        return {"status": "success", "data": data}

    def _by_time(self, rows: Iterable[StreamRow]) -> list[tuple[int, dict[str, tuple[dict[str, str], int]]]]:
        """Return the time in ms and the sums, by name, of each interval."""
        found: dict[int, dict[str, tuple[dict[str, str], int]]] = {}
        for row in rows:
            volumes = found.setdefault(self._time_ms(row.bucket), {})
            for name, metric in self._names(row.labels):
                volumes[name] = metric, volumes.get(name, (metric, 0))[1] + row.bytes
        return sorted(found.items())

    def _names(self, labels: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
        targets = self.targets
        if not self.by_series:
            return [(name, {name: ""}) for name in labels if not targets or name in targets]
        targets = targets or tuple(one.name for matchers in self.selectors for one in matchers)
        kept = {name: labels[name] for name in labels if not targets or name in targets}
        return [(selector_text(kept), kept)]

    def _time_ms(self, bucket: int) -> int:
        """Return the end of an interval, as Loki writes it: a ms before the next one, or the end of the request."""
        next_ns, end_ns = (bucket + 1) * self.step_ns, self.bounds[1]
        return next_ns // MS_NS - 1 if self.step_ns and next_ns < end_ns else end_ns // MS_NS


def _volume_matchers(text: str) -> Matchers:
    return next(iter(_optional(text)), ())


def _series(metric: dict[str, str], samples: dict[int, int], *, matrix: bool) -> dict[str, Any]:
    pairs = [[_seconds(time_ms), number_text(float(size))] for time_ms, size in sorted(samples.items())]
    return {"metric": metric, "values": pairs} if matrix else {"metric": metric, "value": pairs[0]}


def _seconds(time_ms: int) -> float | int:
    return time_ms / 1000 if time_ms % 1000 else time_ms // 1000
