"""What a condition of a query says of the rows that meet it, as facts a scan may be pruned by (model/condition.py).

Comes in: a condition that every wanted row meets. Goes out: facts about the texts, ids and attributes of tables, each
with the scan it is about. What always holds: wherever the condition is true, so is every fact; none of them is true of
NULL. Of what is not understood nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.tables import Kind
from lakerunner.model.condition import Condition, Contains, Equals, Present
from lakerunner.model.patterns import LEAST_BYTES, like_exactly, like_literals, regex_literals
from lakerunner.model.signal import Attribute

Fact = tuple[Draft, Condition]

_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_FOLDS = frozenset({"lower", "lcase", "upper", "ucase"})
_PARTS = frozenset({"contains", "starts_with", "prefix", "ends_with", "suffix"})
_REGEXES = frozenset({"regexp_matches", "regexp_full_match"})
# NULL in their first argument makes them NULL.
_STRICT_CALLS = (
    _FOLDS | _PARTS | _REGEXES | {"trim", "ltrim", "rtrim", "length", "strlen", "strpos", "split_part", "abs"}
)
# NULL in any operand makes them NULL.
_STRICT: tuple[type[exp.Expr], ...] = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.Escape, exp.SimilarTo, exp.Glob),
    *(exp.RegexpLike, exp.StartsWith, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Not, exp.Paren, exp.Cast, exp.TryCast),
    exp.Collate,
)
_OF_MANY = (exp.Any, exp.All)  # of none at all they are true or false, whatever stands on the other side


@dataclass(frozen=True)
class _Subject:
    """What is compared: a column of a scan, or the first of these attributes that is not null."""

    draft: Draft
    columns: tuple[str | Attribute, ...]
    is_id: bool = False
    folded: bool = False


def facts(node: exp.Expr, resolution: Resolution) -> list[Fact]:
    return list(dict.fromkeys(_Reading(resolution).implied(node)))


class _Reading:
    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution

    def implied(self, node: exp.Expr) -> Iterable[Fact]:
        match node:
            case exp.Paren():
                return self.implied(node.this)
            case exp.And():
                return [fact for part in node.flatten() for fact in self.implied(part)]
            case exp.Or():
                return _either([list(self.implied(part)) for part in node.flatten()])
        subject, conditions = self._compared(node)
        if subject and conditions:
            return [(subject.draft, condition) for condition in conditions]
        return self._present(node)

    # Comparisons

    def _compared(self, node: exp.Expr) -> tuple[_Subject | None, list[Condition]]:
        """Whose value is compared, and what is known of it then."""
        if node.args.get("negate"):
            return None, []
        match node:
            case exp.EQ() | exp.NullSafeEQ():
                subject, other = self._subject(node.left), node.right
                if subject is None:
                    subject, other = self._subject(node.right), node.left
                return subject, _equal(subject, [other])
            case exp.In() if node.expressions:
                subject = self._subject(node.this)
                return subject, _equal(subject, node.expressions)
            case exp.Like() | exp.ILike() | exp.Escape():
                like, escape = (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
                return self._like(like, escape)
            case exp.RegexpLike() | exp.SimilarTo():
                subject = self._subject(node.this)
                return subject, _matching(subject, [node.expression])
            case exp.StartsWith():
                subject = self._subject(node.this)
                return subject, _containing(subject, [node.expression])
            case exp.Anonymous() if node.expressions and node.name.lower() in _PARTS | _REGEXES:
                subject, others = self._subject(node.expressions[0]), node.expressions[1:]
                read = _containing if node.name.lower() in _PARTS else _matching
                return subject, read(subject, others)
        return None, []

    def _like(self, node: exp.Expr, escape: exp.Expr | None) -> tuple[_Subject | None, list[Condition]]:
        plain = isinstance(node, exp.Like | exp.ILike) and node.expression.is_string and not node.args.get("negate")
        if not plain or not (escape is None or escape.is_string):
            return None, []
        subject, pattern, sign = self._subject(node.this), node.expression.name, escape.name if escape else ""
        exactly = like_exactly(pattern, sign)
        if isinstance(node, exp.Like) and exactly is not None:
            return subject, _equal(subject, [node.expression])
        return subject, _contained(subject, like_literals(pattern, sign), ignore_case=isinstance(node, exp.ILike))

    def _subject(self, node: exp.Expr) -> _Subject | None:
        match node:
            case exp.Paren():
                return self._subject(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Bracket():
                return self._attribute(node)
            case exp.Anonymous() if node.name.lower() in _FOLDS and len(node.expressions) == 1:
                inner = self._subject(node.expressions[0])
                return inner and _Subject(inner.draft, inner.columns, inner.is_id, folded=True)
            case exp.Anonymous() if node.name.lower() == "coalesce" and len(node.expressions) > 1:
                return self._first_of(node.expressions)
        return None

    def _column(self, node: exp.Column) -> _Subject | None:
        found = self._resolution.found(node)
        if not (found.draft and found.column) or found.column.type != "VARCHAR":
            return None
        if found.column.kind is Kind.ORGANIZATION:
            return None
        return _Subject(found.draft, (found.column.name,), is_id=found.column.kind is Kind.ID)

    def _attribute(self, node: exp.Bracket) -> _Subject | None:
        if not (isinstance(node.this, exp.Column) and len(node.expressions) == 1 and node.expressions[0].is_string):
            return None
        found = self._resolution.found(node.this)
        if not (found.draft and found.column and found.column.kind is Kind.MAP):
            return None
        return _Subject(found.draft, (Attribute(found.column.scope, node.expressions[0].name),))

    def _first_of(self, nodes: list[exp.Expr]) -> _Subject | None:
        subjects = [self._subject(node) for node in nodes]
        known = [subject for subject in subjects if subject and not subject.folded]
        if len(known) < len(nodes) or len({id(subject.draft) for subject in known}) != 1:
            return None
        return _Subject(known[0].draft, tuple(column for subject in known for column in subject.columns))

    # What may not be NULL

    def _present(self, node: exp.Expr) -> Iterator[Fact]:
        if isinstance(node, exp.Not) and isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            node = node.this.this
        for subject in self._needed(node):
            attributes = tuple(column for column in subject.columns if isinstance(column, Attribute))
            if len(attributes) == len(subject.columns):
                yield subject.draft, Present(attributes)

    def _needed(self, node: exp.Expr) -> Iterator[_Subject]:
        """The subjects whose NULL would make this NULL."""
        pending = [node]
        while pending:
            node = pending.pop()
            if subject := self._subject(node):
                yield subject
            elif isinstance(node, _STRICT) and not isinstance(node.expression, _OF_MANY):
                pending += [part for part in (node.this, node.expression) if isinstance(part, exp.Expr)]
            elif isinstance(node, exp.Between) or (isinstance(node, exp.In) and node.expressions):
                pending.append(node.this)
            elif isinstance(node, exp.Anonymous) and node.expressions and node.name.lower() in _STRICT_CALLS:
                pending.append(node.expressions[0])


def _equal(subject: _Subject | None, others: list[exp.Expr]) -> list[Condition]:
    """It is one of these literals; a NULL among them equals nothing."""
    literals = [other for other in others if not isinstance(other, exp.Null)]
    if subject is None or len(subject.columns) > 1 or not literals or not all(other.is_string for other in literals):
        return []
    texts = list(dict.fromkeys(literal.name for literal in literals))
    if subject.folded:
        return _contained(subject, texts, ignore_case=True) if len(texts) == 1 else []
    if subject.is_id:
        return [Equals(subject.columns[0], tuple(texts))] if all(map(_HEX.fullmatch, texts)) else []
    return [Equals(subject.columns[0], tuple(texts))]


def _containing(subject: _Subject | None, others: list[exp.Expr]) -> list[Condition]:
    """It holds this literal. One that is folded says as much as it stands, where the subject is folded too."""
    if subject is None or len(others) != 1:
        return []
    (other,) = others
    if subject.folded and isinstance(other, exp.Anonymous) and other.name.lower() in _FOLDS and other.expressions:
        other = other.expressions[0]
    return _contained(subject, [other.name] if other.is_string else [])


def _matching(subject: _Subject | None, others: list[exp.Expr]) -> list[Condition]:
    """It matches this regular expression; the second literal, if there is one, holds its flags."""
    if not 1 <= len(others) <= 2 or not all(other.is_string for other in others):
        return []
    found = regex_literals(*(other.name for other in others))
    return _contained(subject, found.texts, ignore_case=found.ignore_case)


def _contained(subject: _Subject | None, texts: Iterable[str], *, ignore_case: bool = False) -> list[Condition]:
    if subject is None or len(subject.columns) > 1 or subject.is_id:
        return []
    long = [text for text in texts if len(text.encode()) >= LEAST_BYTES]
    return [Contains(subject.columns[0], text, ignore_case or subject.folded) for text in long]


def _either(branches: list[list[Fact]]) -> Iterator[Fact]:
    """What holds whichever of them holds: of one column the values of all, and facts that all of them have."""
    first, *rest = branches
    for draft, condition in first:
        if isinstance(condition, Equals):
            listed = [_values(branch, draft, condition.column) for branch in branches]
            if all(listed):
                yield draft, Equals(condition.column, tuple(dict.fromkeys(v for values in listed for v in values)))
    told = [[*branch, *_presence(branch)] for branch in rest]
    yield from (fact for fact in [*first, *_presence(first)] if all(fact in branch for branch in told))


def _values(branch: list[Fact], draft: Draft, column: str | Attribute) -> tuple[str, ...]:
    for of, condition in branch:
        if of is draft and isinstance(condition, Equals) and condition.column == column:
            return condition.values
    return ()


def _presence(branch: list[Fact]) -> list[Fact]:
    """What has a value is there."""
    return [
        (draft, Present((condition.column,)))
        for draft, condition in branch
        if not isinstance(condition, Present) and isinstance(condition.column, Attribute)
    ]
