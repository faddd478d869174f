"""The rewritten query, cut into what workers do and what the coordinator does.

Workers check the conditions that speak of one table and give only the columns that are still needed; where a SELECT
groups one table's rows, they group theirs; where the query is one SELECT with a LIMIT, they give no more than could be
among the first. The rest of the tree runs once, over what they give.
"""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.dialect import written
from lakerunner.lakeql.first_rows import FirstRows, first_rows
from lakerunner.lakeql.grouped import Reading, is_plain, keys_of, projected, source_sql, split_groups
from lakerunner.lakeql.push import Pushed, is_of
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.rewrite import further_columns, hide_further_columns, keep_names
from lakerunner.lakeql.rounds import limits_of, rounds_of
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.typed_attributes import typed
from lakerunner.plan.plan import Leaf, Plan, Rounds, SqlFinish
from lakerunner.plan.sql_rows import SqlRows
from lakerunner.plan.types import Types

_MOST_FIRST = 10_000  # rows of a LIMIT that workers are told of; beyond, sorting twice does not pay
Names = list[tuple[exp.Select, list[str]]]


class Splitter:
    """`named` are the columns of each table that are needed though no column node names them: by a star, by USING, by a
    field inside a value."""

    def __init__(self, resolution: Resolution, names: Names, named: dict[int, set[str]], types: Types | None) -> None:
        self._resolution = resolution
        self._names = names
        self._named = named
        self._types = types
        self._leaves: dict[int, Leaf] = {}

    def plan(self, tree: exp.Query) -> Plan:
        pushed = Pushed(self._resolution)
        for draft in self._resolution.drafts:
            pushed.filters[id(draft)] = [typed(one, draft) for one in pushed.of(draft)]
        whole = self._whole(tree)
        rounds = rounds_of(*whole) if whole else None
        if whole and rounds and self._passes(whole[0]):
            return self._passing(*whole, rounds, pushed)
        selects = [(select, drafts[0]) for select, drafts in self._resolution.selects if len(drafts) == 1]
        for select, draft in selects:
            self._group(select, draft, pushed)
        first = self._first_rows(*whole) if whole and id(whole[1].draft) not in self._leaves else None
        for draft in self._resolution.drafts:
            if id(draft) not in self._leaves:
                self._leaves[id(draft)] = self._row_leaf(draft, tree, pushed, first)
        hide_further_columns(self._resolution, lambda draft: self._kept_further(draft, tree))
        keep_names(self._names)
        if rounds:
            for clause in ("limit", "offset"):
                tree.set(clause, None)
        leaves = tuple(self._leaves[id(draft)] for draft in self._resolution.drafts)
        return Plan(leaves, SqlFinish(written(tree), rounds))

    def _whole(self, tree: exp.Query) -> tuple[exp.Select, Reading] | None:
        """The query, if it is one SELECT over one table and nothing else."""
        if not isinstance(tree, exp.Select) or len(self._resolution.drafts) != 1 or not is_plain(tree):
            return None
        return tree, self._reading(tree, self._resolution.drafts[0])

    def _reading(self, select: exp.Select, draft: Draft) -> Reading:
        names = next(names for one, names in self._names if one is select)
        return Reading(self._resolution, draft, names)

    def _passes(self, select: exp.Select) -> bool:
        """Whether each row of the answer is made of one row of the table, and they stand in no order."""
        reading = self._reading(select, self._resolution.drafts[0])
        clauses = ("group", "having", "distinct", "order")
        return not any(select.args.get(clause) for clause in clauses) and keys_of(select, reading) is None

    def _passing(self, select: exp.Select, reading: Reading, rounds: Rounds, pushed: Pushed) -> Plan:
        """Workers do all of it; the coordinator hands their rows on."""
        draft = reading.draft
        filters = [written(one) for one in pushed.of(draft)]
        if filters:
            select.set("where", exp.Where(this=exp.condition(exp.and_(*pushed.of(draft), copy=False))))
        for clause in ("limit", "offset"):
            select.set(clause, None)
        if rounds.limit is not None:
            select.set("limit", exp.Limit(expression=exp.Literal.number(rounds.limit + rounds.offset)))
        hide_further_columns(self._resolution, further_columns)
        keep_names(self._names)
        leaf = Leaf(draft.scan(), SqlRows(written(select)))
        return Plan((leaf,), SqlFinish(f'SELECT * FROM "{draft.relation}"', rounds, passes=True))

    def _group(self, select: exp.Select, draft: Draft, pushed: Pushed) -> None:
        reads = select.args["from_"].this if select.args.get("from_") else None
        if self._types is None or not isinstance(reads, exp.Table) or reads.name != draft.relation:
            return
        sql = split_groups(select, self._reading(select, draft), pushed.of(draft), self._types)
        if sql is not None:
            self._leaves[id(draft)] = Leaf(draft.scan(), SqlRows(sql, steady=False))

    def _row_leaf(self, draft: Draft, tree: exp.Query, pushed: Pushed, first: FirstRows | None) -> Leaf:
        kept = self._kept(draft, tree)
        columns = [column for column in draft.table.columns if column.name in kept]
        names = [column.name for column in columns] + [name for name in further_columns(draft) if name in kept]
        shown = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names) or "1 AS no_column"
        table = next(one for one in tree.find_all(exp.Table) if one.name == draft.relation)
        source = source_sql(exp.Select(from_=exp.From(this=table.copy())), pushed.of(draft))
        filtered = bool(pushed.of(draft))
        sql = first.sql(shown, source, columns, filtered=filtered) if first else f"SELECT {shown} {source}"
        return Leaf(draft.scan(), SqlRows(sql, steady=first is None))

    def _first_rows(self, select: exp.Select, reading: Reading) -> FirstRows | None:
        """ORDER BY and LIMIT of a leaf that need give only what can be among the first rows of the answer."""
        limits, order = limits_of(select), select.args.get("order")
        if limits is None or limits[0] is None or order is None or keys_of(select, reading) is not None:
            return None
        if any(isinstance(one.this, exp.Var) for one in order.expressions):  # ORDER BY ALL
            return None
        if select.args.get("distinct") or _unnests(select):  # the first rows may make fewer of the answer
            return None
        keys = [(one, projected(select, one.this, reading)) for one in order.expressions]
        most = limits[0] + limits[1]
        if most > _MOST_FIRST or not all(reading.is_row(key) for _, key in keys) or select.args.get("group"):
            return None
        return first_rows(keys, most, reading)

    def _kept(self, draft: Draft, tree: exp.Query) -> set[str]:
        """The columns of a table that the coordinator's tree still names."""
        kept = set(self._named[id(draft)])
        for node in tree.find_all(exp.Column):
            if is_of(node, draft, self._resolution):
                found = self._resolution.found(node)
                kept.add(found.column.name if found.draft and found.column else node.name)
        return kept

    def _kept_further(self, draft: Draft, tree: exp.Query) -> list[str]:
        kept = self._kept(draft, tree)
        return [name for name in further_columns(draft) if name in kept]


def _unnests(select: exp.Select) -> bool:
    """Whether a row of the table may be several rows of the answer, or none."""
    return any(call.name.lower() == "unnest" for call in select.find_all(exp.Anonymous))
