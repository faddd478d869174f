"""SQL questions: text to plan, which the engine answers; what lists tables and columns; and engine=spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lakerunner.lakeql import compile_spark, compile_sql
from lakerunner.lakeql.catalog import Listing, read_listing
from lakerunner.lakeql.explain import read_statement
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.engine import Engine
from lakerunner.query.expiry import expiry_warnings
from lakerunner.query.listed import attribute_rows, listed_answer, newest
from lakerunner.query.options import Options
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.syntax import Syntax


@dataclass(frozen=True)
class Question:
    """SQL as it was asked. `parameters` are the values of $1, $2 or $name; `partial`: what cannot be read is named in
    the account instead of being an error; `engine`: duckdb, or spark for what outgrows it."""

    text: str
    now_ns: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    engine: str = "duckdb"


class SqlQueries:
    """Safe to use from many threads. `outgrown` answers engine=spark; without it such questions are refused."""

    def __init__(self, engine: Engine, sandboxes: Sandboxes, outgrown: Outgrown | None = None) -> None:
        self.engine = engine
        self._outgrown = outgrown
        self._syntax = Syntax(sandboxes)

    def sql(self, organization: UUID, question: Question) -> Answer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""
        if listing := read_listing(question.text):
            return self._listed(organization, question, listing)
        if question.engine != "duckdb":
            return self._elsewhere(organization, question)
        began = self.engine.clock()
        statement = read_statement(question.text)
        types = self._syntax.types(organization)
        plan = compile_sql(statement.query, organization, question.now_ns, parameters=question.parameters, types=types)
        self._syntax.check(organization, statement.query)
        options = Options(
            question.now_ns,
            question.partial,
            explain=statement.explain,
            text=statement.query,
            planned=self.engine.clock() - began,
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

    def _elsewhere(self, organization: UUID, question: Question) -> Answer:
        if question.engine != "spark":
            raise UserError(f"unknown engine {question.engine!r}: use duckdb or spark")
        if self._outgrown is None:
            raise UserError("engine=spark is not enabled: set query_spark")
        plan = compile_spark(question.text, organization, question.now_ns, parameters=question.parameters)
        self._syntax.check(organization, question.text)
        picks = self.engine.picks(organization, plan.scans, question.now_ns)
        warnings = expiry_warnings(zip(plan.scans, picks, strict=True))
        return self._outgrown.answer(organization, plan, [pick.segments for pick in picks], warnings)
