"""SQL questions: text to plan, which the engine answers; what lists tables and columns; and what Spark SQL runs whole.

sqlglot accepts a missing condition or a superfluous comma, and would silently change the query; DuckDB, called in a
sandbox, does not. Its answers depend on the text alone and are cached. The attributes that DESCRIBE lists are found in
the columns of segments, which the index knows: no file is read.

With engine=spark the plan decides (docs/decisions/0025-spark-runs-units.md): Spark's tasks run the units of every query
whose coordinator only folds, passes on or sorts a bounded number of rows; Spark SQL runs the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.spark import compile_spark
from lakerunner.lakeql.statements import Listing, Statement, read_listing, read_statement
from lakerunner.lakeql.tables import TABLES, ColumnKind
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.lru import LruCache
from lakerunner.model.segment import Segment
from lakerunner.model.signal import SCOPES
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.model.time import DAY_NS, MAX_NS, MIN_NS, SECOND_NS, TimeRange
from lakerunner.plan.explain import Explain
from lakerunner.plan.plan import Leaf, SqlFinish
from lakerunner.plan.scan import Scan
from lakerunner.query.answer import Answer, FixedAnswer
from lakerunner.query.contract.account import Account, total
from lakerunner.query.engine import Engine
from lakerunner.query.explain_answer import ExplainAnswer, spark_sql_lines
from lakerunner.query.known_segments import expiry_warnings
from lakerunner.query.options import DUCKDB, SPARK, Options, SparkIsOff, read_engine
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.relation import empty_sql

_CACHE_BYTES = 4 << 20  # of texts
_ENTRY_BYTES = 200
_MOST_ATTRIBUTES = 1_000


@dataclass(frozen=True)
class Question:
    """SQL as it was asked. `parameters` are the values of $1, $2 or $name; `partial`: what cannot be read is named in
    the account instead of being an error; `engine`: one of ENGINES (query/options.py)."""

    text: str
    now_ns: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    engine: str = DUCKDB


class SqlQueries:
    """Safe to use from many threads. `outgrown` runs SQL whole in Spark; None: engine=spark is off."""

    def __init__(
        self,
        engine: Engine,
        sandboxes: Sandboxes,
        outgrown: Outgrown | None = None,
        rules: Callable[[UUID], StreamRules] = lambda _: DEFAULT_RULES,
    ) -> None:
        self.engine = engine
        self._rules = rules
        self._outgrown = outgrown
        self._syntax = Syntax(sandboxes)

    def sql(self, organization: UUID, question: Question) -> Answer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        if listing := read_listing(question.text):
            return self._listed(organization, question, listing)
        engine = read_engine(question.engine)
        began = self.engine.clock()
        statement = read_statement(question.text)
        types = partial(self._syntax.columns, organization)
        logs = partial(self._log_leaf, organization, question.now_ns)
        plan = compile_sql(
            statement.query, organization, question.now_ns, parameters=question.parameters, types=types, logs=logs
        )
        self._syntax.check(organization, statement.query)
        if engine == SPARK and isinstance(plan.finish, SqlFinish) and plan.finish.needs_all:
            return self._spark_sql(organization, question, statement)
        options = Options(
            question.now_ns,
            question.partial,
            explain=statement.explain,
            text=statement.query,
            planned=self.engine.clock() - began,
            engine=engine,
        )
        answer: Answer = self.engine.answer(organization, plan, options)
        return answer

    def _log_leaf(self, organization: UUID, now_ns: int, query: str, scan: Scan) -> Leaf:
        """Compile logql(...) (lakeql/log_table.py): the leaf of the log query, under the name of the scan."""
        if not isinstance(parse_logql(query), Pipeline):
            raise UserError("a metric query has no lines: write a log query")
        # The ends of all times are infinite to DuckDB.
        start_ns, end_ns = max(scan.time.start_ns, MIN_NS + SECOND_NS), min(scan.time.end_ns, MAX_NS - SECOND_NS)
        question = LogqlQuestion(query, start_ns, end_ns, 1, None, rules=self._rules(organization))
        (leaf,) = compile_logql(question, now_ns).leaves
        return replace(leaf, scan=replace(leaf.scan, relation=scan.relation))

    def _listed(self, organization: UUID, question: Question, listing: Listing) -> Answer:
        if question.parameters:
            raise UserError(f"parameter ${next(iter(question.parameters))} is not in the query")
        if not listing.table:
            return listed_answer(listing)
        try:
            scan = newest(listing, question.now_ns)
            (pick,) = self.engine.picks(organization, [scan], question.now_ns)
        except Unavailable as error:
            return listed_answer(listing, (), Account(warnings=frozenset({f"attributes are not listed: {error}"})))
        rows = attribute_rows(listing, pick.segments)
        return listed_answer(listing, rows, Account(degraded=pick.account.degraded))

    def _spark_sql(self, organization: UUID, question: Question, statement: Statement) -> Answer:
        """Have Spark SQL run the query whole: it needs all rows in one place, which Spark spreads over tasks."""
        if self._outgrown is None:
            raise SparkIsOff
        plan = compile_spark(statement.query, organization, question.now_ns, parameters=question.parameters)
        picks = self.engine.picks(organization, plan.scans, question.now_ns)
        lines = spark_sql_lines(plan, picks)
        if statement.explain is Explain.PLAN:
            return ExplainAnswer(lines, total(pick.account for pick in picks))
        warnings = expiry_warnings(zip(plan.scans, picks, strict=True))
        answer = self._outgrown.answer(organization, plan, [pick.segments for pick in picks], warnings)
        return answer if statement.explain is Explain.NO else ExplainAnswer(lines, answer.account, answer)


# ---- DuckDB's view of a text before it runs


class Syntax:
    """Safe to use from many threads."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._known: LruCache[tuple[Any]] = LruCache(_CACHE_BYTES)

    def check(self, organization: UUID, text: str) -> None:
        """Raise UserError, with the position, unless DuckDB can parse the text as SELECTs."""
        found = self._answer(text, lambda: self._sandboxes.ask(organization, {"do": "syntax", "text": text}))
        if found is None:
            return
        message = f"the query cannot be read: {found['message'].partition(chr(10))[0]}"
        if found["position"] is None:
            raise UserError(message)
        before = text.encode()[: int(found["position"])].decode(errors="ignore")  # DuckDB counts bytes
        raise UserError(message, QueryText(text).position(len(before)))

    def columns(self, organization: UUID, sql: str, scan: Scan) -> list[tuple[str, str]] | None:
        """Return the columns of a SELECT over a scan, as Types (plan/scan.py) defines them: bound in this
        organization's sandbox to the scan's empty relation, so that no file is read."""
        empty = empty_sql(scan)
        request = {"do": "types", "sql": sql, "relation": scan.relation, "empty": empty}
        found = self._answer((sql, empty), lambda: self._sandboxes.ask(organization, request))
        return None if found is None else [(name, type_) for name, type_ in found]

    def _answer(self, key: Any, ask: Callable[[], Any]) -> Any:
        known = self._known.get(key)
        if known is None:
            known = (ask(),)
            self._known.put(key, known, _ENTRY_BYTES + len(str(key)))
        return known[0]


# ---- SHOW TABLES and DESCRIBE


def listed_answer(
    listing: Listing, attributes: Iterable[tuple[str, ...]] = (), account: Account | None = None
) -> FixedAnswer:
    schema = pa.schema([(name, pa.string()) for name in listing.columns()])
    rows = [*listing.rows(), *attributes]
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return FixedAnswer(schema, iter([pa.record_batch(columns, schema=schema)]), account or Account())


def newest(listing: Listing, now_ns: int) -> Scan:
    """Return a scan of the last day's rows that reads no column."""
    return Scan("newest", TABLES[listing.table].spec.name, TimeRange(now_ns - DAY_NS, now_ns), ())


def attribute_rows(listing: Listing, segments: Iterable[Segment]) -> list[tuple[str, str, str]]:
    """Return the attributes that have columns of their own in these segments, as a query writes them."""
    sets = {id(segment.columns): segment.columns for segment in segments}
    stored = {column for columns in sets.values() for column in columns if column.type}
    maps = {column.scope: column.name for column in TABLES[listing.table].columns if column.kind is ColumnKind.MAP}
    types: dict[str, set[str]] = {}
    for scope in SCOPES:
        for column in (one for one in stored if one.name.startswith(scope.prefix)):
            key = column.name.removeprefix(scope.prefix).replace("'", "''")
            types.setdefault(f"{maps[scope.map_column]}['{key}']", set()).add(column.type)
    named = sorted(types.items())[:_MOST_ATTRIBUTES]
    return [
        (name, "VARCHAR", f"attribute of the last 24 hours, sent as {', '.join(sorted(sent))}") for name, sent in named
    ]
