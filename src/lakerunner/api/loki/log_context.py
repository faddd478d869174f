"""The lines before and after a line of a stream, over HTTP. docs/formats/native_api.md describes the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.loki.log_parameters import LogParameters
from lakerunner.api.loki.log_queries import LokiLimits
from lakerunner.api.loki.loki_errors import LokiError
from lakerunner.api.loki.plan_response import PlanResponse
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import Close, whole_response
from lakerunner.logql.line_context import PLACE, ContextQuestion, read_stream
from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.time import DAY_NS

DEFAULT_LINES = 10
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class ContextAnswer:
    """The answers of the lines before the time, at it and after it, which are read one after the other."""

    parts: tuple[Any, ...]

    def close(self) -> None:
        for part in self.parts:
            part.close()


@dataclass(frozen=True)
class LogContext:
    """The endpoint."""

    plans: PlanResponse
    most: LokiLimits

    async def context(self, asked: QueryRequest) -> Response:
        given = await LogParameters.read(asked.http)
        try:
            question = self._question(given, asked.now_ns())
        except LokiError as error:
            raise UserError(error.message) from None
        position = given.text("position")

        def begin() -> ContextAnswer:
            now_ns = asked.now_ns()
            plans = question.plans(self.plans.rules.of(asked.organization), now_ns)
            return ContextAnswer(tuple(self.plans.begin(asked, lambda *_, own=own: own, "") for own in plans))

        async def respond(answer: ContextAnswer, close: Close) -> Response:
            body = await to_thread.run_sync(_body, answer, question, position, abandon_on_cancel=True)
            await to_thread.run_sync(close)
            return whole_response(asked.http, body)

        return await asked.respond(begin, respond)

    def _question(self, given: LogParameters, now_ns: int) -> ContextQuestion:
        if not given.text("time"):
            raise UserError("parameter time is missing: write the time of the line in ns")
        stream, time_ns = read_stream(given.text("stream")), given.time("time", now_ns)
        before, after = (given.number(name, DEFAULT_LINES, self.most.entries) for name in ("before", "after"))
        start, end = given.time("start", time_ns - DAY_NS), given.time("end", time_ns + DAY_NS)
        return ContextQuestion(stream, time_ns, before, after, start, end, self.most.entries)


def _body(answer: ContextAnswer, question: ContextQuestion, position: str) -> bytes:
    before, at, after = (list(_lines(part)) for part in answer.parts)
    before.reverse()
    if len(at) == question.most_at:
        raise TooLarge(f"the stream has {question.most_at} lines or more at {question.time_ns}: use export")
    if position:
        place = next((number for number, line in enumerate(at) if line["position"] == position), None)
        if place is None:
            raise UserError(f"no line at {question.time_ns} has position {position[:100]!r}: request it without one")
        before, at, after = [*before, *at[:place]], [at[place]], [*at[place + 1 :], *after]
    found = {
        "stream": question.stream,
        "before": before[len(before) - min(question.before, len(before)) :],
        "at": at,
        "after": after[: question.after],
    }
    return orjson.dumps(found)


def _lines(batches: Iterable[Any]) -> Iterable[dict[str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {
                "timestamp": str(row["timestamp"]),
                "line": row["line"],
                "metadata": orjson.loads(row["metadata"]),
                "position": ".".join(str(row[name]) for name in PLACE),
            }
