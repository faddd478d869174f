"""Columns inside columns, taken apart: `{"http": {"status": 500}}` is a column `http.status`.

Comes in: the columns of a record as JSON and Parquet hold them. Goes out: columns with dotted names, in their order, of
which fields are then guessed. Lists stay as they are, with what is inside them. A name that comes out twice is kept
twice, as any name that is given twice; queries see the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakerunner.pipeline.transcode.columns import Plan, plain_name
from lakerunner.pipeline.transcode.values import MAX_NESTING, Members, Unfit

# Characters that dotted names may repeat in one record: without a limit, one long name above many members would unfold
# to far more than the file. Such a record keeps its objects whole.
MAX_REPEATED = 1 << 20

_WHOLE = ("attributes", "resource", "events", "links", "value")  # fields that see an object as it is
_BODIES = ("message", "msg", "body")  # and names under which one is the message

Columns = tuple[tuple[str, ...], Sequence[Any]]


def whole_columns(plan: Plan, names: Sequence[str]) -> set[int]:
    """Return the places of the columns that are not taken apart."""
    places = {plan.at[field] for field in _WHOLE if field in plan.at}
    body = plan.at.get("message")
    return places | {body} if body is not None and plain_name(names[body]) in _BODIES else places


def has_objects(values: Sequence[Any]) -> bool:
    return any(type(value) is dict or type(value) is Members for value in values)


def dotted(plan: Plan, names: tuple[str, ...], values: Sequence[Any]) -> Columns:
    """Return the record with its objects taken apart, but for columns that are a field as a whole and for empty ones.
    Unfit if they are nested too deep."""
    whole = whole_columns(plan, names)
    pairs: list[tuple[str, Any]] = []
    repeated = 0
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        if index in whole:
            pairs.append((name, value))
            continue
        repeated = _take_apart(name, value, pairs, repeated)
        if repeated > MAX_REPEATED:
            return names, values
    return tuple(name for name, _ in pairs), [value for _, value in pairs]


def _take_apart(name: str, value: Any, pairs: list[tuple[str, Any]], repeated: int, level: int = 0) -> int:
    """Append the leaves below this name; return how many characters were repeated by now. Stops past the limit."""
    members = value.items() if type(value) is dict else value if type(value) is Members else None
    if not members:
        pairs.append((name, value))
        return repeated
    if level == MAX_NESTING:
        raise Unfit(f"a value is nested deeper than {MAX_NESTING} levels")
    for key, member in members:
        repeated = _take_apart(f"{name}.{key}", member, pairs, repeated + len(name), level + 1)
        if repeated > MAX_REPEATED:
            break
    return repeated
