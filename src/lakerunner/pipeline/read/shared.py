"""Bound what rows get from the resource, scope, metric or series that they share with others.

A resource is sent once and stands in each of its rows. Its texts are written once (steps/layout.py), but a reader of
the rows may lay it out for each of them, and the numbers of its attributes are written for each row: a megabyte shared
by a hundred thousand records would be 100 GB. So what a row shares beyond a usual amount counts as its own size, by
which rows are grouped; and the file's size limits how much of it the file may have. As that is in proportion, requests
that are right one by one are right in one object too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.rows import Attached, Coded, Rows

FREE_BYTES = 8 << 10  # that a row may share without counting them
MAX_TIMES = 32  # the size of the file
_ENTRY_BYTES = 32  # of an attribute, beside its texts


def count_shared(rows: Rows) -> tuple[Rows, int]:
    """(the rows, with what they share beyond the free bytes added to their sizes; the sum of it)."""
    sizes = [*_sizes(rows)]
    if sum(int(size.max(initial=0)) for size, _ in sizes) <= FREE_BYTES:
        return rows, 0  # as nearly always
    shared = np.zeros(rows.count, np.int64)
    for size, owner in sizes:
        shared += size[owner]
    beyond = np.maximum(shared - FREE_BYTES, 0)
    return replace(rows, sizes=rows.sizes + beyond), int(beyond.sum())


def reason_to_refuse(shared: int, size: int) -> str | None:
    """Return why a file of `size` bytes whose rows share `shared` bytes is refused; None if it is taken."""
    if shared <= MAX_TIMES * size:
        return None
    return (
        f"{size} bytes become {shared} when resources, scopes, metrics and series are "
        f"repeated for each of their rows, beyond {FREE_BYTES} bytes per row: the limit is "
        f"{MAX_TIMES} times the size. Send smaller resources, or fewer records with each"
    )


def _sizes(rows: Rows) -> Iterator[tuple[Any, Any]]:
    """(bytes of each owner, owner of each row) for all that rows share."""
    for attached in rows.attached.values():
        if attached.owner is not None:
            yield _attribute_bytes(attached), attached.owner
    for column in rows.columns.values():
        if isinstance(column, Coded) and column.owner is not None:
            lengths = pc.binary_length(column.values).to_numpy(zero_copy_only=False)
            yield np.append(lengths, 0)[column.codes], column.owner  # a code of -1 is null


def _attribute_bytes(attached: Attached) -> Any:
    _, key_sizes = slices_of_names(attached.keys)
    values = attached.values[: attached.first[-1]]  # a reader may have room for more behind them
    ends = np.append(0, np.cumsum(values["size"].astype(np.int64) + key_sizes[values["key"]] + _ENTRY_BYTES))
    return ends[attached.first[1:]] - ends[attached.first[:-1]]
