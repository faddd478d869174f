"""PromQL at one moment and over a range: what is asked, checked as Prometheus checks it, and its answer.

An answer is whole or an error with its status: nothing is sent before all of it is worked out. What is held until then
are arrays, which the engine bounds; their text is made while it is sent. A client that leaves ends its query.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from lakerunner.api.answering import Close, respond
from lakerunner.api.formats.prometheus_json import result_json
from lakerunner.api.limits import QueryLimits
from lakerunner.api.prometheus.error_types import BAD_DATA, TIMEOUT, Refused, query_text, running
from lakerunner.api.prometheus.request import MAX_MS, MIN_MS, Parameters, invalid, read_duration
from lakerunner.api.prometheus.response import TRUNCATED, account_warnings, notes_texts, streamed
from lakerunner.model.caller import Caller
from lakerunner.model.errors import UserError
from lakerunner.model.time import MS_NS
from lakerunner.promql.language import LOOKBACK_MS
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.metrics.answer import MetricsLake
from lakerunner.query.metrics.reads import to_json
from lakerunner.query.series_answer import Group, SeriesAnswer
from lakerunner.series.values import Steps

MAX_POINTS = 11_000
_ALL = 1 << 62


@dataclass(frozen=True)
class Asked:
    """`limit` on series, 0: none; `timeout_ns` None: as long as any query may run."""

    question: PromqlQuestion
    limit: int
    timeout_ns: int | None
    stats: str

    @classmethod
    def instant(cls, given: Parameters, now_ns: int) -> Asked:
        limit = given.count("limit")
        at = given.time("time", now_ns) // MS_NS
        return cls._of(given, Steps(*[_within("time", at)] * 2), limit, now_ns, instant=True)

    @classmethod
    def range(cls, given: Parameters, now_ns: int) -> Asked:
        limit = given.count("limit")
        start, end = given.time("start"), given.time("end")
        if end < start:
            raise invalid("end", "end timestamp must not be before start time")
        step = given.duration("step")
        if step < MS_NS:
            why = "zero or negative query resolution step widths are not accepted. Try a positive integer"
            raise invalid("step", why)
        if (end - start) // step > MAX_POINTS:
            raise Refused(
                BAD_DATA,
                f"exceeded maximum resolution of {MAX_POINTS:,} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)",
            )
        steps = Steps(_within("start", start // MS_NS), _within("end", end // MS_NS), step // MS_NS)
        return cls._of(given, steps, limit, now_ns, instant=False)

    @classmethod
    def _of(cls, given: Parameters, steps: Steps, limit: int, now_ns: int, *, instant: bool) -> Asked:
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
        )
        return cls(question, limit, timeout, given.text("stats"))


def _raw(tier: str) -> bool:
    """Our own: `tier=raw` reads no rollups."""
    if tier not in ("", "raw"):
        raise invalid("tier", "write raw, or leave it out")
    return tier == "raw"


def _lookback(text: str) -> int:
    """In ms."""
    if not text:
        return LOOKBACK_MS
    try:
        asked = read_duration("lookback_delta", text) // MS_NS
    except Refused as error:
        why = error.message.partition(": ")[2]
        raise Refused(BAD_DATA, f"error parsing lookback delta duration: {why}") from error
    return asked if asked > 0 else LOOKBACK_MS


def _within(name: str, time_ms: int) -> int:
    """Room is left for what a query looks back on."""
    margin = 100 * 365 * 86_400_000
    if not MIN_MS + margin <= time_ms <= MAX_MS - margin:
        raise invalid(name, "times range from 1777-09-21 to 2162-04-11")
    return time_ms


@dataclass(frozen=True)
class Queries:
    """`seconds` is how long a query may run at most."""

    lake: MetricsLake
    limits: QueryLimits
    seconds: float

    async def answer(self, request: Request, caller: Caller, asked: Asked) -> Response:
        began = queued = time.perf_counter()

        def begin() -> SeriesAnswer:
            nonlocal queued
            queued = time.perf_counter()
            try:
                return self.lake.promql(caller.organization.id, asked.question)
            except UserError as error:
                raise invalid("query", query_text(error)) from error

        async def write(answer: SeriesAnswer, close: Close) -> Response:
            groups = await self._groups(answer, asked)
            spent = time.perf_counter() - began
            return await streamed(request, _body(answer, groups, asked, (queued - began, spent)), close)

        return await respond(request, self.limits, caller, begin, write)

    async def _groups(self, answer: SeriesAnswer, asked: Asked) -> list[Group]:
        asked_for = self.seconds if asked.timeout_ns is None else max(asked.timeout_ns, 0) / 1e9
        seconds = min(self.seconds, asked_for)
        try:
            async with asyncio.timeout(seconds):
                return await to_thread.run_sync(list, answer, abandon_on_cancel=True)
        except TimeoutError:
            why = f"query timed out in expression evaluation: it ran for {seconds:g} s"
            raise Refused(TIMEOUT, why) from None
        except Exception as error:
            raise running(error) from error


def _body(answer: SeriesAnswer, groups: Sequence[Group], asked: Asked, seconds: tuple[float, float]) -> Iterator[bytes]:
    question, notes, account = asked.question, answer.notes, answer.account
    kind, result, cut = result_json(groups, question.instant, asked.limit or _ALL)
    head = b'{"status":"success","data":{"resultType":' + orjson.dumps(kind) + b',"result":'
    stats = b',"stats":' + orjson.dumps(_stats(answer, seconds)) if asked.stats else b""
    warnings = account_warnings(account) + notes_texts(notes, "warning", question.text)
    warnings += [TRUNCATED] if cut else []
    if asked.stats not in ("", "true", "all"):
        warnings.append(
            f'value "{asked.stats}" for parameter "stats" is deprecated and will be rejected in the next major '
            'release, use "true" or "all"'
        )
    said: dict[str, Any] = {"warnings": warnings, "infos": notes_texts(notes, "info", question.text)}
    tail = orjson.dumps({name: texts for name, texts in said.items() if texts})[1:]
    return chain([head], result, [stats + b"}" + (b"," if len(tail) > 1 else b"") + tail])


def _stats(answer: SeriesAnswer, seconds: tuple[float, float]) -> dict[str, Any]:
    """Those of Prometheus' statistics that have a meaning here, and our own account."""
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
