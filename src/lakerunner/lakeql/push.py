"""Push down conditions: those of a WHERE that read one table alone move from the query to the leaf of that table.

This is sound where dropping a row before a join is the same as after it: for every table if all joins are inner ones,
else for the first table as long as no join can fill it with NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lakerunner.lakeql.functions import FUNCTIONS_BY_KIND
from lakerunner.lakeql.prune import conjuncts
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft

AGGREGATES = frozenset(FUNCTIONS_BY_KIND["aggregate"])
_INNER = ("", "INNER", "CROSS")


class PushedFilters:
    """The conditions that were pushed down, by draft."""

    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution
        self.filters: dict[int, list[exp.Expr]] = {id(draft): [] for draft in resolution.drafts}
        for select, drafts in resolution.selects:
            self._push(select, drafts)

    def filters_of(self, draft: Draft) -> list[exp.Expr]:
        return self.filters[id(draft)]

    def _push(self, select: exp.Select, drafts: list[Draft]) -> None:
        joins = select.args.get("joins") or []
        inner = all(not join.side and not join.method and join.kind in _INNER for join in joins)
        fills = any(join.side in ("RIGHT", "FULL") for join in joins)
        may = drafts if inner else [draft for draft in drafts if not fills and _is_first(select, draft)]
        may = [draft for draft in may if not draft.log_query]
        where = select.args.get("where")
        left = [node for node in conjuncts(where.this) if not self._take(node, may)] if where else []
        if where:
            select.set("where", exp.Where(this=_join_conditions(left)) if left else None)
        for join in joins if inner else ():
            for node in conjuncts(join.args["on"]) if join.args.get("on") else ():
                self._take(node.copy(), may, like=node)

    def _take(self, node: exp.Expr, drafts: list[Draft], like: exp.Expr | None = None) -> bool:
        for draft in drafts:
            if reads_only(like or node, draft, self._resolution):
                self.filters[id(draft)].append(node)
                return True
        return False


def reads_only(node: exp.Expr, draft: Draft, resolution: Resolution) -> bool:
    """Whether this is an expression of one row of this table and of nothing else."""
    columns = list(node.find_all(exp.Column))
    if not columns or any(True for _ in _find_beyond_row(node)):
        return False
    return all(is_column_of(column, draft, resolution) for column in columns)


def is_column_of(column: exp.Column, draft: Draft, resolution: Resolution) -> bool:
    """Whether this is a column of the table, or a further one that its scan returns."""
    return resolution.origin(column).draft is draft or column.name.startswith(f"{draft.relation}.")


def _find_beyond_row(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts that need more than one row: subqueries, windows, stars, aggregates, unnest."""
    for inner in node.find_all(exp.Query, exp.Window, exp.Star, exp.Anonymous):
        if not isinstance(inner, exp.Anonymous) or inner.name.lower() in AGGREGATES or inner.name.lower() == "unnest":
            yield inner


def _is_first(select: exp.Select, draft: Draft) -> bool:
    first = select.args["from_"].this
    return isinstance(first, exp.Table) and first.name == draft.relation


def _join_conditions(conditions: list[exp.Expr]) -> exp.Expr:
    """Join the nodes themselves by AND, without copying: the resolution knows columns by their nodes. Parentheses
    around an OR were lost when the conjuncts were taken apart."""
    joined, *others = [exp.Paren(this=one) if isinstance(one, exp.Connector) else one for one in conditions]
    for condition in others:
        joined = exp.And(this=joined, expression=condition)
    return joined
