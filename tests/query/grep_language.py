"""A small language, to show what a new one needs: words in, matching lines out, or how many there are a minute.

    refused payment          lines that hold both words, newest first
    "card declined" -n 20    at most 20 of them
    count refused            how many lines a minute

It is a parser (`parse`), a compiler (`compile_grep`), one operator (`Grep`) and the shell of an API (`GrepApi`). All
else (pruning, workers, time groups, partial answers, EXPLAIN, the result cache, cancellation) is the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.body import BodyLimit
from lakerunner.api.formats.row_formats import format_named
from lakerunner.api.openapi import JSON, Body, Operation, Reply
from lakerunner.api.query_service import QueryRequest, QueryService
from lakerunner.model.condition import Contains
from lakerunner.model.errors import Position, UserError
from lakerunner.model.time import MINUTE_NS, TimeRange
from lakerunner.plan.explain import Explain
from lakerunner.plan.operator import RowOperator
from lakerunner.plan.plan import Leaf, Plan, Rounds, SqlFinish
from lakerunner.plan.scan import Scan
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options

_TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|(\S+))')


# ---- text to words


@dataclass(frozen=True)
class Search:
    words: tuple[str, ...]
    counted: bool = False
    limit: int | None = None


def parse(text: str) -> Search:
    words: list[str] = []
    counted, limit, at = False, None, 0
    while found := _TOKEN.match(text, at):
        quoted, plain = found[1], found[2]
        if plain == "count" and not words:
            counted = True
        elif plain == "-n":
            number = _TOKEN.match(text, found.end())
            if number is None or not (number[2] or "").isdecimal():
                raise UserError("-n needs a number of lines", Position(1, found.start(2) + 1))
            limit, found = int(number[2]), number
        else:
            words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain)
        at = found.end()
    if not words:
        raise UserError("name at least one word to search for", Position(1, 1))
    return Search(tuple(words), counted, limit)


# ---- words to plan


@dataclass(frozen=True)
class Grep(RowOperator):
    """Give the lines that hold all words; or the number of them in each minute."""

    name = "grep"

    words: tuple[str, ...]
    counted: bool = False
    steady: bool = True

    def source_sql(self, scan: Scan) -> str:
        return f'SELECT timestamp, service_name, message FROM "{scan.relation}"'

    @property
    def result_schema(self) -> pa.Schema | None:
        return pa.schema([("minute", pa.timestamp("ns")), ("n", pa.int64())]) if self.counted else None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = pc.match_substring(batch["message"], self.words[0])
            for word in self.words[1:]:
                kept = pc.and_(kept, pc.match_substring(batch["message"], word))
            lines = batch.filter(pc.fill_null(kept, False))
            yield self._counts(lines) if self.counted else lines

    def _counts(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        minutes = pc.floor_temporal(lines["timestamp"].cast(pa.timestamp("ns")), unit="minute")
        counts = pc.value_counts(minutes)
        columns = [counts.field("values"), counts.field("counts")]
        return pa.record_batch(columns, schema=self.result_schema)

    def to_json(self) -> dict[str, Any]:
        return {"words": self.words, "counted": self.counted}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Grep:
        return cls(tuple(given["words"]), given["counted"])

    def lines(self) -> Iterator[str]:
        yield f"{'count' if self.counted else 'find'} lines with {' and '.join(map(repr, self.words))}"


def compile_grep(text: str, time: TimeRange) -> Plan:
    search = parse(text)
    conditions = tuple(Contains("message", word) for word in search.words)
    scan = Scan("found", "logs", time, ("timestamp", "service_name", "message"), conditions=conditions)
    leaf = Leaf(scan, Grep(search.words, search.counted))
    if search.counted:
        sql = 'SELECT minute, CAST(sum(n) AS BIGINT) AS n FROM "found" GROUP BY minute ORDER BY minute'
        return Plan((leaf,), SqlFinish(sql, Rounds(bucket_ns=MINUTE_NS, limit=search.limit)))
    sql = 'SELECT * FROM "found" ORDER BY timestamp DESC, service_name, message'
    return Plan((leaf,), SqlFinish(sql, Rounds(descending=True, limit=search.limit)))


# ---- the shell of its API


@dataclass(frozen=True)
class GrepApi:
    engine: Engine
    service: QueryService
    hours: int = 24

    def routes(self) -> list[Route]:
        found = Operation("grep", "Find lines", {200: Reply("The lines.")}, body={JSON: Body()})
        return [self.service.endpoint("/grep", self.query, POST=found)]

    async def query(self, asked: QueryRequest) -> Response:
        body = await asked.json(BodyLimit(1 << 16, "a search"))
        now_ns = asked.now_ns()
        plan = compile_grep(str(body.get("q", "")), TimeRange(now_ns - self.hours * 60 * MINUTE_NS, now_ns))
        options = Options(now_ns, bool(body.get("partial")), explain=Explain(body.get("explain", "no")))
        begin = partial(self.engine.answer, asked.organization, plan, options)
        return await asked.respond(begin, format_named(body.get("format", "sse")).respond)
