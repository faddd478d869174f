"""PromQL at one time and over a range: the request, validated as Prometheus does, and its answer.

An answer is complete or an error status: nothing is sent before all of it is computed. Until then it is held as arrays,
which the engine bounds; their text is written while it is sent. If the client leaves, its query ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.formats.series_json import result_json
from lakerunner.api.prometheus.request import MAX_MS, MIN_MS, Parameters, invalid, read_duration
from lakerunner.api.prometheus.response import (
    BAD_DATA,
    TIMEOUT,
    TRUNCATED,
    PrometheusError,
    account_warnings,
    note_texts,
    query_text,
    to_execution_error,
)
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import Close, stream_response
from lakerunner.model.errors import UserError
from lakerunner.model.time import MS_NS
from lakerunner.promql.language import LOOKBACK_MS
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.metric_answers import MetricsLake
from lakerunner.query.options import SparkIsOff, read_engine
from lakerunner.query.reads import to_json
from lakerunner.query.series_answer import SeriesAnswer, StepGroup
from lakerunner.series.values import Steps

MAX_POINTS = 11_000
_ALL = 1 << 62


@dataclass(frozen=True)
class PromqlRequest:
    """A parsed request. `limit` is the maximum number of series, 0 for all; `timeout_ns` None means the server's
    maximum."""

    question: PromqlQuestion
    limit: int
    timeout_ns: int | None
    stats: str

    @classmethod
    def instant(cls, given: Parameters, now_ns: int) -> PromqlRequest:
        limit = given.count("limit")
        at = given.time("time", now_ns) // MS_NS
        return cls._build(given, Steps(*[_within("time", at)] * 2), limit, now_ns, instant=True)

    @classmethod
    def range(cls, given: Parameters, now_ns: int) -> PromqlRequest:
        limit = given.count("limit")
        start, end = given.time("start"), given.time("end")
        if end < start:
            raise invalid("end", "end timestamp must not be before start time")
        step = given.duration("step")
        if step < MS_NS:
            why = "zero or negative query resolution step widths are not accepted. Try a positive integer"
            raise invalid("step", why)
        if (end - start) // step > MAX_POINTS:
            raise PrometheusError(
                BAD_DATA,
                f"exceeded maximum resolution of {MAX_POINTS:,} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)",
            )
        steps = Steps(_within("start", start // MS_NS), _within("end", end // MS_NS), step // MS_NS)
        return cls._build(given, steps, limit, now_ns, instant=False)

    @classmethod
    def _build(cls, given: Parameters, steps: Steps, limit: int, now_ns: int, *, instant: bool) -> PromqlRequest:
        timeout = given.duration("timeout") if given.text("timeout") else None
        lookback = _lookback(given.text("lookback_delta"))
        question = PromqlQuestion(
            given.text("query"),
            steps,
            instant,
            now_ns,
            lookback,
            given.flag("partial_response"),
            raw=_raw(given.text("tier")),
            engine=_engine(given.text("engine")),
        )
        return cls(question, limit, timeout, given.text("stats"))


def _raw(tier: str) -> bool:
    """Parse `tier`, a parameter of our own: raw reads no rollups."""
    if tier not in ("", "raw"):
        raise invalid("tier", "write raw, or leave it out")
    return tier == "raw"


def _engine(name: str) -> str:
    """Our own: `engine=spark` has Spark's tasks run the units."""
    try:
        return read_engine(name)
    except UserError as error:
        raise invalid("engine", str(error)) from error


def _lookback(text: str) -> int:
    """Parse lookback_delta; return ms."""
    if not text:
        return LOOKBACK_MS
    try:
        lookback = read_duration("lookback_delta", text) // MS_NS
    except PrometheusError as error:
        why = error.message.partition(": ")[2]
        raise PrometheusError(BAD_DATA, f"error parsing lookback delta duration: {why}") from error
    return lookback if lookback > 0 else LOOKBACK_MS


def _within(name: str, time_ms: int) -> int:
    """Check the range of a time; a margin is left for offsets and ranges of the query."""
    margin = 100 * 365 * 86_400_000
    if not MIN_MS + margin <= time_ms <= MAX_MS - margin:
        raise invalid(name, "times range from 1777-09-21 to 2162-04-11")
    return time_ms


@dataclass(frozen=True)
class PromqlQueries:
    """The endpoint of queries, at one time and over a range; `seconds` is the maximum time of one."""

    lake: MetricsLake
    seconds: float

    async def answer(
        self, parse: Callable[[Parameters, int], PromqlRequest], asked: QueryRequest, given: Parameters
    ) -> Response:
        """Answer the query that `parse`, one of PromqlRequest's constructors, reads from the parameters."""
        parsed = parse(given, asked.now_ns())
        began = queued = time.perf_counter()

        def begin() -> SeriesAnswer:
            nonlocal queued
            queued = time.perf_counter()
            try:
                return self.lake.promql(asked.organization, parsed.question)
            except SparkIsOff as error:
                raise invalid("engine", str(error)) from error
            except UserError as error:
                raise invalid("query", query_text(error)) from error

        async def write(answer: SeriesAnswer, close: Close) -> Response:
            groups = await self._groups(answer, parsed)
            spent = time.perf_counter() - began
            return await stream_response(asked.http, _body(answer, groups, parsed, (queued - began, spent)), close)

        return await asked.respond(begin, write)

    async def _groups(self, answer: SeriesAnswer, parsed: PromqlRequest) -> list[StepGroup]:
        timeout = self.seconds if parsed.timeout_ns is None else max(parsed.timeout_ns, 0) / 1e9
        seconds = min(self.seconds, timeout)
        try:
            async with asyncio.timeout(seconds):
                return await to_thread.run_sync(list, answer, abandon_on_cancel=True)
        except TimeoutError:
            why = f"query timed out in expression evaluation: it ran for {seconds:g} s"
            raise PrometheusError(TIMEOUT, why) from None
        except Exception as error:
            raise to_execution_error(error) from error


def _body(
    answer: SeriesAnswer, groups: Sequence[StepGroup], parsed: PromqlRequest, seconds: tuple[float, float]
) -> Iterator[bytes]:
    question, notes, account = parsed.question, answer.notes, answer.account
    kind, result, cut = result_json(groups, question.instant, parsed.limit or _ALL)
    head = b'{"status":"success","data":{"resultType":' + orjson.dumps(kind) + b',"result":'
    stats = b',"stats":' + orjson.dumps(_stats(answer, seconds)) if parsed.stats else b""
    warnings = account_warnings(account) + note_texts(notes, "warning", question.text)
    warnings += [TRUNCATED] if cut else []
    if parsed.stats not in ("", "true", "all"):
        warnings.append(
            f'value "{parsed.stats}" for parameter "stats" is deprecated and will be rejected in the next major '
            'release, use "true" or "all"'
        )
    lists: dict[str, Any] = {"warnings": warnings, "infos": note_texts(notes, "info", question.text)}
    tail = orjson.dumps({name: texts for name, texts in lists.items() if texts})[1:]
    return chain([head], result, [stats + b"}" + (b"," if len(tail) > 1 else b"") + tail])


def _stats(answer: SeriesAnswer, seconds: tuple[float, float]) -> dict[str, Any]:
    """Return those of Prometheus' statistics that have a meaning here, and our own account."""
    queued, spent = seconds
    account = answer.account.to_json()
    prepared = account["seconds"].get("plan", 0.0) + account["seconds"].get("pick", 0.0)
    timings = {
        "evalTotalTime": spent - queued,
        "queryPreparationTime": prepared,
        "execQueueTime": queued,
        "execTotalTime": spent,
    }
    own = {**account, "reads": to_json(answer.reads)}
    return {"timings": timings, "samples": {"samplesRead": account["rows"]}, "lakerunner": own}
