"""Attributes by their stored type: compared with numbers, grouped and cast without a text for each row.

Comes in: expressions in which attributes are columns of a scan (lakeql/rewrite.py). An attribute is text; a comparison
with a number reads it as a number. Goes out: for workers, the same expressions over columns that the scan gives by type
(`Typed` in plan/scan.py). What always holds: each expression has the value it would have over the texts.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.expressions.datatypes import DType

from lakerunner.lakeql.scope import Draft
from lakerunner.model.signal import Attribute
from lakerunner.plan.scan import NUMBER_TYPES, STORED, Typed, attribute_column, typed_column

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
# A double tells any two numbers of 15 digits apart, and a whole number of any size from one of 15 digits.
_MOST_DIGITS = 15
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as DuckDB writes a BIGINT; of those of 19 digits some are none


def read_numbers(tree: exp.Query, drafts: list[Draft]) -> None:
    """Read an attribute that is compared with a number as a number, NULL where its text is not one."""
    known = {name: attribute for draft in drafts for name, attribute in _columns(draft).items()}
    for node in list(tree.find_all(*_COMPARISONS, exp.Between, exp.In)):
        for side, others in _compared(node):
            if others and all(map(_is_number, others)) and _attributes(side, known):
                cast = exp.TryCast(this=side.copy(), to=exp.DataType(this=DType.DOUBLE), safe=True)
                side.replace(cast)


def typed(node: exp.Expr, draft: Draft) -> exp.Expr:
    """Return the expression for workers, a copy: attributes of this table by their type, where that is the same. The
    draft gets what its scan must give."""
    known = _columns(draft)

    def swap(one: exp.Expr) -> exp.Expr:
        match one:
            case exp.TryCast() if (attributes := _attributes(one.this, known)) and one.to.this.value in NUMBER_TYPES:
                return _column(draft, Typed(attributes, one.to.this.value)) if not one.to.expressions else one
            case exp.EQ() | exp.NEQ() | exp.In():
                for side, others in _compared(one):
                    attributes = _attributes(side, known)
                    if attributes and others and all(map(_is_whole_text, others)):
                        side.replace(_column(draft, Typed(attributes, STORED)))
        return one

    return node.transform(swap)


def typed_key(node: exp.Expr, draft: Draft) -> str | None:
    """Return the name of the column to group by in the place of these attributes; None if the node is something else.
    Its text is the attributes' text, and differs where it differs."""
    attributes = _attributes(node, _columns(draft))
    return _column(draft, Typed(attributes, STORED)).name if attributes else None


def _columns(draft: Draft) -> dict[str, Attribute]:
    return {attribute_column(draft.relation, attribute): attribute for attribute in draft.attributes}


def _column(draft: Draft, wanted: Typed) -> exp.Column:
    draft.typed.add(wanted)
    return exp.column(typed_column(draft.relation, wanted), quoted=True)


def _attributes(node: exp.Expr, known: dict[str, Attribute]) -> tuple[Attribute, ...]:
    """The attributes of one scan of which the node is the first that is not null; none if it is something else."""
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
    """What could be attributes, each with what it is compared to."""
    match node:
        case exp.Between():
            return [(node.this, [node.args["low"], node.args["high"]])]
        case exp.In():
            return [(node.this, [] if node.args.get("query") else list(node.expressions))]
    return [(node.this, [node.expression]), (node.expression, [node.this])]


def _is_number(node: exp.Expr) -> bool:
    """Whether it is a literal that a double holds well enough to be compared with any stored number."""
    if isinstance(node, exp.Neg | exp.Paren):
        return _is_number(node.this)
    if not isinstance(node, exp.Literal) or node.is_string:
        return False
    digits = re.sub(r"[eE].*|[._]", "", node.name).lstrip("0")
    return len(digits) <= _MOST_DIGITS


def _is_whole_text(node: exp.Expr) -> bool:
    return node.is_string and bool(_WHOLE.fullmatch(node.name))
