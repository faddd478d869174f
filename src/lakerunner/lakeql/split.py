"""Split a rewritten query into what workers do and what the coordinator does.

Workers check the conditions on one table and return only the columns that are still needed; where a SELECT groups the
rows of one table, they group theirs; where the query is one SELECT with a LIMIT, they return only rows that could be
among the first. The rest of the tree runs once, over what they return.

Some queries are answered in rounds, because no time interval changes the result of another: the rows of one table in
order of `timestamp` or in no order, and groups of which one key is the start of a time bucket, in order of that key or
in no order. Then the first rows are there long before the last are read, and a LIMIT ends the reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from lakerunner.lakeql.dialect import to_sql
from lakerunner.lakeql.grouped import (
    SelectContext,
    find_bucket,
    find_projection,
    group_keys,
    is_plain,
    source_sql,
    split_groups,
)
from lakerunner.lakeql.log_table import LogLeaf, log_leaf, read_lines
from lakerunner.lakeql.push import PushedFilters, is_column_of
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.rewrite import further_columns, hide_further_columns, keep_names, use_typed_columns
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.tables import ColumnKind, TableColumn
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Plan, Rounds, SqlFinish
from lakerunner.plan.scan import Types

# ---- rounds


def find_rounds(select: exp.Select, context: SelectContext) -> Rounds | None:
    """Return how the answer to this SELECT, the whole query, can be computed in rounds; None: all at once."""
    limits = read_limits(select)
    if (
        not is_plain(select)
        or limits is None
        or (select.args.get("distinct") and select.args["distinct"].args.get("on"))
    ):
        return None
    order = select.args.get("order")
    first = order.expressions[0] if order else None
    leading = find_projection(select, first.this, context) if first is not None else None
    descending = bool(first is not None and first.args.get("desc"))
    limit, offset = limits
    keys = group_keys(select, context)
    if keys is None:
        if _groups(select) or (leading is not None and not context.is_timestamp(leading)):
            return None
        return Rounds(descending, limit=limit, offset=offset)
    for key in keys:
        bucket = _bucket(key, context)
        if bucket and (leading is None or context.bare(leading) == context.bare(key)):
            return Rounds(descending, *bucket, limit=limit, offset=offset)
    return None


def read_limits(select: exp.Select) -> tuple[int | None, int] | None:
    """Return (limit, offset) if they are plain numbers or absent; None otherwise."""
    values = []
    for clause in ("limit", "offset"):
        node = select.args.get(clause)
        number = node.expression if node is not None else None
        if node is not None and not (
            isinstance(node, exp.Limit | exp.Offset) and isinstance(number, exp.Literal) and number.is_int
        ):
            return None
        values.append(int(number.name) if number is not None else None)
    return values[0], values[1] or 0


def _groups(select: exp.Select) -> bool:
    """Whether it groups rows in a way that `group_keys` does not understand."""
    return bool(select.args.get("group") or select.args.get("having") or select.args.get("distinct"))


def _bucket(key: exp.Expr, context: SelectContext) -> tuple[int, int] | None:
    """Return (width, origin) in ns of the buckets whose start the key is."""
    if context.is_timestamp(key):
        return 1, 0
    bucket = find_bucket(key, context.is_timestamp)
    return (bucket.width_ns, bucket.origin_ns) if bucket else None


# ---- the first rows of an order

_COSTLY = (ColumnKind.MAP, ColumnKind.ITEMS)


@dataclass(frozen=True)
class FirstRows:
    """ORDER BY and LIMIT of a leaf. The rows are those that ORDER BY and LIMIT alone would return. `order` is the SQL
    after FROM and WHERE; `time` is its first key if that is the table's `timestamp`, which is never null, else ""."""

    order: str
    time: str = ""
    descending: bool = False

    def sql(self, shown: str, source: str, columns: list[TableColumn], *, filtered: bool) -> str:
        """Return the leaf's SQL. `source` is FROM, and WHERE if it is filtered; `columns` are those of the table that
        `shown` has.

        Maps and lists of structs are assembled from many columns for each row that is looked at. Where the leaf shows
        some in order of time, an inner query first finds how far the first rows reach, and they are assembled for no
        row beyond that.
        """
        if not self.time or not any(column.kind in _COSTLY for column in columns):
            return f"SELECT {shown} {source}{self.order}"
        extreme, sign = ("min", ">=") if self.descending else ("max", "<=")
        last = f"SELECT {extreme}(first_time) FROM (SELECT {self.time} AS first_time {source}{self.order})"
        within = f"{'AND' if filtered else 'WHERE'} {self.time} {sign} ({last})"
        return f"SELECT {shown} {source} {within}{self.order}"


def first_rows(keys: list[tuple[exp.Expr, exp.Expr]], most: int, context: SelectContext) -> FirstRows:
    """Return the order of a leaf. `keys`: the items of ORDER BY, each with its expression of a row; `most` is the
    number of rows."""
    order = f" ORDER BY {', '.join(_order_item(one, key) for one, key in keys)} LIMIT {most}"
    ordered, key = keys[0]
    if not context.is_timestamp(key):
        return FirstRows(order)
    return FirstRows(order, to_sql(key), bool(ordered.args.get("desc")))


def _order_item(ordered: exp.Expr, key: exp.Expr) -> str:
    copy = ordered.copy()
    copy.set("this", key.copy())
    return to_sql(copy)


# ---- the whole query

_MOST_FIRST = 10_000  # rows of a LIMIT that workers apply; beyond, sorting twice does not pay
Names = list[tuple[exp.Select, list[str]]]


class Splitter:
    """`named` are the columns of each table that are needed though no column node names them: by a star, by USING, by a
    field inside a value."""

    def __init__(
        self,
        resolution: Resolution,
        names: Names,
        named: dict[int, set[str]],
        types: Types | None,
        logs: LogLeaf | None = None,
    ) -> None:
        self._resolution = resolution
        self._names = names
        self._named = named
        self._types = types
        self._logs = logs
        self._leaves: dict[int, Leaf] = {}

    def plan(self, tree: exp.Query) -> Plan:
        pushed = PushedFilters(self._resolution)
        for draft in self._resolution.drafts:
            pushed.filters[id(draft)] = [use_typed_columns(one, draft) for one in pushed.filters_of(draft)]
        whole = self._single_select(tree)
        rounds = find_rounds(*whole) if whole else None
        lines = [draft for draft in self._resolution.drafts if draft.log_query]
        self._leaves = {id(draft): log_leaf(draft, self._logs) for draft in lines}
        if not lines and whole and rounds and self._is_pass_through(whole[0]):
            return self._pass_through_plan(*whole, rounds, pushed)
        selects = [(select, drafts[0]) for select, drafts in self._resolution.selects if len(drafts) == 1]
        for select, draft in selects:
            if draft not in lines:
                self._add_group_leaf(select, draft, pushed)
        first = self._first_rows(*whole) if whole and id(whole[1].draft) not in self._leaves else None
        for draft in self._resolution.drafts:
            if id(draft) not in self._leaves:
                self._leaves[id(draft)] = self._row_leaf(draft, tree, pushed, first)
        hide_further_columns(self._resolution, lambda draft: self._needed_further(draft, tree))
        keep_names(self._names)
        if rounds:
            for clause in ("limit", "offset"):
                tree.set(clause, None)
        for draft in lines:
            read_lines(tree, draft)
        leaves = tuple(self._leaves[id(draft)] for draft in self._resolution.drafts)
        needs_all = bool(leaves) and not (whole and self._is_bounded(*whole, rounds))
        return Plan(leaves, SqlFinish(to_sql(tree), rounds, needs_all=needs_all))

    def _single_select(self, tree: exp.Query) -> tuple[exp.Select, SelectContext] | None:
        """Return the query if it is one SELECT over one table and nothing else."""
        if not isinstance(tree, exp.Select) or len(self._resolution.drafts) != 1 or not is_plain(tree):
            return None
        return tree, self._context(tree, self._resolution.drafts[0])

    def _context(self, select: exp.Select, draft: Draft) -> SelectContext:
        names = next(names for one, names in self._names if one is select)
        return SelectContext(self._resolution, draft, names)

    def _is_pass_through(self, select: exp.Select) -> bool:
        """Whether each row of the answer is made of one row of the table, in no order."""
        context = self._context(select, self._resolution.drafts[0])
        clauses = ("group", "having", "distinct", "order")
        return not any(select.args.get(clause) for clause in clauses) and group_keys(select, context) is None

    def _pass_through_plan(
        self, select: exp.Select, context: SelectContext, rounds: Rounds, pushed: PushedFilters
    ) -> Plan:
        """Return a plan in which workers do everything, and the coordinator hands their rows on."""
        draft = context.draft
        filters = [to_sql(one) for one in pushed.filters_of(draft)]
        if filters:
            select.set("where", exp.Where(this=exp.condition(exp.and_(*pushed.filters_of(draft), copy=False))))
        for clause in ("limit", "offset"):
            select.set(clause, None)
        if rounds.limit is not None:
            select.set("limit", exp.Limit(expression=exp.Literal.number(rounds.limit + rounds.offset)))
        hide_further_columns(self._resolution, further_columns)
        keep_names(self._names)
        leaf = Leaf(draft.scan(), SqlRows(to_sql(select)))
        return Plan((leaf,), SqlFinish(f'SELECT * FROM "{draft.relation}"', rounds, passes=True))

    def _add_group_leaf(self, select: exp.Select, draft: Draft, pushed: PushedFilters) -> None:
        reads = select.args["from_"].this if select.args.get("from_") else None
        if self._types is None or not isinstance(reads, exp.Table) or reads.name != draft.relation:
            return
        sql = split_groups(select, self._context(select, draft), pushed.filters_of(draft), self._types)
        if sql is not None:
            self._leaves[id(draft)] = Leaf(draft.scan(), SqlRows(sql, steady=False))

    def _is_bounded(self, select: exp.Select, context: SelectContext, rounds: Rounds | None) -> bool:
        """Whether the coordinator folds groups, sorts first rows, or sorts one stretch of time after the other."""
        if not self._leaves[id(context.draft)].operator.steady:  # workers have grouped, or give their first rows
            return True
        return rounds is not None and group_keys(select, context) is None

    def _row_leaf(self, draft: Draft, tree: exp.Query, pushed: PushedFilters, first: FirstRows | None) -> Leaf:
        kept = self._needed_columns(draft, tree)
        columns = [column for column in draft.table.columns if column.name in kept]
        names = [column.name for column in columns] + [name for name in further_columns(draft) if name in kept]
        shown = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names) or "1 AS no_column"
        table = next(one for one in tree.find_all(exp.Table) if one.name == draft.relation)
        source = source_sql(exp.Select(from_=exp.From(this=table.copy())), pushed.filters_of(draft))
        filtered = bool(pushed.filters_of(draft))
        sql = first.sql(shown, source, columns, filtered=filtered) if first else f"SELECT {shown} {source}"
        return Leaf(draft.scan(), SqlRows(sql, steady=first is None))

    def _first_rows(self, select: exp.Select, context: SelectContext) -> FirstRows | None:
        """Return ORDER BY and LIMIT of a leaf that needs to return only what can be among the first rows of the
        answer."""
        limits, order = read_limits(select), select.args.get("order")
        if limits is None or limits[0] is None or order is None or group_keys(select, context) is not None:
            return None
        if any(isinstance(one.this, exp.Var) for one in order.expressions):  # ORDER BY ALL
            return None
        if select.args.get("distinct") or _unnests(select):  # the first rows may make fewer rows of the answer
            return None
        keys = [(one, find_projection(select, one.this, context)) for one in order.expressions]
        most = limits[0] + limits[1]
        if most > _MOST_FIRST or not all(context.is_row(key) for _, key in keys) or select.args.get("group"):
            return None
        return first_rows(keys, most, context)

    def _needed_columns(self, draft: Draft, tree: exp.Query) -> set[str]:
        """Return the columns of a table that the coordinator's tree still names."""
        kept = set(self._named[id(draft)])
        for node in tree.find_all(exp.Column):
            if is_column_of(node, draft, self._resolution):
                found = self._resolution.origin(node)
                kept.add(found.column.name if found.draft and found.column else node.name)
        return kept

    def _needed_further(self, draft: Draft, tree: exp.Query) -> list[str]:
        kept = self._needed_columns(draft, tree)
        return [name for name in further_columns(draft) if name in kept]


def _unnests(select: exp.Select) -> bool:
    """Whether a row of the table may become several rows of the answer, or none."""
    return any(call.name.lower() == "unnest" for call in select.find_all(exp.Anonymous))
