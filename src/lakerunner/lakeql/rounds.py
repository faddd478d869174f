"""Queries that can be answered time after time: what one stretch of time gives, no other changes.

That is so for the rows of one table in order of `timestamp` or in no order, and for groups of which one key is the
start of a bucket of `timestamp`, in order of that key or in no order. Then the first rows are there long before the
last are read, and a LIMIT ends the reading.
"""

from __future__ import annotations

from sqlglot import exp

from lakerunner.lakeql.buckets import bucket_of
from lakerunner.lakeql.grouped import Reading, is_plain, keys_of, projected
from lakerunner.plan.plan import Rounds


def rounds_of(select: exp.Select, reading: Reading) -> Rounds | None:
    """How the answer to this SELECT, the whole query, can be worked out in rounds; None: all at once."""
    limits = limits_of(select)
    if (
        not is_plain(select)
        or limits is None
        or (select.args.get("distinct") and select.args["distinct"].args.get("on"))
    ):
        return None
    order = select.args.get("order")
    first = order.expressions[0] if order else None
    leading = projected(select, first.this, reading) if first is not None else None
    descending = bool(first is not None and first.args.get("desc"))
    limit, offset = limits
    keys = keys_of(select, reading)
    if keys is None:
        if _groups(select) or (leading is not None and not reading.is_timestamp(leading)):
            return None
        return Rounds(descending, limit=limit, offset=offset)
    for key in keys:
        bucket = _bucket(key, reading)
        if bucket and (leading is None or reading.bare(leading) == reading.bare(key)):
            return Rounds(descending, *bucket, limit=limit, offset=offset)
    return None


def limits_of(select: exp.Select) -> tuple[int | None, int] | None:
    """(limit, offset) where they are plain numbers or absent; None otherwise."""
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
    """Whether it puts rows together in a way that keys_of does not understand."""
    return bool(select.args.get("group") or select.args.get("having") or select.args.get("distinct"))


def _bucket(key: exp.Expr, reading: Reading) -> tuple[int, int] | None:
    """(width, origin) in ns of the buckets whose start the key is."""
    if reading.is_timestamp(key):
        return 1, 0
    bucket = bucket_of(key, reading.is_timestamp)
    return (bucket.width_ns, bucket.origin_ns) if bucket else None
