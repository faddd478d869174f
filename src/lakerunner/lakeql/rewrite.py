"""Rewrite the resolved tree to run over scans: attributes read alone, times kept exact, `now` fixed, stars expanded.

What always holds: a projection that is rewritten keeps the name that the user would have seen.

An attribute is text; a comparison with a number reads it as a number. Workers compare, group and cast attributes by
their stored type (`TypedAttributes` in plan/scan.py), without making a text for each row; each expression has the
value that it would have over the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.dialect import to_sql
from lakerunner.lakeql.functions import MICROSECOND_FUNCTIONS, MICROSECONDS
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft, is_time
from lakerunner.lakeql.tables import ColumnKind
from lakerunner.model.signal import Attribute
from lakerunner.model.time import time_text
from lakerunner.plan.scan import NUMBER_TYPES, STORED, TypedAttributes, attribute_column, id_column, typed_column

_NOW = frozenset({"now", "get_current_timestamp", "transaction_timestamp"})
COUNT_STAR = "count(*)"
_CUT_TO = {
    **dict.fromkeys((DType.DATE, DType.TIME, DType.TIMESTAMP, DType.TIMESTAMPNTZ, DType.TIMESTAMPTZ), "microsecond"),
    DType.TIMESTAMP_S: "second",
    DType.TIMESTAMP_MS: "millisecond",
}


def name_counts(tree: exp.Query) -> None:
    """Name each projection that is a bare count(*) as it is written; DuckDB would call it count_star()."""
    for select in tree.find_all(exp.Select):
        for node in list(select.expressions):
            if isinstance(node, exp.Anonymous) and to_sql(node).lower() == COUNT_STAR:
                node.replace(exp.alias_(node.copy(), COUNT_STAR, quoted=True))


def output_names(tree: exp.Query) -> list[tuple[exp.Select, list[str]]]:
    """Return the projections of every SELECT as they are now, for `keep_names`."""
    return [(select, [_name(node) for node in select.expressions]) for select in tree.find_all(exp.Select)]


def keep_names(names: list[tuple[exp.Select, list[str]]]) -> None:
    """Name each projection that has changed since by its former text; DuckDB names the others itself."""
    for select, texts in names:
        for node, text in zip(list(select.expressions), texts, strict=True):
            if isinstance(node, exp.Alias | exp.Star) or node.is_star or _name(node) == text:
                continue
            node.replace(exp.alias_(node.copy(), text, quoted=True))


def read_attributes(tree: exp.Query, resolution: Resolution) -> None:
    """Replace `attributes['key']` of a table by a column of its scan."""
    for node in list(tree.find_all(exp.Bracket)):
        keys, inner = node.expressions, node.this
        if not (isinstance(inner, exp.Column) and len(keys) == 1 and keys[0].is_string):
            continue
        found = resolution.origin(inner)
        if found.draft and found.column and found.column.kind is ColumnKind.MAP:
            attribute = Attribute(found.column.scope, keys[0].name)
            found.draft.attributes.add(attribute)
            node.replace(exp.column(attribute_column(found.draft.relation, attribute)))


def keep_times_exact(tree: exp.Query, resolution: Resolution) -> None:
    """Truncate times for functions that take no nanoseconds; DuckDB alone would round them, possibly to the next
    day."""
    for node in list(tree.find_all(exp.Add, exp.Sub, exp.Cast, exp.Anonymous)):
        unit = "microsecond"
        match node:
            case exp.Add() | exp.Sub():
                operands = [node.left, node.right]
            case exp.Cast():
                operands = [node.this] if node.to.this in _CUT_TO else []
                unit = _CUT_TO.get(node.to.this, unit)
            case _:
                operands = node.expressions if node.name.lower() in MICROSECOND_FUNCTIONS else []
                unit = "millisecond" if node.name.lower() == "epoch_ms" else unit
        for operand in map(_strip_zones, operands):
            if is_time(operand, resolution.origin):
                _truncate(operand, unit)


def _strip_zones(node: exp.Expr) -> exp.Expr:
    """Return what is moved to or from a time zone: it is truncated itself, because nothing takes nanoseconds with a
    zone."""
    match node:
        case exp.AtTimeZone() | exp.Paren():
            return _strip_zones(node.this)
        case exp.Anonymous() if node.name.lower() == "timezone" and len(node.expressions) == 2:
            return _strip_zones(node.expressions[1])
    return node


def fix_now(tree: exp.Query, constants: Constants) -> None:
    """Use one `now` for the whole query, the same on every worker: a TIMESTAMP in UTC."""
    now, today = time_text(constants.now.ns), time_text(constants.today.ns).split(" ")[0]
    for node in list(tree.find_all(exp.CurrentTimestamp, exp.Localtimestamp, exp.CurrentDate, exp.Anonymous)):
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if isinstance(node, exp.CurrentDate) or name == "today":
            node.replace(exp.cast(exp.Literal.string(today), DType.DATE))
        elif name == "ago" and node.expressions:
            span = exp.Cast(this=node.expressions[0], to=exp.DataType(this=DType.INTERVAL))
            node.replace(exp.Paren(this=exp.Sub(this=_timestamp(now), expression=span)))
        elif not name or name in _NOW:
            node.replace(_timestamp(now))


def collect_columns(tree: exp.Query, resolution: Resolution) -> None:
    """Add the columns that are still named to what the scans must return."""
    for node in tree.find_all(exp.Column):
        found = resolution.origin(node)
        if found.draft and found.column:
            found.draft.columns.add(found.column.name)


def hide_further_columns(resolution: Resolution, given: Callable[[Draft], list[str]]) -> None:
    """Exclude from stars what scans return beyond the table's columns."""
    for star, drafts in resolution.stars:
        further = [_excluded(draft, name) for draft in drafts for name in given(draft)]
        if further:
            star.set("except_", [*(star.args.get("except_") or []), *further])


def _excluded(draft: Draft, name: str) -> exp.Expr:
    """Return the name to exclude. A hidden column is qualified, because another relation of the star may have a column
    of the same name."""
    column = exp.to_identifier(name, quoted=True)
    if name not in {hidden.name for hidden in draft.table.hidden}:
        return column
    return exp.column(column, exp.to_identifier(draft.alias, quoted=True))


def further_columns(draft: Draft) -> list[str]:
    """Return what the scan returns beyond the table's columns."""
    attributes = [attribute_column(draft.relation, attribute) for attribute in sorted(draft.attributes)]
    hidden = [column.name for column in draft.table.hidden if column.name in draft.columns]
    use_typed_columns = [typed_column(draft.relation, one) for one in sorted(draft.typed)]
    return attributes + [id_column(draft.relation, column) for column in sorted(draft.ids)] + use_typed_columns + hidden


def _truncate(node: exp.Expr, unit: str) -> None:
    """Put the node inside a call that truncates it. The node itself moves, because the resolution knows columns by
    their nodes."""
    call = exp.Anonymous(this=MICROSECONDS, expressions=[])
    node.replace(call)
    call.append("expressions", node)
    if unit != "microsecond":
        cut = exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(unit)])
        call.replace(cut)
        cut.append("expressions", call)


def _timestamp(text: str) -> exp.Expr:
    return exp.cast(exp.Literal.string(text), DType.TIMESTAMP)


def _name(node: exp.Expr) -> str:
    """Return what DuckDB would name it: a column by its own name, anything else by its text."""
    return node.name if isinstance(node, exp.Column) else to_sql(node, identify=False)


# ---- attributes by their stored type

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
# A double distinguishes any two numbers of 15 digits, and an integer of any size from one of 15 digits.
_MOST_DIGITS = 15
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as DuckDB writes a BIGINT; not all numbers of 19 digits are one


def read_numbers(tree: exp.Query, drafts: list[Draft]) -> None:
    """Read an attribute that is compared with a number as a number, NULL where its text is not one."""
    known = {name: attribute for draft in drafts for name, attribute in _columns(draft).items()}
    for node in list(tree.find_all(*_COMPARISONS, exp.Between, exp.In)):
        for side, others in _compared(node):
            if others and all(map(_is_number, others)) and _attributes(side, known):
                cast = exp.TryCast(this=side.copy(), to=exp.DataType(this=DType.DOUBLE), safe=True)
                side.replace(cast)


def use_typed_columns(node: exp.Expr, draft: Draft) -> exp.Expr:
    """Return a copy of the expression for workers, with attributes of this table by their type where that is
    equivalent. The draft is given what its scan must return."""
    known = _columns(draft)

    def swap(one: exp.Expr) -> exp.Expr:
        match one:
            case exp.TryCast() if (attributes := _attributes(one.this, known)) and one.to.this.value in NUMBER_TYPES:
                return _column(draft, TypedAttributes(attributes, one.to.this.value)) if not one.to.expressions else one
            case exp.EQ() | exp.NEQ() | exp.In():
                for side, others in _compared(one):
                    attributes = _attributes(side, known)
                    if attributes and others and all(map(_is_whole_text, others)):
                        side.replace(_column(draft, TypedAttributes(attributes, STORED)))
        return one

    return node.transform(swap)


def typed_key_column(node: exp.Expr, draft: Draft) -> str | None:
    """Return the name of the column to group by in the place of these attributes; None if the node is something else.
    Its text is the attributes' text, and differs where it differs."""
    attributes = _attributes(node, _columns(draft))
    return _column(draft, TypedAttributes(attributes, STORED)).name if attributes else None


def _columns(draft: Draft) -> dict[str, Attribute]:
    return {attribute_column(draft.relation, attribute): attribute for attribute in draft.attributes}


def _column(draft: Draft, wanted: TypedAttributes) -> exp.Column:
    draft.typed.add(wanted)
    return exp.column(typed_column(draft.relation, wanted), quoted=True)


def _attributes(node: exp.Expr, known: dict[str, Attribute]) -> tuple[Attribute, ...]:
    """Return the attributes of one scan of which the node is the first that is not null; () if it is something else."""
    match node:
        case exp.Paren():
            return _attributes(node.this, known)
        case exp.Column() if node.name in known:
            return (known[node.name],)
        case exp.Anonymous() if node.name.lower() == "coalesce":
            parts = [_attributes(part, known) for part in node.expressions]
            return tuple(attribute for part in parts for attribute in part) if all(parts) else ()
    return ()


def _compared(node: exp.Expr) -> list[tuple[exp.Expr, list[exp.Expr]]]:
    """Return what could be attributes, each with what it is compared to."""
    match node:
        case exp.Between():
            return [(node.this, [node.args["low"], node.args["high"]])]
        case exp.In():
            return [(node.this, [] if node.args.get("query") else list(node.expressions))]
    return [(node.this, [node.expression]), (node.expression, [node.this])]


def _is_number(node: exp.Expr) -> bool:
    """Whether it is a literal that a double represents well enough to be compared with any stored number."""
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_number(node.this)
    if not isinstance(node, exp.Literal) or node.is_string:
        return False
    digits = re.sub(r"[eE].*|[._]", "", node.name).lstrip("0")
    return len(digits) <= _MOST_DIGITS


def _is_whole_text(node: exp.Expr) -> bool:
    return node.is_string and bool(_WHOLE.fullmatch(node.name))
