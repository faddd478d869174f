"""What each scan may leave out, from what its own SELECT says: times outside a range, rows that fail a condition.

Only conditions that every row must meet are used: the conjuncts of WHERE and, where all joins are inner ones, of ON.
A row that an outer join filled with NULL meets no condition on the column, so WHERE may be used above those too; not
above an ASOF join, which takes the next best row for one that is left out.
What is not understood narrows nothing; the query still runs its own conditions over what the scan gives.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lakerunner.lakeql.conditions import facts
from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft
from lakerunner.model.time import MAX_NS, MIN_NS

_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
_Bounds = tuple[int, int]


def narrow_scans(resolution: Resolution, constants: Constants) -> None:
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
        found = resolution.found(side)
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
                return _compared(type(node), value)
            if is_timestamp(node.right) and (value := ns(node.left)) is not None:
                return _compared(_TURNED[type(node)], value)
    return None


def _compared(operator: type[exp.Expr], value: int) -> _Bounds:
    """The half-open range of the times that stand so to the value."""
    starts: dict[type[exp.Expr], int] = {exp.GT: value + 1, exp.GTE: value, exp.EQ: value}
    ends: dict[type[exp.Expr], int] = {exp.LT: value, exp.LTE: value + 1, exp.EQ: value + 1}
    return starts.get(operator, MIN_NS), ends.get(operator, MAX_NS)
