"""The resolved tree, made to run over scans: attributes read alone, times kept exact, `now` fixed, stars as documented.

What always holds: a projection that is rewritten keeps the name the user would have seen.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.constants import Constants
from lakerunner.lakeql.dialect import written
from lakerunner.lakeql.functions import MICROSECOND_FUNCTIONS, MICROSECONDS
from lakerunner.lakeql.resolve import Resolution
from lakerunner.lakeql.scope import Draft
from lakerunner.lakeql.tables import Kind
from lakerunner.lakeql.values import is_time
from lakerunner.model.signal import Attribute
from lakerunner.model.time import time_text
from lakerunner.plan.scan import attribute_column, id_column, typed_column

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
            if isinstance(node, exp.Anonymous) and written(node).lower() == COUNT_STAR:
                node.replace(exp.alias_(node.copy(), COUNT_STAR, quoted=True))


def output_names(tree: exp.Query) -> list[tuple[exp.Select, list[str]]]:
    """The projections of every SELECT as they are now, for `keep_names`."""
    return [(select, [_name(node) for node in select.expressions]) for select in tree.find_all(exp.Select)]


def keep_names(names: list[tuple[exp.Select, list[str]]]) -> None:
    """Name each projection that has changed since by what stood there; DuckDB names the others itself."""
    for select, texts in names:
        for node, text in zip(list(select.expressions), texts, strict=True):
            if isinstance(node, exp.Alias | exp.Star) or node.is_star or _name(node) == text:
                continue
            node.replace(exp.alias_(node.copy(), text, quoted=True))


def read_attributes(tree: exp.Query, resolution: Resolution) -> None:
    """`attributes['key']` of a table becomes a column of its scan."""
    for node in list(tree.find_all(exp.Bracket)):
        keys, inner = node.expressions, node.this
        if not (isinstance(inner, exp.Column) and len(keys) == 1 and keys[0].is_string):
            continue
        found = resolution.found(inner)
        if found.draft and found.column and found.column.kind is Kind.MAP:
            attribute = Attribute(found.column.scope, keys[0].name)
            found.draft.attributes.add(attribute)
            node.replace(exp.column(attribute_column(found.draft.relation, attribute)))


def keep_times_exact(tree: exp.Query, resolution: Resolution) -> None:
    """What takes no nanoseconds gets a time cut to what it takes; DuckDB alone would round it, up to the next day."""
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
        for operand in map(_without_zones, operands):
            if is_time(operand, resolution.found):
                _cut(operand, unit)


def _without_zones(node: exp.Expr) -> exp.Expr:
    """Return what is moved to a time zone, or from one: it is cut itself, as nothing takes nanoseconds with a zone."""
    match node:
        case exp.AtTimeZone() | exp.Paren():
            return _without_zones(node.this)
        case exp.Anonymous() if node.name.lower() == "timezone" and len(node.expressions) == 2:
            return _without_zones(node.expressions[1])
    return node


def fix_now(tree: exp.Query, constants: Constants) -> None:
    """One `now` for the whole query, the same on every worker: a TIMESTAMP in UTC."""
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


def take_columns(tree: exp.Query, resolution: Resolution) -> None:
    """The columns that are still named are those the scans must give."""
    for node in tree.find_all(exp.Column):
        found = resolution.found(node)
        if found.draft and found.column:
            found.draft.columns.add(found.column.name)


def hide_further_columns(resolution: Resolution, given: Callable[[Draft], list[str]]) -> None:
    """A star shows a table's columns, not what it is given besides."""
    for star, drafts in resolution.stars:
        further = [_excluded(draft, name) for draft in drafts for name in given(draft)]
        if further:
            star.set("except_", [*(star.args.get("except_") or []), *further])


def _excluded(draft: Draft, name: str) -> exp.Expr:
    """Another relation that the star shows may have a column that is called as a hidden one is."""
    column = exp.to_identifier(name, quoted=True)
    if name not in {hidden.name for hidden in draft.table.hidden}:
        return column
    return exp.column(column, exp.to_identifier(draft.alias, quoted=True))


def further_columns(draft: Draft) -> list[str]:
    """What the scan gives beside the table's columns."""
    attributes = [attribute_column(draft.relation, attribute) for attribute in sorted(draft.attributes)]
    hidden = [column.name for column in draft.table.hidden if column.name in draft.columns]
    typed = [typed_column(draft.relation, one) for one in sorted(draft.typed)]
    return attributes + [id_column(draft.relation, column) for column in sorted(draft.ids)] + typed + hidden


def _cut(node: exp.Expr, unit: str) -> None:
    """The node itself moves inside the call: what is known of its columns hangs on the nodes."""
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
    """What DuckDB calls it: a column by its own name, anything else by its text."""
    return node.name if isinstance(node, exp.Column) else written(node, identify=False)
