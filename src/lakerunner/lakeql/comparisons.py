"""Comparisons whose meaning LakeQL fixes before DuckDB sees them: of times, ids, severities and the organization.

A time compared with text, a date or another constant is compared exactly to the nanosecond, with zones applied. An id
compared with hexadecimal text is compared as the bytes that are stored. Ids are stored in lower case and severities in
upper case: literals are folded to that case, so that pruning and both engines compare what is stored. The organization
may only be compared with the caller's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import STORED_CASE, value_column
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.tables import ColumnKind, TableColumn
from lakerunner.model.errors import NotAllowed, UserError
from lakerunner.model.time import MAX_NS, MIN_NS, time_text
from lakerunner.plan.scan import id_column

# ---- the sides of a comparison

EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
PATTERNS = (exp.Like, exp.ILike)
COMPARISONS = (*EQUALITIES, *PATTERNS, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Case)
Side = tuple[exp.Expr, list[exp.Expr]]


def sides(node: exp.Expr) -> Iterator[Side]:
    """Yield what could be a column, each with what it is compared to. Rows are compared part by part, and lists value
    by value: `(a, b) IN ((1, 2), (3, 4))` compares a with 1 and 3."""
    match node:
        case exp.Between():
            yield from _parts(node.this, [node.args["low"], node.args["high"]])
        case exp.In():
            yield from _parts(node.this, list(node.expressions))
            for one in filter(None, [*node.expressions, node.args.get("query")]):
                yield one, [node.this]
        case exp.Case() if node.this:
            yield node.this, [branch.this for branch in node.args["ifs"]]
        case exp.Binary():
            yield from _parts(node.left, [node.right])
            yield from _parts(node.right, [node.left])


def _parts(side: exp.Expr, others: list[exp.Expr]) -> Iterator[Side]:
    values = [value for other in others for value in _listed_values(other)]
    side = side.this if isinstance(side, exp.Any | exp.All) else side
    if not isinstance(side, exp.Tuple):
        yield side, values
        return
    rows = [value.expressions for value in values if isinstance(value, exp.Tuple)]
    for n, part in enumerate(side.expressions):
        yield part, [row[n] for row in rows if n < len(row)]


def _listed_values(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of a list after ANY or ALL, else the node itself."""
    if not isinstance(node, exp.Any | exp.All):
        return [node]
    listed = node.this.unnest()
    return list(listed.expressions) if isinstance(listed, exp.Array | exp.Tuple) else [node]


# ---- literals in the stored case

_WITH_A_TEXT = frozenset(
    ["contains", "ends_with", "instr", "nullif", "position", "prefix", "starts_with", "strpos", "suffix"]
)
_WITH_A_LIST = frozenset(["array_contains", "array_has", "list_contains", "list_has", "list_position"])
_FROM_HEX = frozenset({"from_hex", "unhex"})


def fold_literals(tree: exp.Query, resolution: Resolution) -> None:
    """Fold literals to the case of what they are compared with: `severity = 'error'` becomes `severity = 'ERROR'`."""
    for node in list(tree.find_all(*COMPARISONS, exp.StartsWith, exp.Anonymous, exp.Intersect, exp.Except)):
        if isinstance(node.parent, exp.Escape) and node.parent.expression.name.isalpha():
            continue  # the escape character is a letter, which must not be folded
        for side, others in [*sides(node), *_arguments(node)]:
            column = value_column(side, resolution.origin)
            fold = STORED_CASE.get(column.kind) if column else None
            for other in others if fold else ():
                literal = _literal(other)
                if fold and literal is not None:
                    literal.set("this", fold(literal.name))
                    if literal is not other:
                        other.replace(literal)


def _arguments(node: exp.Expr) -> Iterator[Side]:
    """Yield what calls compare, an argument with a text or with the values of a list; and what INTERSECT and EXCEPT
    compare."""
    if isinstance(node, exp.StartsWith):
        yield node.this, [node.expression]
    if isinstance(node, exp.Intersect | exp.Except):
        for left, right in zip(node.left.selects, node.right.selects, strict=False):
            yield left, [right.unalias()]
            yield right, [left.unalias()]
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2:
        return
    first, second = node.expressions
    if node.name.lower() in _WITH_A_TEXT:
        yield first, [second]
    elif node.name.lower() in _WITH_A_LIST and isinstance(first, exp.Array):
        yield second, list(first.expressions)


def _literal(node: exp.Expr) -> exp.Expr | None:
    """Return the text that is compared: a literal, possibly cast to text or in parentheses, or the hexadecimal of
    bytes."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in _FROM_HEX and len(node.expressions) == 1:
        node = node.expressions[0]
    elif isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES)):
        node = node.this
    return node if node.is_string else None


# ---- times, ids, the organization

_HEX = re.compile(r"(?:[0-9a-f]{2})*")


class Comparisons:
    def __init__(self, source: QueryText, resolution: Resolution, constants: Constants, organization: UUID) -> None:
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
                if column.kind is ColumnKind.TIME and not isinstance(node, PATTERNS):
                    self._times(others)
                elif column.kind is ColumnKind.ID and _is_operand(side, node):
                    self._ids(side, others)
                elif column.kind is ColumnKind.ORGANIZATION:
                    self._organizations(node, others)

    def _column(self, side: exp.Expr) -> TableColumn | None:
        found = value_column(side, self._resolution.origin)
        if found is None and isinstance(side, exp.Cast | exp.Paren):
            return self._organization_only(self._column(side.this))
        is_call = isinstance(side, exp.Anonymous) and side.name.lower() in ("lower", "upper", "trim")
        if found is None and is_call and side.expressions:
            return self._organization_only(self._column(side.expressions[0]))
        return found

    def _organization_only(self, column: TableColumn | None) -> TableColumn | None:
        """Follow only the organization through casts and case; a time or an id becomes something else."""
        return column if column and column.kind is ColumnKind.ORGANIZATION else None

    def _times(self, others: list[exp.Expr]) -> None:
        for other in others:
            time = self._constants.time(other, or_text=True)
            if time is not None:
                other.replace(_time_literal(time.ns))
            elif other.is_string:
                example = time_text(self._constants.now.ns // 1_000_000_000 * 1_000_000_000)
                raise self._source.error(f"{other.sql()} is not a time: write it as '{example}Z'", other)

    def _ids(self, side: exp.Expr, others: list[exp.Expr]) -> None:
        """Compare the stored bytes where rows are selected; elsewhere the column may be a result of GROUP BY."""
        found = self._resolution.origin(side) if isinstance(side, exp.Column) else None
        texts = [other for other in others if other.is_string and _HEX.fullmatch(other.name)]
        if (
            not (found and found.draft and found.column and texts)
            or len(texts) < len(others)
            or not _selects_rows(side)
        ):
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
    """Whether an equality or an IN compares this side itself, not a part of a row."""
    return side is node.this if isinstance(node, exp.In) else isinstance(node, EQUALITIES) and side.parent is node


def _selects_rows(node: exp.Expr) -> bool:
    """Whether it stands in the WHERE of a SELECT or in the ON of a join."""
    clause = node.find_ancestor(exp.Where, exp.Join, exp.Select)
    return isinstance(clause, exp.Join) or (isinstance(clause, exp.Where) and isinstance(clause.parent, exp.Select))


def _time_literal(ns: int) -> exp.Expr:
    """Return the literal of a time. A value beyond 64 bits of nanoseconds becomes infinity, to which every stored time
    compares alike."""
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
