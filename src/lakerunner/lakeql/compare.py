"""Comparisons whose meaning LakeQL fixes, before DuckDB sees them: of times, of ids, of the organization.

A time compared with text, a date or another constant is compared exact to the nanosecond, zones applied. An id compared
with hexadecimal text, of either case, is compared as the bytes that are stored. The organization may only be compared
with the caller's own.
"""

from __future__ import annotations

import re
from uuid import UUID

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.sides import COMPARISONS, EQUALITIES, PATTERNS, sides
from lakerunner.lakeql.source import Source
from lakerunner.lakeql.tables import Kind, TableColumn
from lakerunner.lakeql.values import value_column
from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.time import MAX_NS, MIN_NS, time_text
from lakerunner.plan.scan import id_column

_HEX = re.compile(r"(?:[0-9a-f]{2})*")


class Comparisons:
    def __init__(self, source: Source, resolution: Resolution, constants: Constants, organization: UUID) -> None:
        self._source = source
        self._resolution = resolution
        self._constants = constants
        self._organization = organization

    def rewrite(self, tree: exp.Query) -> None:
        for node in list(tree.find_all(*COMPARISONS)):
            for side, others in sides(node):
                column = self._column(side)
                if column is None:
                    continue
                if column.kind is Kind.TIME and not isinstance(node, PATTERNS):
                    self._times(others)
                elif column.kind is Kind.ID and _is_operand(side, node):
                    self._ids(side, others)
                elif column.kind is Kind.ORGANIZATION:
                    self._organizations(node, others)

    def _column(self, side: exp.Expr) -> TableColumn | None:
        found = value_column(side, self._resolution.found)
        if found is None and isinstance(side, exp.Cast | exp.Paren):
            return self._organization_only(self._column(side.this))
        is_call = isinstance(side, exp.Anonymous) and side.name.lower() in ("lower", "upper", "trim")
        if found is None and is_call and side.expressions:
            return self._organization_only(self._column(side.expressions[0]))
        return found

    def _organization_only(self, column: TableColumn | None) -> TableColumn | None:
        """The organization stays recognizable through casts and case; a time or an id becomes something else."""
        return column if column and column.kind is Kind.ORGANIZATION else None

    def _times(self, others: list[exp.Expr]) -> None:
        for other in others:
            time = self._constants.time(other, or_text=True)
            if time is not None:
                other.replace(_time_literal(time.ns))
            elif other.is_string:
                example = time_text(self._constants.now.ns // 1_000_000_000 * 1_000_000_000)
                raise self._source.error(f"{other.sql()} is not a time: write it as '{example}Z'", other)

    def _ids(self, side: exp.Expr, others: list[exp.Expr]) -> None:
        """Compare the stored bytes, where rows are chosen: elsewhere the column may be one that GROUP BY has made."""
        found = self._resolution.found(side) if isinstance(side, exp.Column) else None
        texts = [other for other in others if other.is_string and _HEX.fullmatch(other.name)]
        if not (found and found.draft and found.column and texts) or len(texts) < len(others) or not _chooses(side):
            return
        found.draft.ids.add(found.column.name)
        side.replace(exp.column(id_column(found.draft.relation, found.column.name)))
        for text in texts:
            text.replace(exp.Anonymous(this="from_hex", expressions=[exp.Literal.string(text.name)]))

    def _organizations(self, node: exp.Expr, others: list[exp.Expr]) -> None:
        own = str(self._organization)
        for other in others:
            literal = other.this if isinstance(other, exp.Cast | exp.Paren) else other
            if not literal.is_string:
                continue
            if isinstance(node, PATTERNS):
                if not _like(literal.name).fullmatch(own):
                    raise self._other_organization(literal)
            elif _same_organization(literal.name, self._organization):
                literal.replace(exp.Literal.string(own))
            else:
                raise self._other_organization(literal)

    def _other_organization(self, literal: exp.Expr) -> UserError:
        message = f"this key reads organization {self._organization} only"
        return NotAllowed(message, self._source.where(literal))


def _is_operand(side: exp.Expr, node: exp.Expr) -> bool:
    """Whether the side itself, and no part of a row, is what an equality or an IN compares."""
    return side is node.this if isinstance(node, exp.In) else isinstance(node, EQUALITIES) and side.parent is node


def _chooses(node: exp.Expr) -> bool:
    """Whether it stands in the WHERE of a SELECT or in the ON of a join."""
    clause = node.find_ancestor(exp.Where, exp.Join, exp.Select)
    return isinstance(clause, exp.Join) or (isinstance(clause, exp.Where) and isinstance(clause.parent, exp.Select))


def _time_literal(ns: int) -> exp.Expr:
    """Beyond what 64 bits of nanoseconds hold, every stored time stands to infinity as it does to the value."""
    text = "-infinity" if ns < MIN_NS else "infinity" if ns > MAX_NS else time_text(ns)
    return exp.cast(exp.Literal.string(text), DType.TIMESTAMP_NS)


def _like(pattern: str) -> re.Pattern[str]:
    parts = ("." if sign == "_" else ".*" if sign == "%" else re.escape(sign) for sign in pattern)
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)


def _same_organization(text: str, organization: UUID) -> bool:
    try:
        return UUID(text.strip()) == organization
    except ValueError:
        return False
