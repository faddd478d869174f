"""A SELECT that groups the rows of one table, taken apart: what workers group, what the coordinator folds.

Comes in: a SELECT whose conditions workers check already. Goes out: the leaf's SQL, with the SELECT itself rewritten to
read the leaf's groups; or nothing, and the SELECT as it was, if one of its aggregates needs all rows at once
(plan/aggregate.py) or it is not of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from lakerunner.lakeql.buckets import bucket_of
from lakerunner.lakeql.dialect import DIALECT, written
from lakerunner.lakeql.push import AGGREGATES, is_of, speaks_of
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.typed_attributes import typed, typed_key
from lakerunner.plan.aggregate import SPLITTING, Split, as_it_was, split_of
from lakerunner.plan.types import Types

_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct"}


@dataclass(frozen=True)
class Reading:
    """What is known when a SELECT is looked at: whose columns are whose, its one table, and what its projections were
    called before they were rewritten."""

    resolution: Resolution
    draft: Draft
    names: list[str]

    def bare(self, node: exp.Expr) -> str:
        """The text, the same however a column of the table is qualified."""
        copy = node.copy()
        for column in copy.find_all(exp.Column):
            if column.table and len(column.parts) == 2:
                column.set("table", None)
            if isinstance(column.this, exp.Identifier):
                column.this.set("this", column.name.lower())
        return written(copy)

    def is_row(self, node: exp.Expr) -> bool:
        return speaks_of(node, self.draft, self.resolution)

    def is_timestamp(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and self.is_row(node) and self.bare(node) == '"timestamp"'


def projected(select: exp.Select, node: exp.Expr, reading: Reading) -> exp.Expr:
    """The expression that a position or a name in GROUP BY or ORDER BY stands for; of ORDER BY ALL the first one."""
    shown: list[exp.Expr] = [one.this if isinstance(one, exp.Alias) else one for one in select.expressions]
    counted = not any(one.is_star for one in shown)  # a star stands for many: what is behind it has another position
    if isinstance(node, exp.Var) and node.name.upper() == "ALL" and counted:
        return shown[0]
    if counted and isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.name) <= len(shown):
        return shown[int(node.name) - 1]
    if isinstance(node, exp.Column) and not node.table and not is_of(node, reading.draft, reading.resolution):
        named: list[exp.Expr] = [
            one.this for one in select.expressions if one.alias and one.alias.lower() == node.name.lower()
        ]
        return named[0] if named else node
    return node


def keys_of(select: exp.Select, reading: Reading) -> list[exp.Expr] | None:
    """What the SELECT groups by; None if it does so in a way that is not understood here, or does not group."""
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
    keys = [projected(select, key, reading) for key in group.expressions]
    return None if any(isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in keys) else keys


def is_plain(select: exp.Select) -> bool:
    """Nothing in it but what is understood here: one table, no subqueries, no windows."""
    clauses = {name for name, value in select.args.items() if value}
    inner = [node for node in select.find_all(exp.Query, exp.Window) if node is not select]
    return clauses <= _CLAUSES and not inner and not select.args.get("where")


def split_groups(select: exp.Select, reading: Reading, filters: list[exp.Expr], types: Types) -> str | None:
    """The leaf's SQL, and the SELECT rewritten to read it; None, and nothing is changed."""
    keys = keys_of(select, reading) if is_plain(select) else None
    if keys is None or not all(reading.is_row(key) for key in keys):
        return None
    taken = _Taken(reading, {reading.bare(key): n for n, key in enumerate(keys)})
    clauses = [*select.expressions, select.args.get("having"), select.args.get("order")]
    if not all(taken.take(clause) for clause in clauses if clause is not None):
        return None
    bound = types.of(_probe(select, keys, taken, reading), reading.draft.scan())
    if bound is None or not taken.bind(bound[len(select.expressions) + len(keys) :]):
        return None
    _rewrite(select, taken, bound[: len(select.expressions) + len(keys)])
    return taken.leaf_sql(select, keys, filters)


@dataclass
class _Call:
    """One aggregate of the SELECT: the node that stands for it, its name, its arguments as rows give them."""

    node: exp.Expr
    name: str
    arguments: list[str]
    distinct: bool
    split: Split | None = None
    result: str = ""


@dataclass
class _Taken:
    """The parts of a SELECT that the leaf will give: keys, by the text they have, and aggregates."""

    reading: Reading
    keys: dict[str, int]
    replaced: list[tuple[exp.Expr, int]] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)

    def take(self, node: exp.Expr) -> bool:
        """Whether all of it is made of keys, aggregates and constants."""
        if not isinstance(node, exp.Alias | exp.Order | exp.Ordered | exp.Having):
            number = self.keys.get(self.reading.bare(node))
            if number is not None and self.reading.is_row(node):
                self.replaced.append((node, number))
                return True
            if isinstance(node, exp.Filter) or _is_aggregate(node):
                return self._call(node)
        if isinstance(node, exp.Column):
            return not is_of(node, self.reading.draft, self.reading.resolution)
        if isinstance(node, exp.WithinGroup | exp.Star):
            return False
        return all(self.take(child) for child in node.iter_expressions())

    def _call(self, node: exp.Expr) -> bool:
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
        if not all(_is_count_star(call, one) or _is_constant(one) or self.reading.is_row(one) for one in rows):
            return False
        texts = ["1" if isinstance(one, exp.Star) else self._row_sql(one) for one in arguments]
        if condition is not None:
            texts = [f"CASE WHEN {self._row_sql(condition)} THEN {one} END" for one in texts]
        self.calls.append(_Call(node, call.name.lower(), texts, distinct))
        return True

    def bind(self, bound: Sequence[tuple[str, str]]) -> bool:
        """What the types say: for each aggregate its own, then its arguments'. Whether all of them split."""
        types = iter([type_ for _, type_ in bound])
        for call in self.calls:
            call.result = next(types)
            call.split = split_of(call.name, tuple(next(types) for _ in call.arguments), distinct=call.distinct)
        return all(call.split for call in self.calls)

    def name(self, expression: str, kind: str) -> str:
        """The leaf's column for this expression; equal ones share it."""
        if expression not in self.columns:
            self.columns[expression] = f"{self.reading.draft.relation}.{kind}{len(self.columns)}"
        return self.columns[expression]

    def folded(self, call: _Call) -> str:
        split = call.split
        if split is None:
            raise ValueError(f"{call.name} does not split")
        given = dict(zip("xy", call.arguments, strict=False))
        keys = [self.name(key.format(**given), "key") for key in split.keys]
        parts = [self.name(part.format(**given), "part") for part in split.partials]
        return split.fold.format(*(f'"{name}"' for name in (*keys, *parts)), result=call.result)

    def leaf_sql(self, select: exp.Select, keys: list[exp.Expr], filters: list[exp.Expr]) -> str:
        relation = self.reading.draft.relation
        columns_by = [typed_key(key, self.reading.draft) for key in keys]
        groups = [
            f"CAST({_identifier(column)} AS VARCHAR)" if column else self._key_sql(key)
            for key, column in zip(keys, columns_by, strict=True)
        ]
        further = [name for name in self.columns.values() if ".key" in name]
        columns = [f'{text} AS "{relation}.group{n}"' for n, text in enumerate(groups)]
        columns += [f'{text} AS "{name}"' for text, name in _keys_first(self.columns)]
        # By a typed column itself, so that its text is made once for each group.
        by = [
            _identifier(column) if column else str(n + 1)
            for n, column in enumerate([*columns_by, *(None for _ in further)])
        ]
        grouped = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join(columns)} {source_sql(select, filters)}{grouped}"

    def _key_sql(self, key: exp.Expr) -> str:
        bucket = bucket_of(key, self.reading.is_timestamp)
        return (bucket.start_sql() if bucket else None) or self._row_sql(key)

    def _row_sql(self, node: exp.Expr) -> str:
        return written(typed(node, self.reading.draft))


def source_sql(select: exp.Select, filters: list[exp.Expr]) -> str:
    """FROM and WHERE of a leaf, with the table called as the SELECT calls it."""
    where = f" WHERE {' AND '.join(f'({written(one)})' for one in filters)}" if filters else ""
    return f"FROM {written(select.args['from_'].this)}{where}"


def _keys_first(columns: dict[str, str]) -> list[tuple[str, str]]:
    return sorted(columns.items(), key=lambda item: ".part" in item[1])


def _probe(select: exp.Select, keys: list[exp.Expr], taken: _Taken, reading: Reading) -> str:
    """A SELECT whose columns tell names and types: the projections, the keys, each aggregate and its arguments."""
    shown = [
        f'{written(node)} AS "{_quoted(name)}"' if name else written(node)
        for node, name in zip(select.expressions, renamed(select, reading.names), strict=True)
    ]
    told = [one for call in taken.calls for one in (written(call.node), *(f"any_value({a})" for a in call.arguments))]
    source = source_sql(select, [])
    grouped = f" GROUP BY {', '.join(written(key) for key in keys)}" if keys and not select.args.get("distinct") else ""
    return f"SELECT {', '.join([*shown, *map(written, keys), *told])} {source}{grouped}"


def renamed(select: exp.Select, names: list[str]) -> list[str]:
    """For each projection the name it must be given because it was rewritten; "" where it has one."""
    pairs = zip(select.expressions, names, strict=True)
    return [
        "" if isinstance(node, exp.Alias) or written(node, identify=False) == name else name for node, name in pairs
    ]


def _rewrite(select: exp.Select, taken: _Taken, bound: Sequence[tuple[str, str]]) -> None:
    """`bound`: the names and types of its projections, then those of the keys."""
    relation = taken.reading.draft.relation
    count = len(select.expressions)
    names, types = [name for name, _ in bound[:count]], [type_ for _, type_ in bound[count:]]
    given = [as_it_was(f'"{relation}.group{n}"', type_) for n, type_ in enumerate(types)]
    folds = [(call.node, taken.folded(call)) for call in taken.calls]
    swaps = [(node, given[number]) for node, number in taken.replaced] + folds
    # A name in GROUP BY or ORDER BY may stand for a projection: the keys are said anew, before those change.
    if select.args.get("group"):
        select.set("group", exp.Group(expressions=[exp.column(f"{relation}.group{n}") for n in range(len(types))]))
    for node, text in swaps:
        node.replace(_parsed(text))
    shown = [
        one if isinstance(one, exp.Alias) else exp.alias_(one.copy(), name, quoted=True)
        for one, name in zip(select.expressions, names, strict=True)
    ]
    select.set("expressions", shown)


def _parsed(text: str) -> exp.Expr:
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
