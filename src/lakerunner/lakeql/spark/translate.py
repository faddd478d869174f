"""Translate the resolved and rewritten tree of a query to Spark's SQL: SELECTs, joins, WITH and set operations.

Comes in: the tree, before anything is split off it, and the scans that its tables became. Goes out: Spark's SQL. What
always holds: every relation and every column in it has a name of our own, so that no name of the user reaches Spark;
what a star shows is written out; where NULLs go is written out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from uuid import UUID

from sqlglot import exp

from lakerunner.lakeql.compile import RewrittenQuery, rewrite_query, user_errors
from lakerunner.lakeql.constants import Constants, read_integer
from lakerunner.lakeql.dialect import to_sql
from lakerunner.lakeql.rewrite import further_columns, hide_further_columns, keep_names
from lakerunner.lakeql.source import MAX_LENGTH, QueryText
from lakerunner.lakeql.spark.aggregates import WINDOWS, direction, has_aggregate
from lakerunner.lakeql.spark.calls import CALLS
from lakerunner.lakeql.spark.scalars import ARITHMETIC, LOGIC
from lakerunner.lakeql.spark.values import ORDERED, Type, Value, common_type, type_named
from lakerunner.lakeql.spark.writer import OutputColumn, Relation, SparkScope, Writer, Writers
from lakerunner.lakeql.tables import table_of_signal
from lakerunner.model.errors import UserError
from lakerunner.plan.scan import Scan, attribute_column, id_column
from lakerunner.plan.spark import SparkPlan, place

WRITERS: Writers = {**LOGIC, **ARITHMETIC, **CALLS, **WINDOWS}


_SET_OPERATIONS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}
_GROUPINGS = ("grouping_sets", "rollup", "cube", "totals")


def compile_spark(
    text: str,
    organization: UUID,
    now_ns: int,
    *,
    parameters: Mapping[str, Any] | None = None,
    max_length: int = MAX_LENGTH,
) -> SparkPlan:
    """Compile one SELECT so that Spark runs it as a whole. Refuse what `compile_sql` refuses, and with a UserError that
    has a position what is not known to mean the same to Spark."""
    source, constants = QueryText(text), Constants(now_ns)
    with user_errors():
        query = rewrite_query(source, organization, constants, parameters or {}, max_length)
        _refuse_log_queries(query)
        hide_further_columns(query.resolution, further_columns)
        keep_names(query.names)
        scans = tuple(draft.scan() for draft in query.resolution.drafts)
        spark_sql = _Translation(scans, source, constants).query(query.tree, None, {}).sql
        return SparkPlan(to_sql(query.tree), spark_sql, scans)


def _refuse_log_queries(query: RewrittenQuery) -> None:
    for draft in query.resolution.drafts:
        if draft.log_query:
            raise UserError(
                "logql(...) is not available with engine=spark in a query that needs all rows in one place, as joins, "
                "windows and subqueries do: leave engine=spark out",
                draft.position,
            )


@dataclass(frozen=True)
class _Query:
    """A translated query. `outputs` have the names of our own that the SQL gives them."""

    sql: str
    outputs: tuple[OutputColumn, ...]

    def named(self, alias: exp.Expr | None) -> tuple[OutputColumn, ...]:
        """Return the outputs with the column names that follow the alias, if there are any."""
        given = [column.name for column in alias.args.get("columns") or ()] if alias else []
        renamed = [replace(output, name=name) for output, name in zip(self.outputs, given, strict=False)]
        return (*renamed, *self.outputs[len(given) :])


_Named = Mapping[str, _Query]
_Item = tuple[str, str]  # of ORDER BY: the SQL, and the direction


class _Translation:
    def __init__(self, scans: Sequence[Scan], source: QueryText, constants: Constants) -> None:
        self._scans = {scan.relation: scan for scan in scans}
        self._numbers = count(1)
        self._ctes: _Named = {}
        self._expressions = Writer(WRITERS, source, constants, self._subquery)

    def query(self, node: exp.Expr, outer: SparkScope | None, ctes: _Named) -> _Query:
        written, ctes = self._with(node, outer, ctes)
        match node:
            case exp.Select():
                made = self._select(node, outer, ctes)
            case exp.SetOperation():
                made = self._order_query(node, self._set_operation(node, outer, ctes))
            case exp.Subquery():
                made = self._order_query(node, self.query(node.this, outer, ctes))
            case _:
                raise self._expressions.not_available(type(node).__name__.upper(), node)
        return replace(made, sql=f"WITH {', '.join(written)} {made.sql}") if written else made

    def _subquery(self, node: exp.Expr, scope: SparkScope) -> tuple[str, list[Type]]:
        """Write a subquery in an expression."""
        made = self.query(node, scope, self._ctes)
        return made.sql, [output.value.type for output in made.outputs]

    def _with(self, node: exp.Expr, outer: SparkScope | None, ctes: _Named) -> tuple[list[str], _Named]:
        clause, named, written = node.args.get("with_"), dict(ctes), []
        for cte in clause.expressions if clause else ():
            made, alias = self.query(cte.this, outer, named), cte.args["alias"]
            name = self._fresh("t")
            written.append(f"{name} AS ({made.sql})")
            named[alias.name.lower()] = _Query(name, made.named(alias))
        return written, named

    def _fresh(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    # SELECT

    def _select(self, node: exp.Select, outer: SparkScope | None, ctes: _Named) -> _Query:
        outside, self._ctes = self._ctes, ctes
        try:
            return _Select(self, node, SparkScope(outer), ctes).query()
        finally:
            self._ctes = outside

    def _order_query(self, node: exp.Expr, made: _Query) -> _Query:
        """Write ORDER BY, LIMIT and OFFSET of a set operation or of a query in parentheses: only its columns may be
        named."""
        order = node.args.get("order")
        if not order and not node.args.get("limit") and not node.args.get("offset"):
            return made
        items = [self._output(item, made.outputs) + direction(item) for item in order.expressions] if order else []
        ordered = f" ORDER BY {', '.join(items)}" if items else ""
        return replace(made, sql=f"SELECT * FROM ({made.sql}) AS {self._fresh('r')}{ordered}{self.bounds(node)}")

    def _output(self, item: exp.Expr, outputs: Sequence[OutputColumn]) -> str:
        number = read_integer(item.this)
        if number is not None and 1 <= number <= len(outputs):
            return outputs[number - 1].value.sql
        if isinstance(item.this, exp.Column):
            for output in outputs:
                if output.name.lower() == item.this.name.lower():
                    return output.value.sql
        raise self._expressions.not_available("ORDER BY of more than a column here", item)

    def bounds(self, node: exp.Expr) -> str:
        written = ""
        for name in ("limit", "offset"):
            clause = node.args.get(name)
            if clause is None:
                continue
            plain = isinstance(clause, exp.Limit | exp.Offset) and not clause.args.get("limit_options")
            number = read_integer(clause.expression) if plain else None
            if number is None or not 0 <= number < 1 << 31:
                raise self._expressions.not_available(f"this {name.upper()}", clause, "a literal number is")
            written += f" {name.upper()} {number}"
        return written

    def _set_operation(self, node: exp.SetOperation, outer: SparkScope | None, ctes: _Named) -> _Query:
        if node.args.get("by_name"):
            raise self._expressions.not_available("BY NAME", node)
        left, right = (self.query(side, outer, ctes) for side in (node.this, node.expression))
        types = [
            common_type([one.value.type, other.value.type])
            for one, other in zip(left.outputs, right.outputs, strict=len(left.outputs) == len(right.outputs))
        ]
        comparable = all(type_ in ORDERED for type_ in types) or not node.args.get("distinct")
        if None in types or len(left.outputs) != len(right.outputs) or not comparable:
            raise self._expressions.not_available("a set operation of columns of other types", node, "cast to one type")
        outputs = tuple(
            replace(output, value=Value(output.value.sql, type_ or Type.NULL))
            for output, type_ in zip(left.outputs, types, strict=True)
        )
        word = _SET_OPERATIONS[type(node)] + ("" if node.args.get("distinct") else " ALL")
        return _Query(f"({left.sql}) {word} ({right.sql})", outputs)

    # FROM

    def relation(self, node: exp.Expr, scope: SparkScope, ctes: _Named) -> str:
        """Add a relation to the scope and return its SQL for FROM."""
        alias, name = node.args.get("alias"), self._fresh("r")
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                found = ctes.get(node.name.lower()) if node.name not in self._scans else None
                written = found.sql if found else node.name
                outputs = found.named(alias) if found else _scan_outputs(self._scans[node.name])
            case exp.Subquery():
                made = self.query(node, scope.outer, ctes)
                written, outputs = f"({made.sql})", made.named(alias)
            case _:
                what = node.this.name if isinstance(node, exp.Table) else type(node).__name__.upper()
                raise self._expressions.not_available(f"{what} in FROM", node)
        known = alias.name if alias and alias.name else node.name if isinstance(node, exp.Table) else ""
        qualified = tuple(
            replace(output, value=Value(f"{name}.{output.value.sql}", output.value.type)) for output in outputs
        )
        scope.relations.append(Relation(known.lower(), qualified))
        return f"{written} AS {name}"

    def join(self, join: exp.Join, scope: SparkScope, ctes: _Named) -> str:
        if join.method:
            raise self._expressions.not_available(f"{join.method} JOIN", join)
        written = self.relation(join.this, scope, ctes)
        half = join.kind in ("SEMI", "ANTI")
        conditions = [self._using(name.name.lower(), join, scope, half) for name in join.args.get("using") or ()]
        if on := join.args.get("on"):
            conditions.append(self._expressions.condition(on, scope))
        if half:
            scope.relations.pop()
        side = f"{join.side} " if join.side else "LEFT " if half else ""
        kind = f"{join.kind} " if half else "" if conditions else "CROSS "
        on_ = f" ON {' AND '.join(conditions)}" if conditions else ""
        return f"{side}{kind}JOIN {written}{on_}"

    def _using(self, name: str, join: exp.Join, scope: SparkScope, half: bool) -> str:
        *before, last = scope.relations
        left = scope.shared.get(name) or next((found for r in before if (found := r.find(name))), None)
        right = last.find(name)
        if left is None or right is None:
            raise self._expressions.not_available(f"USING ({name})", join)
        condition = self._expressions.compared("=", left, right, join)
        if not half:
            both = Value(f"coalesce({left.sql}, {right.sql})", left.type)
            scope.shared[name] = {"RIGHT": right, "FULL": both}.get(join.side, left)
        return condition


class _Select:
    """Translate one SELECT."""

    def __init__(self, translation: _Translation, node: exp.Select, scope: SparkScope, ctes: _Named) -> None:
        self._translation = translation
        self._node = node
        self._scope = scope
        self._ctes = ctes
        self._expressions = translation._expressions

    def query(self) -> _Query:
        node, args = self._node, self._node.args
        self._refuse()
        source = self._source()
        shown = self._projections()
        names = [self._translation._fresh("v") for _ in shown]
        where = f" WHERE {self._condition('where')}" if args.get("where") else ""
        group = self._group(shown)
        having = f" HAVING {self._condition('having')}" if args.get("having") else ""
        qualified = bool(args.get("qualify"))
        order = self._order(shown, [output.value.sql for output in shown] if qualified else names)
        listed = [f"{output.value.sql} AS {name}" for output, name in zip(shown, names, strict=True)]
        distinct = "DISTINCT " if args.get("distinct") else ""
        if qualified:
            order = self._qualify_columns(order, listed)
        sql = f"SELECT {distinct}{', '.join(listed)}{source}{where}{group}{having}"
        if qualified:
            sql = f"SELECT {', '.join(names)} FROM ({sql}) AS {self._translation._fresh('r')} WHERE qualified"
        ordered = f" ORDER BY {', '.join(sql + way for sql, way in order)}" if order else ""
        outputs = tuple(
            OutputColumn(output.name, Value(name, output.value.type)) for output, name in zip(shown, names, strict=True)
        )
        return _Query(f"{sql}{ordered}{self._translation.bounds(node)}", outputs)

    def _refuse(self) -> None:
        args = self._node.args
        if args.get("windows"):
            raise self._expressions.not_available("WINDOW", self._node, "write it out after OVER")
        if args.get("distinct") and args["distinct"].args.get("on"):
            raise self._expressions.not_available("DISTINCT ON", args["distinct"])
        if args.get("distinct") and args.get("qualify"):
            raise self._expressions.not_available("DISTINCT with QUALIFY", args["distinct"])

    def _qualify_columns(self, order: list[_Item], listed: list[str]) -> list[_Item]:
        """Add the condition of QUALIFY, which Spark lacks, and the keys of the order as columns of an inner SELECT."""
        listed += [f"{sql} AS k{number}" for number, (sql, _) in enumerate(order)]
        listed.append(f"{self._condition('qualify')} AS qualified")
        return [(f"k{number}", way) for number, (_, way) in enumerate(order)]

    def _source(self) -> str:
        from_ = self._node.args.get("from_")
        if not from_:
            return ""
        joined = [self._translation.relation(from_.this, self._scope, self._ctes)]
        joined += [self._translation.join(join, self._scope, self._ctes) for join in self._node.args.get("joins") or ()]
        return f" FROM {' '.join(joined)}"

    def _condition(self, clause: str) -> str:
        return self._expressions.condition(self._node.args[clause].this, self._scope)

    def _projections(self) -> list[OutputColumn]:
        shown: list[OutputColumn] = []
        for projection in self._node.expressions:
            star = projection.this if isinstance(projection, exp.Column) else projection
            if isinstance(star, exp.Star):
                shown += self._star(star, projection)
                continue
            value = self._expressions.value(projection, self._scope)
            if projection.alias:
                self._scope.given.setdefault(projection.alias.lower(), value)
            name = projection.alias or (projection.name if isinstance(projection, exp.Column) else "")
            shown.append(OutputColumn(name, value))
        return shown

    def _star(self, star: exp.Star, projection: exp.Expr) -> list[OutputColumn]:
        alias = projection.args.get("table")
        # A qualified name here is a hidden column, which a star does not show anyway.
        hidden = {one.name.lower() for one in star.args.get("except_") or () if not isinstance(one, exp.Column)}
        replaced = {one.alias.lower(): one for one in star.args.get("replace") or ()}
        outputs = []
        for output in self._scope.star(alias.name.lower() if alias else None):
            name = output.name.lower()
            if name in replaced:
                output = replace(output, value=self._expressions.value(replaced[name], self._scope))
            if name not in hidden:
                outputs.append(replace(output, hidden=False))
        return outputs

    def _group(self, shown: list[OutputColumn]) -> str:
        group = self._node.args.get("group")
        if not group:
            return ""
        if any(group.args.get(name) for name in _GROUPINGS):
            raise self._expressions.not_available("ROLLUP, CUBE or GROUPING SETS", group)
        if group.args.get("all"):
            plain = [not has_aggregate(node) for node in self._node.expressions]
            if len(plain) != len(shown):
                raise self._expressions.not_available("GROUP BY ALL with *", group)
            keys = [output.value for output, is_key in zip(shown, plain, strict=True) if is_key]
        else:
            keys = [self._key(node, shown) for node in group.expressions]
        for key in keys:
            if key.type not in ORDERED:
                raise self._expressions.not_available(f"GROUP BY {key.type.value}", group)
        return f" GROUP BY {', '.join(key.sql for key in keys)}" if keys else ""

    def _key(self, node: exp.Expr, shown: list[OutputColumn]) -> Value:
        number = read_integer(node)
        if number is not None and 1 <= number <= len(shown):
            return shown[number - 1].value
        return self._expressions.value(node, self._scope)

    def _order(self, shown: list[OutputColumn], names: list[str]) -> list[_Item]:
        """Write ORDER BY. A bare name is an alias of the SELECT list first; `names` are what the SELECT list calls its
        columns."""
        order = self._node.args.get("order")
        texts = {output.value.sql: name for output, name in zip(shown, names, strict=True)}
        items: list[_Item] = []
        for item in order.expressions if order else ():
            given = self._projection_number(item.this, shown)
            value = self._expressions.value(item.this, self._scope) if given is None else shown[given].value
            if value.type not in ORDERED:
                raise self._expressions.not_available(f"ORDER BY {value.type.value}", item)
            items.append((texts.get(value.sql, value.sql) if given is None else names[given], direction(item)))
        return items

    def _projection_number(self, node: exp.Expr, shown: list[OutputColumn]) -> int | None:
        number = read_integer(node)
        if number is not None and 1 <= number <= len(shown):
            return number - 1
        if isinstance(node, exp.Column) and not node.table:
            named = [n for n, output in enumerate(shown) if output.name.lower() == node.name.lower()]
            return named[0] if named else None
        return None


def _scan_outputs(scan: Scan) -> tuple[OutputColumn, ...]:
    table = table_of_signal(scan.signal)
    columns = table.named()
    shown = [(name, type_named(columns[name].type), columns[name] in table.hidden) for name in scan.columns]
    further = [(attribute_column(scan.relation, attribute), Type.TEXT, True) for attribute in scan.attributes]
    further += [(id_column(scan.relation, name), Type.BYTES, True) for name in scan.ids]
    return tuple(
        OutputColumn(name, Value(place(number), type_), hidden)
        for number, (name, type_, hidden) in enumerate([*shown, *further])
    )
