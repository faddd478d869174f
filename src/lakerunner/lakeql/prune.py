"""What each scan may skip: times outside a range, and rows that fail a condition (model/condition.py).

Comes in: the conditions of a SELECT that every row of the result meets: the conjuncts of WHERE and, where all joins are
inner ones, of ON. A row that an outer join filled with NULL meets no condition on the column, so WHERE is used above
outer joins too; not above an ASOF join, which takes the next best row for one that is left out. Goes out: facts about
the texts, ids and attributes of tables, each with its scan, and bounds of times.

What always holds: wherever the condition is true, so is every fact, and no fact is true of NULL. A condition that is
not understood narrows nothing; the query still runs its own conditions over what the scan returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.tables import ColumnKind
from lakerunner.model.condition import (
    LEAST_BYTES,
    Condition,
    Contains,
    Equals,
    Present,
    any_of,
    like_exactly,
    like_literals,
    regex_literals,
    word_of,
)
from lakerunner.model.signal import Attribute
from lakerunner.model.time import MAX_NS, MIN_NS

# ---- facts that a condition implies

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
_QUANTIFIERS = (exp.Any, exp.All)  # over an empty set they are true or false, whatever stands on the other side


@dataclass(frozen=True)
class _Subject:
    """What is compared: a column of a scan, or the first of these attributes that is not null."""

    draft: Draft
    columns: tuple[str | Attribute, ...]
    is_id: bool = False
    folded: bool = False


def facts(node: exp.Expr, resolution: Resolution) -> list[Fact]:
    """Return the facts that hold wherever this condition is true, each with its scan."""
    return list(dict.fromkeys(_FactReader(resolution).implied(node)))


class _FactReader:
    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution

    def implied(self, node: exp.Expr) -> Iterable[Fact]:
        match node:
            case exp.Paren():
                return self.implied(node.this)
            case exp.And():
                return [fact for part in node.flatten() for fact in self.implied(part)]
            case exp.Or():
                return _facts_of_or([list(self.implied(part)) for part in node.flatten()])
        subject, conditions = self._compared(node)
        if subject and conditions:
            return [(subject.draft, condition) for condition in conditions]
        return self._present(node)

    # Comparisons

    def _compared(self, node: exp.Expr) -> tuple[_Subject | None, list[Condition]]:
        """Return whose value is compared, and what is known of it then."""
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
        found = self._resolution.origin(node)
        if not (found.draft and found.column) or found.column.type != "VARCHAR":
            return None
        if found.column.kind is ColumnKind.ORGANIZATION:
            return None
        return _Subject(found.draft, (found.column.name,), is_id=found.column.kind is ColumnKind.ID)

    def _attribute(self, node: exp.Bracket) -> _Subject | None:
        if not (isinstance(node.this, exp.Column) and len(node.expressions) == 1 and node.expressions[0].is_string):
            return None
        found = self._resolution.origin(node.this)
        if not (found.draft and found.column and found.column.kind is ColumnKind.MAP):
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
        """Yield which attributes are not null where the condition is true."""
        if isinstance(node, exp.Not) and isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            node = node.this.this
        for subject in self._needed(node):
            attributes = tuple(column for column in subject.columns if isinstance(column, Attribute))
            if len(attributes) == len(subject.columns):
                yield subject.draft, Present(attributes)

    def _needed(self, node: exp.Expr) -> Iterator[_Subject]:
        """Yield the subjects whose NULL would make this NULL."""
        pending = [node]
        while pending:
            node = pending.pop()
            if subject := self._subject(node):
                yield subject
            elif isinstance(node, _STRICT) and not isinstance(node.expression, _QUANTIFIERS):
                pending += [part for part in (node.this, node.expression) if isinstance(part, exp.Expr)]
            elif isinstance(node, exp.Between) or (isinstance(node, exp.In) and node.expressions):
                pending.append(node.this)
            elif isinstance(node, exp.Anonymous) and node.expressions and node.name.lower() in _STRICT_CALLS:
                pending.append(node.expressions[0])


def _equal(subject: _Subject | None, others: list[exp.Expr]) -> list[Condition]:
    """Return that the subject is one of these literals; a NULL among them equals nothing."""
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
    """Return that the subject contains this literal. A literal that is folded counts unfolded if the subject is folded
    too."""
    if subject is None or len(others) != 1:
        return []
    (other,) = others
    if subject.folded and isinstance(other, exp.Anonymous) and other.name.lower() in _FOLDS and other.expressions:
        other = other.expressions[0]
    return _contained(subject, [other.name] if other.is_string else [])


def _matching(subject: _Subject | None, others: list[exp.Expr]) -> list[Condition]:
    """Return what a match of this regular expression contains; the second literal, if there is one, holds its flags."""
    if not 1 <= len(others) <= 2 or not all(other.is_string for other in others):
        return []
    if subject and len(others) == 1 and (word := word_of(others[0].name)):
        return [replace(one, is_word=True) for one in _contained(subject, [word]) if isinstance(one, Contains)]
    found = regex_literals(*(other.name for other in others))
    branches = [_contained(subject, texts, ignore_case=found.ignore_case) for texts in found.choices]
    return list(any_of(branches))


def _contained(subject: _Subject | None, texts: Iterable[str], *, ignore_case: bool = False) -> list[Condition]:
    if subject is None or len(subject.columns) > 1 or subject.is_id:
        return []
    long = [text for text in texts if len(text.encode()) >= LEAST_BYTES]
    return [Contains(subject.columns[0], text, ignore_case or subject.folded) for text in long]


def _facts_of_or(branches: list[list[Fact]]) -> Iterator[Fact]:
    """Yield what holds if any of the branches holds: the values of all of them for one column, facts that all of them
    have, and of each scan that some branch holds."""
    first, *rest = branches
    found: list[Fact] = []
    for draft, condition in first:
        if isinstance(condition, Equals):
            listed = [_values(branch, draft, condition.column) for branch in branches]
            if all(listed):
                found.append((draft, Equals(condition.column, tuple(dict.fromkeys(v for vs in listed for v in vs)))))
    others = [[*branch, *_presence(branch)] for branch in rest]
    found += (fact for fact in [*first, *_presence(first)] if all(fact in branch for branch in others))
    yield from found
    if not found or any(len(branch) > 1 for branch in branches):
        for draft in {id(draft): draft for draft, _ in first}.values():
            branches_of = [[condition for of, condition in branch if of is draft] for branch in branches]
            yield from ((draft, condition) for condition in any_of(branches_of))


def _values(branch: list[Fact], draft: Draft, column: str | Attribute) -> tuple[str, ...]:
    for of, condition in branch:
        if of is draft and isinstance(condition, Equals) and condition.column == column:
            return condition.values
    return ()


def _presence(branch: list[Fact]) -> list[Fact]:
    """Return that attributes with a value are present."""
    return [
        (draft, Present((condition.column,)))
        for draft, condition in branch
        if isinstance(condition, Equals | Contains) and isinstance(condition.column, Attribute)
    ]


# ---- scans

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
_Bounds = tuple[int, int]


def narrow_scans(resolution: Resolution, constants: Constants) -> None:
    """Give each scan the conditions and the bounds of time that its SELECT states."""
    for select, drafts in resolution.selects:
        for condition in _conditions(select):
            for draft, fact in facts(condition, resolution):
                if draft in drafts:
                    draft.conditions.append(fact)
            for draft in drafts:
                if bounds := _bounds(condition, draft, resolution, constants):
                    draft.narrow(*bounds)


def _conditions(select: exp.Select) -> Iterator[exp.Expr]:
    where, joins = select.args.get("where"), select.args.get("joins") or []
    if where and not any(join.method for join in joins):
        yield from conjuncts(where.this)
    if all(not join.side and not join.method and join.kind in ("", "INNER", "CROSS") for join in joins):
        for join in joins:
            if on := join.args.get("on"):
                yield from conjuncts(on)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a chain of AND."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.And):
            pending += [node.right, node.left]
        elif isinstance(node, exp.Paren):
            pending.append(node.this)
        else:
            yield node


def _bounds(node: exp.Expr, draft: Draft, resolution: Resolution, constants: Constants) -> _Bounds | None:
    def is_timestamp(side: exp.Expr | None) -> bool:
        if not isinstance(side, exp.Column):
            return False
        found = resolution.origin(side)
        return found.draft is draft and found.column is not None and found.column.name == "timestamp"

    def ns(side: exp.Expr) -> int | None:
        time = constants.time(side, or_text=True)
        return time.ns if time else None

    match node:
        case exp.Between() if is_timestamp(node.this) and not node.args.get("symmetric"):
            low, high = ns(node.args["low"]), ns(node.args["high"])
            return (MIN_NS if low is None else low, MAX_NS if high is None else high + 1)
        case exp.In() if is_timestamp(node.this) and node.expressions:
            values = [ns(value) for value in node.expressions]
            known = [value for value in values if value is not None]
            return (min(known), max(known) + 1) if len(known) == len(values) else None
        case exp.GT() | exp.GTE() | exp.LT() | exp.LTE() | exp.EQ():
            if is_timestamp(node.left) and (value := ns(node.right)) is not None:
                return _range_of(type(node), value)
            if is_timestamp(node.right) and (value := ns(node.left)) is not None:
                return _range_of(_MIRRORED[type(node)], value)
    return None


def _range_of(operator: type[exp.Expr], value: int) -> _Bounds:
    """Return the half-open range of the times for which the comparison with this value is true."""
    starts: dict[type[exp.Expr], int] = {exp.GT: value + 1, exp.GTE: value, exp.EQ: value}
    ends: dict[type[exp.Expr], int] = {exp.LT: value, exp.LTE: value + 1, exp.EQ: value + 1}
    return starts.get(operator, MIN_NS), ends.get(operator, MAX_NS)
