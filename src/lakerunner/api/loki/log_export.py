"""Export all lines of a log query, however many: NDJSON, CSV or Parquet, streamed.

Comes in: a log query, a range of time, a direction and a format. Goes out: every line with its labels by kind. What
always holds: rows are sent as they are computed and none is held longer than its batch, or its row group of Parquet; an
export that fails is cut off, and Parquet then lacks its footer; if the client leaves, the query ends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from starlette.responses import Response

from lakerunner.api.formats.format import Format, stream_chunks, write_batches
from lakerunner.api.formats.parquet_stream import ParquetStream
from lakerunner.api.formats.row_formats import CSV, NDJSON, PARQUET
from lakerunner.api.loki.line_answer import LINE_SCHEMA, LineAnswer
from lakerunner.api.loki.log_parameters import LogParameters
from lakerunner.api.loki.loki_errors import LokiError
from lakerunner.api.loki.plan_response import PlanResponse
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import Close, blocking
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import UserError
from lakerunner.query.answer import Answer


@dataclass(frozen=True)
class LogExport:
    """The endpoint."""

    plans: PlanResponse

    async def export(self, asked: QueryRequest) -> Response:
        given = await LogParameters.read(asked.http)
        try:
            question, form = _question(given, asked.now_ns()), _format(given.text("format"))
        except LokiError as error:
            raise UserError(error.message) from None

        def begin() -> LineAnswer:
            return LineAnswer(
                self.plans.begin(
                    asked,
                    lambda rules, now_ns: compile_logql(replace(question, rules=rules), now_ns),
                    question.text,
                    whole=True,
                )
            )

        return await asked.respond(begin, form.respond)


def _question(given: LogParameters, now_ns: int) -> LogqlQuestion:
    text = given.text("query")
    if not text:
        raise UserError('parameter query is missing: write a log query, such as {service_name="cart"}')
    if not isinstance(parse_logql(text), Pipeline):
        raise UserError("an export returns lines: write a log query, or use query_range for a metric query")
    start, end = given.ordered_bounds(now_ns)
    return LogqlQuestion(text, start, end, 1, None, given.direction())


def _format(name: str) -> Format:
    try:
        return EXPORTS[name or NDJSON.name]
    except KeyError:
        raise UserError(f"unknown format {name!r}: use one of {', '.join(EXPORTS)}") from None


# ---- Parquet


async def _parquet_chunks(answer: Answer) -> AsyncGenerator[bytes]:
    file = ParquetStream(LINE_SCHEMA)
    async for data in write_batches(answer, file.add):
        if data:
            yield data
    yield await blocking(file.finish)


async def _respond_parquet(answer: Answer, close: Close) -> Response:
    return await stream_chunks(answer, close, PARQUET.media_type, _parquet_chunks(answer))


EXPORTS = {one.name: one for one in (NDJSON, CSV, Format(PARQUET.name, PARQUET.media_type, _respond_parquet))}
