"""Expressions in Spark's text, each with its type; what is not known to mean the same is refused, with its place.

Comes in: a node of the resolved and rewritten tree, and what names stand for there. Goes out: a Value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from lakerunner.lakeql.constants import Constants, Interval, integer
from lakerunner.lakeql.spark.aggregates import AGGREGATES, WINDOW_FUNCTIONS, Aggregate
from lakerunner.lakeql.spark.casts import as_type, cast, nanoseconds, target
from lakerunner.lakeql.spark.functions import (
    FUNCTIONS,
    bucketed,
    concatenated,
    divided,
    is_number,
    part_signature,
    truncated,
)
from lakerunner.lakeql.spark.scope import Scope
from lakerunner.lakeql.spark.values import NULL, ORDERED, Refusals, Type, Value, common, text
from lakerunner.model.errors import UserError
from lakerunner.model.time import MAX_NS

Subquery = Callable[[exp.Expr, Scope], tuple[str, list[Type]]]

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_BOOLEAN = (Type.BOOLEAN, Type.NULL)
_SIDES = {"PRECEDING", "FOLLOWING"}
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Mod: "%",
    exp.Pow: "**",
    exp.Glob: "GLOB",
    exp.SimilarTo: "SIMILAR TO",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.Array: "[...]",
    exp.Struct: "{...}",
    exp.IntDiv: "//",
}


class Expressions:
    """`subquery` writes a SELECT inside an expression, and says the types of its columns."""

    def __init__(self, refusals: Refusals, constants: Constants, subquery: Subquery) -> None:
        self._refusals = refusals
        self._constants = constants
        self._subquery = subquery

    def value(self, node: exp.Expr, scope: Scope) -> Value:
        write = _WRITERS.get(type(node))
        if write is None:
            raise self._refused(node)
        return write(self, node, scope)

    def condition(self, node: exp.Expr, scope: Scope) -> str:
        value = self.value(node, scope)
        if value.type not in _BOOLEAN:
            raise self._refusals.not_available(f"{value.type.value} as a condition", node, "compare it")
        return value.sql

    def compared(self, operator: str, one: Value, other: Value, node: exp.Expr) -> str:
        left, right = self._alike([one, other], node)
        return f"({left} {operator} {right})"

    def order(self, node: exp.Expr, scope: Scope) -> str:
        """Of one item of ORDER BY: where DuckDB puts NULLs is written out."""
        value = self.value(node.this, scope)
        if value.type not in ORDERED:
            raise self._refusals.not_available(f"ORDER BY {value.type.value}", node)
        return value.sql + direction(node)

    def aggregates(self, node: exp.Expr) -> bool:
        """Whether an aggregate stands in it: then it is no key of GROUP BY ALL."""
        pending = [node]
        while pending:
            node = pending.pop()
            if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
                return True
            if not isinstance(node, exp.Window | exp.Query):
                pending += node.iter_expressions()
        return False

    def _refused(self, node: exp.Expr, instead: str = "") -> UserError:
        name = _OPERATORS.get(type(node), type(node).__name__.upper())
        return self._refusals.not_available(name, node, instead)

    def _alike(self, values: Sequence[Value], node: exp.Expr) -> list[str]:
        """The values as one type, in which they can be compared or stand for each other."""
        given = list(values)
        if any(value.type is Type.TIME for value in given):
            given = [nanoseconds(v) if v.type in (Type.TIMESTAMP, Type.DATE) else v for v in given]
        both = common([value.type for value in given])
        if both is None or both not in ORDERED:
            names = " and ".join(sorted({value.type.value for value in given}))
            raise self._refusals.not_available(f"{names} side by side", node, "cast to one type")
        if both in (Type.DECIMAL, Type.HUGEINT):  # Spark finds the precision that holds them all
            return [value.sql for value in given]
        return [as_type(value, both) for value in given]

    # Leaves

    def _column(self, node: exp.Column, scope: Scope) -> Value:
        found = scope.find(node)
        if found is None:
            raise self._refusals.not_available(f"column {node.sql('duckdb')}", node)
        return found

    def _literal(self, node: exp.Literal, _: Scope) -> Value:
        if node.is_string:
            return Value(text(node.name), Type.TEXT)
        digits = node.name.replace("_", "")
        if "e" in digits.lower():
            return Value(f"{digits}D", Type.DOUBLE)
        if "." in digits:
            return Value(f"{digits}BD", Type.DECIMAL)
        number = int(digits)
        if number < 1 << 31:
            return Value(digits, Type.INTEGER)
        return Value(f"{digits}L", Type.BIGINT) if number < 1 << 63 else Value(f"{digits}BD", Type.HUGEINT)

    def _null(self, _node: exp.Null, _: Scope) -> Value:
        return NULL

    def _boolean(self, node: exp.Boolean, _: Scope) -> Value:
        return Value("TRUE" if node.this else "FALSE", Type.BOOLEAN)

    def _paren(self, node: exp.Expr, scope: Scope) -> Value:
        inner = self.value(node.this, scope)
        return Value(f"({inner.sql})", inner.type)

    def _alias(self, node: exp.Alias, scope: Scope) -> Value:
        return self.value(node.this, scope)

    # Logic and comparison

    def _connected(self, node: exp.Binary, scope: Scope) -> Value:
        word = "AND" if isinstance(node, exp.And) else "OR"
        return Value(f"({self.condition(node.left, scope)} {word} {self.condition(node.right, scope)})", Type.BOOLEAN)

    def _not(self, node: exp.Not, scope: Scope) -> Value:
        return Value(f"(NOT {self.condition(node.this, scope)})", Type.BOOLEAN)

    def _comparison(self, node: exp.Binary, scope: Scope) -> Value:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        return Value(self.compared(_COMPARISONS[type(node)], left, right, node), Type.BOOLEAN)

    def _distinct_from(self, node: exp.Binary, scope: Scope) -> Value:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        return Value(f"(NOT {self.compared('<=>', left, right, node)})", Type.BOOLEAN)

    def _is(self, node: exp.Is, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if isinstance(node.expression, exp.Null):
            return Value(f"({value.sql} IS NULL)", Type.BOOLEAN)
        if isinstance(node.expression, exp.Boolean) and value.type in _BOOLEAN:
            return Value(f"({value.sql} IS {'TRUE' if node.expression.this else 'FALSE'})", Type.BOOLEAN)
        raise self._refused(node)

    def _between(self, node: exp.Between, scope: Scope) -> Value:
        if node.args.get("symmetric"):
            raise self._refusals.not_available("BETWEEN SYMMETRIC", node)
        values = [self.value(part, scope) for part in (node.this, node.args["low"], node.args["high"])]
        it, low, high = self._alike(values, node)
        return Value(f"({it} BETWEEN {low} AND {high})", Type.BOOLEAN)

    def _in(self, node: exp.In, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if query := node.args.get("query"):
            sql, types = self._subquery(query, scope)
            if types != [value.type]:
                raise self._refusals.not_available("IN with columns of other types", node, "cast to one type")
            return Value(f"({value.sql} IN ({sql}))", Type.BOOLEAN)
        if not node.expressions:
            raise self._refused(node)
        it, *others = self._alike([value, *(self.value(other, scope) for other in node.expressions)], node)
        return Value(f"({it} IN ({', '.join(others)}))", Type.BOOLEAN)

    def _exists(self, node: exp.Exists, scope: Scope) -> Value:
        return Value(f"EXISTS ({self._subquery(node.this, scope)[0]})", Type.BOOLEAN)

    def _scalar(self, node: exp.Expr, scope: Scope) -> Value:
        sql, types = self._subquery(node, scope)
        if len(types) != 1:
            raise self._refusals.not_available("a subquery of several columns here", node)
        return Value(f"({sql})", types[0])

    def _like(self, node: exp.Binary, scope: Scope) -> Value:
        value, pattern = self.value(node.this, scope), node.expression
        if value.type is not Type.TEXT or not pattern.is_string:
            raise self._refusals.not_available("LIKE without a literal pattern", node)
        signs = pattern.name.replace("\\", "\\\\")
        if isinstance(node, exp.Like):
            return Value(f"({value.sql} LIKE {text(signs)})", Type.BOOLEAN)
        if not signs.isascii():
            raise self._refusals.not_available("ILIKE with letters beyond ASCII", node, "use lower(...) LIKE")
        return Value(f"(lakerunner_lower({value.sql}) LIKE {text(signs.lower())})", Type.BOOLEAN)

    def _matched(self, node: exp.Binary, scope: Scope) -> Value:
        """x ~ 'pattern' matches the whole of x."""
        sides = [node.this, node.expression]
        return self._signed("regexp_full_match", sides, node, scope)

    def _case(self, node: exp.Case, scope: Scope) -> Value:
        branches = node.args["ifs"]
        otherwise = node.args.get("default")
        results = [self.value(branch.args["true"], scope) for branch in branches]
        results.append(self.value(otherwise, scope) if otherwise else NULL)
        texts = self._alike(results, node)
        whens = []
        for branch, result in zip(branches, texts, strict=False):
            if node.this:
                it, other = self.value(node.this, scope), self.value(branch.this, scope)
                condition = self.compared("=", it, other, branch)
            else:
                condition = self.condition(branch.this, scope)
            whens.append(f"WHEN {condition} THEN {result}")
        return Value(f"(CASE {' '.join(whens)} ELSE {texts[-1]} END)", self._type(results))

    def _type(self, values: Sequence[Value]) -> Type:
        types = [value.type for value in values]
        if Type.TIME in types:
            return Type.TIME
        return common(types) or Type.NULL

    # Arithmetic

    def _arithmetic(self, node: exp.Binary, scope: Scope) -> Value:
        moved = self._moved(node, scope)
        if moved:
            return moved
        left, right = self._numbers(node, scope)
        both = common([left.type, right.type]) or Type.NULL
        return Value(f"({left.sql} {_ARITHMETIC[type(node)]} {right.sql})", both)

    def _numbers(self, node: exp.Binary, scope: Scope) -> tuple[Value, Value]:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        for side, value in ((node.left, left), (node.right, right)):
            if not is_number(value):
                raise self._refusals.not_available(f"reckoning with {value.type.value}", side, "cast it to BIGINT")
        return left, right

    def _moved(self, node: exp.Binary, scope: Scope) -> Value | None:
        """A time plus or minus an interval, a date plus or minus days."""
        if not isinstance(node, exp.Add | exp.Sub):
            return None
        sides = [(node.left, node.right)] + ([(node.right, node.left)] if isinstance(node, exp.Add) else [])
        sign = -1 if isinstance(node, exp.Sub) else 1
        for it, by in sides:
            interval = self._constants.interval(by)
            if interval:
                value = self.value(it, scope)
                if value.type in (Type.TIMESTAMP, Type.DATE):
                    return Value(f"(CAST({value.sql} AS TIMESTAMP) + {_interval(interval * sign)})", Type.TIMESTAMP)
                raise self._refusals.not_available(f"{value.type.value} with an interval", node)
        return None

    def _divided(self, node: exp.Div, scope: Scope) -> Value:
        return divided(*self._numbers(node, scope))

    def _whole(self, node: exp.Binary, scope: Scope) -> Value:
        left, right = self._numbers(node, scope)
        both = common([left.type, right.type])
        if both not in (Type.INTEGER, Type.BIGINT):
            raise self._refused(node, "cast both sides to BIGINT")
        word = "DIV" if isinstance(node, exp.IntDiv) else "%"
        return Value(f"({left.sql} {word} {right.sql})", Type.BIGINT if word == "DIV" else both)

    def _negative(self, node: exp.Neg, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if not is_number(value):
            raise self._refusals.not_available(f"reckoning with {value.type.value}", node)
        if integer(node) == -(1 << 63):
            return Value("(-9223372036854775808)", Type.BIGINT)
        return Value(f"(-{value.sql})", value.type)

    def _joined(self, node: exp.DPipe, scope: Scope) -> Value:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if {left.type, right.type} - {Type.TEXT, Type.NULL}:
            raise self._refusals.not_available("|| of other values than texts", node, "cast them to VARCHAR")
        return Value(f"({left.sql} || {right.sql})", Type.TEXT)

    # Casts and calls

    def _cast(self, node: exp.Cast, scope: Scope) -> Value:
        if node.this.is_string and target(node) in (Type.TIME, Type.TIMESTAMP, Type.DATE):
            return self._constant_time(node)
        value = self.value(node.this, scope)
        made = cast(value, node)
        if made is None:
            what = f"a cast from {value.type.value} to {node.to.sql('duckdb')}"
            raise self._refusals.not_available(what, node)
        return made

    def _constant_time(self, node: exp.Cast) -> Value:
        to, said = target(node), node.this.name
        if to is Type.TIME and said in ("infinity", "-infinity"):
            return Value(f"{'-' if said[0] == '-' else ''}{MAX_NS}L", Type.TIME)
        time = self._constants.time(node)
        if time is None or isinstance(node, exp.TryCast):
            raise self._refusals.not_available("a cast of this text to a time", node)
        if to is Type.TIME:
            return Value(f"{time.ns}L", Type.TIME)
        micros = Value(f"timestamp_micros({time.ns // 1000}L)", Type.TIMESTAMP)
        return micros if to is Type.TIMESTAMP else Value(f"CAST({micros.sql} AS DATE)", Type.DATE)

    def _bracket(self, node: exp.Bracket, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if value.type is not Type.MAP or len(node.expressions) != 1 or not node.expressions[0].is_string:
            raise self._refusals.not_available("[...]", node)
        return Value(f"try_element_at({value.sql}, {text(node.expressions[0].name)})", Type.TEXT)

    def _call(self, node: exp.Anonymous, scope: Scope) -> Value:
        name = node.name.lower()
        if name in AGGREGATES or name in WINDOW_FUNCTIONS:
            return self._aggregate(node, scope, "")
        special = _SPECIAL.get(name)
        if special:
            return special(self, node, scope)
        return self._signed(name, node.expressions, node, scope)

    def _signed(self, name: str, arguments: list[exp.Expr], node: exp.Expr, scope: Scope) -> Value:
        """A call by the signature that fits its arguments."""
        if name not in FUNCTIONS:
            raise self._refusals.not_available(f"function {name}", node)
        values = [self.value(argument, scope) for argument in arguments]
        for signature in FUNCTIONS[name]:
            if signature.fits(arguments, values):
                return signature.value(values)
        raise self._call_refused(name, values, node)

    def _call_refused(self, name: str, values: list[Value], node: exp.Expr) -> UserError:
        types = ", ".join(value.type.value for value in values)
        return self._refusals.not_available(f"{name} of {types} as it stands here", node)

    def _substring(self, node: exp.Substring, scope: Scope) -> Value:
        arguments = [part for part in (node.this, node.args.get("start"), node.args.get("length")) if part]
        return self._signed("substring", arguments, node, scope)

    def _chosen(self, node: exp.Anonymous, scope: Scope) -> Value:
        """coalesce, greatest, least: one of the arguments."""
        values = [self.value(argument, scope) for argument in node.expressions]
        name = {"ifnull": "coalesce"}.get(node.name.lower(), node.name.lower())
        alike = self._alike(values, node)
        return Value(f"{name}({', '.join(alike)})" if len(alike) > 1 else alike[0], self._type(values))

    def _nullif(self, node: exp.Anonymous, scope: Scope) -> Value:
        one, other = (self.value(argument, scope) for argument in node.expressions)
        return Value(f"(CASE WHEN {self.compared('=', one, other, node)} THEN NULL ELSE {one.sql} END)", one.type)

    def _if(self, node: exp.Anonymous, scope: Scope) -> Value:
        test, *results = node.expressions
        values = [self.value(result, scope) for result in results]
        yes, no = self._alike(values, node)
        return Value(f"(CASE WHEN {self.condition(test, scope)} THEN {yes} ELSE {no} END)", self._type(values))

    def _concat(self, node: exp.Anonymous, scope: Scope) -> Value:
        values = [self.value(argument, scope) for argument in node.expressions]
        made = concatenated(values)
        if made is None:
            raise self._call_refused("concat", values, node)
        return made

    def _date_part(self, node: exp.Anonymous, scope: Scope) -> Value:
        part, of = node.expressions
        signature = part_signature(part.name.lower()) if part.is_string else None
        value = self.value(of, scope)
        if signature is None or not signature.fits([of], [value]):
            raise self._refusals.not_available(f"date_part {part.sql()} of {value.type.value}", node)
        return signature.value([value])

    def _date_trunc(self, node: exp.Anonymous, scope: Scope) -> Value:
        unit, of = node.expressions
        value = self.value(of, scope)
        made = truncated(unit.name.lower(), value) if unit.is_string else None
        if made is None:
            raise self._refusals.not_available(f"date_trunc {unit.sql()} of {value.type.value}", node)
        return made

    def _time_bucket(self, node: exp.Anonymous, scope: Scope) -> Value:
        width = self._constants.interval(node.expressions[0])
        value = self.value(node.expressions[1], scope) if len(node.expressions) == 2 else NULL
        if not width or width.months or value.type is not Type.TIMESTAMP:
            raise self._refusals.not_available("time_bucket as it stands here", node, "give days or less, and a time")
        size = width.days * 86_400_000_000 + width.ns // 1000
        if size <= 0:
            raise self._refusals.not_available("a bucket of no width", node)
        return bucketed(size, value)

    # Aggregates and windows

    def _filter(self, node: exp.Filter, scope: Scope) -> Value:
        condition = self.condition(node.expression.this, scope)
        if not (isinstance(node.this, exp.Anonymous) and node.this.name.lower() in AGGREGATES):
            raise self._refused(node)
        return self._aggregate(node.this, scope, f" FILTER (WHERE {condition})")

    def _window(self, node: exp.Window, scope: Scope) -> Value:
        call = node.this
        if not isinstance(call, exp.Anonymous) or node.args.get("alias"):
            raise self._refusals.not_available("this OVER", node)
        name = call.name.lower()
        if name in AGGREGATES and not all(one.windowed for one in AGGREGATES[name]):
            raise self._refusals.not_available(f"{name} with OVER", node)
        if name in WINDOW_FUNCTIONS and not node.args.get("order"):
            raise self._refusals.not_available(f"{name} without ORDER BY", node)
        return self._aggregate(call, scope, f" OVER ({self._frame(node, scope)})")

    def _aggregate(self, node: exp.Anonymous, scope: Scope, over: str) -> Value:
        name, arguments = node.name.lower(), node.expressions
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = arguments[0].expressions
        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        known: tuple[Aggregate, ...] = AGGREGATES.get(name) or (
            WINDOW_FUNCTIONS.get(name, ()) if "OVER" in over else ()
        )
        values = [self.value(argument, scope) for argument in arguments]
        for aggregate in known:
            made = aggregate.value(values, distinct, over)
            if made:
                return made
        if not known:
            raise self._refusals.not_available(f"function {name} without OVER", node)
        raise self._call_refused(name, values, node)

    def _frame(self, node: exp.Window, scope: Scope) -> str:
        keys = [self.value(key, scope) for key in node.args.get("partition_by") or ()]
        for key in keys:
            if key.type not in ORDERED:
                raise self._refusals.not_available(f"PARTITION BY {key.type.value}", node)
        parts = ["PARTITION BY " + ", ".join(key.sql for key in keys)] if keys else []
        if order := node.args.get("order"):
            parts.append("ORDER BY " + ", ".join(self.order(item, scope) for item in order.expressions))
        if spec := node.args.get("spec"):
            parts.append(self._spec(spec))
        return " ".join(parts)

    def _spec(self, spec: exp.WindowSpec) -> str:
        kind = str(spec.args.get("kind")).upper()
        bounds = [self._bound(spec, side, kind) for side in ("start", "end")]
        if kind not in ("ROWS", "RANGE") or spec.args.get("exclude") or None in bounds:
            raise self._refusals.not_available("this frame of a window", spec)
        return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"

    def _bound(self, spec: exp.WindowSpec, side: str, kind: str) -> str | None:
        bound, direction_ = spec.args.get(side), spec.args.get(f"{side}_side")
        if bound == "CURRENT ROW" or (bound is None and side == "end"):
            return "CURRENT ROW"
        if str(direction_) not in _SIDES:
            return None
        if bound == "UNBOUNDED":
            return f"UNBOUNDED {direction_}"
        number = integer(bound) if isinstance(bound, exp.Expr) else None
        return f"{number} {direction_}" if kind == "ROWS" and number is not None else None


def direction(node: exp.Expr) -> str:
    """DuckDB puts NULLs last in both directions unless told otherwise."""
    way = "DESC" if node.args.get("desc") else "ASC"
    return f" {way} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"


def _interval(interval: Interval) -> str:
    """Months, then days, then the rest: both engines add them in this order."""
    seconds, rest = divmod(abs(interval.ns), 1_000_000_000)
    sign = "-" if interval.ns < 0 else ""
    return f"make_interval(0, {interval.months}, 0, {interval.days}, 0, 0, {sign}{seconds}.{rest // 1000:06}BD)"


_SPECIAL: dict[str, Callable[[Expressions, exp.Anonymous, Scope], Value]] = {
    **dict.fromkeys(("coalesce", "ifnull", "greatest", "least"), Expressions._chosen),
    "nullif": Expressions._nullif,
    "if": Expressions._if,
    "concat": Expressions._concat,
    **dict.fromkeys(("date_part", "datepart"), Expressions._date_part),
    **dict.fromkeys(("date_trunc", "datetrunc"), Expressions._date_trunc),
    "time_bucket": Expressions._time_bucket,
}
_WRITERS: dict[type[exp.Expr], Callable[..., Value]] = {
    exp.Column: Expressions._column,
    exp.Literal: Expressions._literal,
    exp.Null: Expressions._null,
    exp.Boolean: Expressions._boolean,
    exp.Paren: Expressions._paren,
    exp.Alias: Expressions._alias,
    exp.And: Expressions._connected,
    exp.Or: Expressions._connected,
    exp.Not: Expressions._not,
    **dict.fromkeys(_COMPARISONS, Expressions._comparison),
    exp.NullSafeNEQ: Expressions._distinct_from,
    exp.Is: Expressions._is,
    exp.Between: Expressions._between,
    exp.In: Expressions._in,
    exp.Exists: Expressions._exists,
    exp.Subquery: Expressions._scalar,
    exp.Select: Expressions._scalar,
    exp.Like: Expressions._like,
    exp.ILike: Expressions._like,
    exp.Case: Expressions._case,
    exp.RegexpLike: Expressions._matched,
    **dict.fromkeys(_ARITHMETIC, Expressions._arithmetic),
    exp.Div: Expressions._divided,
    exp.IntDiv: Expressions._whole,
    exp.Mod: Expressions._whole,
    exp.Neg: Expressions._negative,
    exp.DPipe: Expressions._joined,
    exp.Cast: Expressions._cast,
    exp.TryCast: Expressions._cast,
    exp.Bracket: Expressions._bracket,
    exp.Anonymous: Expressions._call,
    exp.Substring: Expressions._substring,
    exp.Filter: Expressions._filter,
    exp.Window: Expressions._window,
}
