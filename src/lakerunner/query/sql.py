"""SQL questions: text to plan, which the engine answers; what lists tables and columns; and what Spark SQL runs whole.

With engine=spark the plan decides (docs/decisions/0025-spark-runs-units.md): Spark's tasks run the units of every query
whose coordinator only folds, passes on or sorts a bounded number of rows; Spark SQL runs the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lakerunner.lakeql import compile_sql
from lakerunner.lakeql.spark import compile_spark
from lakerunner.lakeql.statements import Listing, Statement, read_listing, read_statement
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.plan.explain import Explain
from lakerunner.plan.plan import SqlFinish
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, total
from lakerunner.query.engine import Engine
from lakerunner.query.explain_answer import ExplainAnswer, spark_sql_lines
from lakerunner.query.known_segments import expiry_warnings
from lakerunner.query.options import DUCKDB, SPARK, Options, SparkIsOff, read_engine
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.syntax import Syntax
from lakerunner.query.table_listing import attribute_rows, listed_answer, newest


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

    def __init__(self, engine: Engine, sandboxes: Sandboxes, outgrown: Outgrown | None = None) -> None:
        self.engine = engine
        self._outgrown = outgrown
        self._syntax = Syntax(sandboxes)

    def sql(self, organization: UUID, question: Question) -> Answer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        if listing := read_listing(question.text):
            return self._listed(organization, question, listing)
        engine = read_engine(question.engine)
        began = self.engine.clock()
        statement = read_statement(question.text)
        types = self._syntax.types(organization)
        plan = compile_sql(statement.query, organization, question.now_ns, parameters=question.parameters, types=types)
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
