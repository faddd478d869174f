"""Split a SELECT that groups the rows of one table: workers group their rows, the coordinator folds the groups.

Comes in: a SELECT whose conditions workers check already. Goes out: the SQL of the leaf, with the SELECT itself
rewritten to read the leaf's groups. If one of the aggregates needs all rows at once (plan/aggregate.py) or the SELECT
is not of this kind, nothing goes out and the SELECT is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from lakerunner.lakeql.dialect import DIALECT, to_sql
from lakerunner.lakeql.functions import BUCKET_START, MICROSECONDS
from lakerunner.lakeql.push import AGGREGATES, is_column_of, reads_only
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.rewrite import typed_key_column, use_typed_columns
from lakerunner.lakeql.scope import Draft
from lakerunner.plan.aggregate import SPLITTING, Split, restore_type, split_of
from lakerunner.plan.scan import Types

# ---- time buckets as keys

_SECOND_NS = 1_000_000_000
_UNITS = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": _SECOND_NS,
    "minute": 60 * _SECOND_NS,
    "hour": 3_600 * _SECOND_NS,
    "day": 86_400 * _SECOND_NS,
    "week": 7 * 86_400 * _SECOND_NS,
}
_MONDAY_NS = 10_959 * 86_400 * _SECOND_NS  # 2000-01-03: where buckets of time_bucket begin, and a week of date_trunc
_WIDEST_NS = 1 << 62  # what one number of DuckDB holds


@dataclass(frozen=True)
class Bucket:
    """Time buckets that are `width_ns` wide and begin at multiples of that since the epoch, plus `origin_ns`, which is
    less than the width. `time` is the expression of the time."""

    width_ns: int
    origin_ns: int
    time: exp.Expr

    def start_sql(self) -> str | None:
        """Return SQL of a bucket's start that takes half the time, or None if there is no faster way: one division of
        nanoseconds, where DuckDB's own functions divide to microseconds first."""
        if self.origin_ns or self.width_ns > _WIDEST_NS:
            return None
        return f"{BUCKET_START}({to_sql(self.time)}, {self.width_ns})"


def find_bucket(key: exp.Expr, is_timestamp: Callable[[exp.Expr], bool]) -> Bucket | None:
    """Return the buckets of `timestamp` whose start this call of date_trunc or time_bucket returns."""
    if not isinstance(key, exp.Anonymous) or len(key.expressions) != 2:
        return None
    width, cut = key.expressions
    if not (isinstance(cut, exp.Anonymous) and cut.name == MICROSECONDS and is_timestamp(cut.expressions[0])):
        return None
    match key.name.lower():
        case "date_trunc" | "datetrunc" if width.is_string:
            ns = _UNITS.get(width.name.lower())
        case "time_bucket":
            ns = _interval_ns(width)
        case _:
            return None
    return Bucket(ns, _MONDAY_NS % ns, cut.expressions[0]) if ns else None


def _interval_ns(node: exp.Expr) -> int | None:
    """Read INTERVAL '5 minutes' or INTERVAL 5 MINUTE; None if it has months or anything else in it."""
    if not isinstance(node, exp.Interval) or node.this is None:
        return None
    words = [*node.this.name.split(), *([node.args["unit"].name] if node.args.get("unit") else [])]
    if len(words) != 2 or not words[0].isdigit():
        return None
    unit = _UNITS.get(words[1].lower().removesuffix("s"))
    return int(words[0]) * unit or None if unit else None


# ---- what a SELECT groups by

_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct"}


@dataclass(frozen=True)
class SelectContext:
    """A SELECT over one table: the resolution of its columns, the table, and the names of its projections before they
    were rewritten."""

    resolution: Resolution
    draft: Draft
    names: list[str]

    def bare(self, node: exp.Expr) -> str:
        """Return the SQL of an expression, the same however a column of the table is qualified."""
        copy = node.copy()
        for column in copy.find_all(exp.Column):
            if column.table and len(column.parts) == 2:
                column.set("table", None)
            if isinstance(column.this, exp.Identifier):
                column.this.set("this", column.name.lower())
        return to_sql(copy)

    def is_row(self, node: exp.Expr) -> bool:
        """Whether this is an expression of one row of the table."""
        return reads_only(node, self.draft, self.resolution)

    def is_timestamp(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and self.is_row(node) and self.bare(node) == '"timestamp"'


def find_projection(select: exp.Select, node: exp.Expr, context: SelectContext) -> exp.Expr:
    """Return the expression that a position or a name in GROUP BY or ORDER BY stands for; for ORDER BY ALL the first
    one."""
    shown: list[exp.Expr] = [one.this if isinstance(one, exp.Alias) else one for one in select.expressions]
    counted = not any(
        one.is_star for one in shown
    )  # a star stands for many columns, which shift the positions after it
    if isinstance(node, exp.Var) and node.name.upper() == "ALL" and counted:
        return shown[0]
    if counted and isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.name) <= len(shown):
        return shown[int(node.name) - 1]
    if isinstance(node, exp.Column) and not node.table and not is_column_of(node, context.draft, context.resolution):
        named: list[exp.Expr] = [
            one.this for one in select.expressions if one.alias and one.alias.lower() == node.name.lower()
        ]
        return named[0] if named else node
    return node


def group_keys(select: exp.Select, context: SelectContext) -> list[exp.Expr] | None:
    """Return what the SELECT groups by; None if it does not group, or in a way that is not understood here."""
    group, distinct = select.args.get("group"), select.args.get("distinct")
    aggregates = any(True for one in select.expressions for _ in _aggregates(one))
    shown = [one.this if isinstance(one, exp.Alias) else one for one in select.expressions]
    if distinct:
        return None if group or aggregates or distinct.args.get("on") else shown
    if group is None:
        return [] if aggregates else None
    if any(value for name, value in group.args.items() if name not in ("expressions", "all")):
        return None
    if group.args.get("all"):
        return [one for one in shown if not any(True for _ in _aggregates(one))]
    keys = [find_projection(select, key, context) for key in group.expressions]
    return None if any(isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in keys) else keys


def is_plain(select: exp.Select) -> bool:
    """Whether the SELECT has only what is understood here: one table, no subqueries, no windows."""
    clauses = {name for name, value in select.args.items() if value}
    inner = [node for node in select.find_all(exp.Query, exp.Window) if node is not select]
    return clauses <= _CLAUSES and not inner and not select.args.get("where")


def split_groups(select: exp.Select, context: SelectContext, filters: list[exp.Expr], types: Types) -> str | None:
    """Return the leaf's SQL and rewrite the SELECT to read it; or return None and change nothing."""
    keys = group_keys(select, context) if is_plain(select) else None
    if keys is None or not all(context.is_row(key) for key in keys):
        return None
    taken = _LeafParts(context, {context.bare(key): n for n, key in enumerate(keys)})
    clauses = [*select.expressions, select.args.get("having"), select.args.get("order")]
    if not all(taken.take(clause) for clause in clauses if clause is not None):
        return None
    bound = types(_probe(select, keys, taken, context), context.draft.scan())
    if bound is None or not taken.bind(bound[len(select.expressions) + len(keys) :]):
        return None
    _rewrite(select, taken, bound[: len(select.expressions) + len(keys)])
    return taken.leaf_sql(select, keys, filters)


@dataclass
class _AggregateCall:
    """One aggregate of the SELECT: the node that stands for it, its name, its arguments as SQL over rows."""

    node: exp.Expr
    name: str
    arguments: list[str]
    distinct: bool
    split: Split | None = None
    result: str = ""


@dataclass
class _LeafParts:
    """The parts of a SELECT that the leaf computes: keys, by their SQL, and aggregates."""

    context: SelectContext
    keys: dict[str, int]
    replaced: list[tuple[exp.Expr, int]] = field(default_factory=list)
    calls: list[_AggregateCall] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)

    def take(self, node: exp.Expr) -> bool:
        """Collect the parts of an expression; return whether it consists of keys, aggregates and constants only."""
        if not isinstance(node, exp.Alias | exp.Order | exp.Ordered | exp.Having):
            number = self.keys.get(self.context.bare(node))
            if number is not None and self.context.is_row(node):
                self.replaced.append((node, number))
                return True
            if isinstance(node, exp.Filter) or _is_aggregate(node):
                return self._take_call(node)
        if isinstance(node, exp.Column):
            return not is_column_of(node, self.context.draft, self.context.resolution)
        if isinstance(node, exp.WithinGroup | exp.Star):
            return False
        return all(self.take(child) for child in node.iter_expressions())

    def _take_call(self, node: exp.Expr) -> bool:
        call = node.this if isinstance(node, exp.Filter) else node
        arguments = list(call.expressions)
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in SPLITTING:
            return False
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        arguments = list(arguments[0].expressions) if distinct else arguments
        condition = node.expression.this if isinstance(node, exp.Filter) else None
        rows = [*arguments, *filter(None, [condition])]
        if any(isinstance(one, exp.Order) for one in arguments):
            return False
        if not all(_is_count_star(call, one) or _is_constant(one) or self.context.is_row(one) for one in rows):
            return False
        texts = ["1" if isinstance(one, exp.Star) else self._row_sql(one) for one in arguments]
        if condition is not None:
            texts = [f"CASE WHEN {self._row_sql(condition)} THEN {one} END" for one in texts]
        self.calls.append(_AggregateCall(node, call.name.lower(), texts, distinct))
        return True

    def bind(self, bound: Sequence[tuple[str, str]]) -> bool:
        """Take the types from the probe: for each aggregate its own, then its arguments'. Return whether all of them
        split."""
        types = iter([type_ for _, type_ in bound])
        for call in self.calls:
            call.result = next(types)
            call.split = split_of(call.name, tuple(next(types) for _ in call.arguments), distinct=call.distinct)
        return all(call.split for call in self.calls)

    def name_column(self, expression: str, kind: str) -> str:
        """Return the leaf's column for this expression; equal expressions share one."""
        if expression not in self.columns:
            self.columns[expression] = f"{self.context.draft.relation}.{kind}{len(self.columns)}"
        return self.columns[expression]

    def fold_sql(self, call: _AggregateCall) -> str:
        """Return the SQL that folds the leaf's partials of this aggregate."""
        split = call.split
        if split is None:
            raise ValueError(f"{call.name} does not split")
        given = dict(zip("xy", call.arguments, strict=False))
        keys = [self.name_column(key.format(**given), "key") for key in split.keys]
        parts = [self.name_column(part.format(**given), "part") for part in split.partials]
        return split.fold.format(*(f'"{name}"' for name in (*keys, *parts)), result=call.result)

    def leaf_sql(self, select: exp.Select, keys: list[exp.Expr], filters: list[exp.Expr]) -> str:
        relation = self.context.draft.relation
        columns_by = [typed_key_column(key, self.context.draft) for key in keys]
        groups = [
            f"CAST({_identifier(column)} AS VARCHAR)" if column else self._key_sql(key)
            for key, column in zip(keys, columns_by, strict=True)
        ]
        further = [name for name in self.columns.values() if ".key" in name]
        columns = [f'{text} AS "{relation}.group{n}"' for n, text in enumerate(groups)]
        columns += [f'{text} AS "{name}"' for text, name in sorted(self.columns.items(), key=_is_part)]
        # By a typed column itself, so that its text is made once for each group.
        by = [
            _identifier(column) if column else str(n + 1)
            for n, column in enumerate([*columns_by, *(None for _ in further)])
        ]
        grouped = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join(columns)} {source_sql(select, filters)}{grouped}"

    def _key_sql(self, key: exp.Expr) -> str:
        bucket = find_bucket(key, self.context.is_timestamp)
        return (bucket.start_sql() if bucket else None) or self._row_sql(key)

    def _row_sql(self, node: exp.Expr) -> str:
        return to_sql(use_typed_columns(node, self.context.draft))


def source_sql(select: exp.Select, filters: list[exp.Expr]) -> str:
    """Return FROM and WHERE of a leaf, with the table's alias of the SELECT."""
    where = f" WHERE {' AND '.join(f'({to_sql(one)})' for one in filters)}" if filters else ""
    return f"FROM {to_sql(select.args['from_'].this)}{where}"


def _is_part(column: tuple[str, str]) -> bool:
    return ".part" in column[1]


def _probe(select: exp.Select, keys: list[exp.Expr], taken: _LeafParts, context: SelectContext) -> str:
    """Return a SELECT whose columns show names and types: the projections, the keys, each aggregate and its
    arguments."""
    shown = [
        f'{to_sql(node)} AS "{_quoted(name)}"' if name else to_sql(node)
        for node, name in zip(select.expressions, projection_names(select, context.names), strict=True)
    ]
    aggregates = [
        one for call in taken.calls for one in (to_sql(call.node), *(f"any_value({a})" for a in call.arguments))
    ]
    source = source_sql(select, [])
    grouped = f" GROUP BY {', '.join(to_sql(key) for key in keys)}" if keys and not select.args.get("distinct") else ""
    return f"SELECT {', '.join([*shown, *map(to_sql, keys), *aggregates])} {source}{grouped}"


def projection_names(select: exp.Select, names: list[str]) -> list[str]:
    """Return for each projection the name that it must get because it was rewritten; "" where it has one."""
    pairs = zip(select.expressions, names, strict=True)
    return ["" if isinstance(node, exp.Alias) or to_sql(node, identify=False) == name else name for node, name in pairs]


def _rewrite(select: exp.Select, taken: _LeafParts, bound: Sequence[tuple[str, str]]) -> None:
    """Make the SELECT read the leaf. `bound`: the names and types of its projections, then those of the keys."""
    relation = taken.context.draft.relation
    count = len(select.expressions)
    names, types = [name for name, _ in bound[:count]], [type_ for _, type_ in bound[count:]]
    given = [restore_type(f'"{relation}.group{n}"', type_) for n, type_ in enumerate(types)]
    folds = [(call.node, taken.fold_sql(call)) for call in taken.calls]
    swaps = [(node, given[number]) for node, number in taken.replaced] + folds
    # A name in GROUP BY or ORDER BY may stand for a projection: restate the keys before the projections change.
    if select.args.get("group"):
        select.set("group", exp.Group(expressions=[exp.column(f"{relation}.group{n}") for n in range(len(types))]))
    for node, text in swaps:
        node.replace(_parse_expression(text))
    shown = [
        one if isinstance(one, exp.Alias) else exp.alias_(one.copy(), name, quoted=True)
        for one, name in zip(select.expressions, names, strict=True)
    ]
    select.set("expressions", shown)


def _parse_expression(text: str) -> exp.Expr:
    (tree,) = DIALECT.parse(f"SELECT {text}")
    parsed: exp.Expr = tree.expressions[0] if tree is not None else exp.Null()
    return parsed


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def _aggregates(node: exp.Expr) -> list[exp.Expr]:
    return [one for one in node.find_all(exp.Anonymous) if _is_aggregate(one)]


def _is_count_star(call: exp.Anonymous, argument: exp.Expr) -> bool:
    return isinstance(argument, exp.Star) and call.name.lower() == "count"


def _is_constant(node: exp.Expr) -> bool:
    return not any(True for _ in node.find_all(exp.Column, exp.Query, exp.Star))


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _identifier(name: str) -> str:
    return f'"{_quoted(name)}"'
