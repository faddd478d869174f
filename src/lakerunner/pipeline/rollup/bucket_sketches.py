"""The sketches of a batch's rollup buckets, and the columns that they are.

Comes in: the numbers of points, or rollup buckets of a finer tier, with where each bucket's rows start. Goes out: the
columns count, scale, zero_count, positive and negative. What always holds: the cells of a sketch's side begin and end
with one that is not empty, so that sketches of the same numbers are the same, however they were added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model import sketch
from lakerunner.model.bucket_columns import buckets
from lakerunner.model.signal import ROLLUPS
from lakerunner.model.sketch import nothing_placed
from lakerunner.pipeline.rollup.batch_columns import buckets_array, column, filled, numbers, read_only

MOST_CELLS = 4 << 20  # histogram buckets of the sketches of one batch
_SIDES = ("positive", "negative")


@dataclass(frozen=True)
class Sketches:
    """The sketch of each rollup bucket: how many numbers are in it, how many of them are zero, and the cells of both
    signs, which are buckets of an exponential histogram: those of sign s of rollup bucket b are `counts[s]` from
    `first[s, b]` up to `first[s, b + 1]`, number `low[s, b]` first. `counts` is empty where there would be more than
    MOST_CELLS for several rollup buckets: take fewer of these then."""

    found: Any
    zeros: Any
    low: Any
    first: Any
    counts: tuple[Any, ...]

    @property
    def too_many(self) -> bool:
        return not self.counts

    def columns(self, kept: Any, there: Any) -> dict[str, pa.Array]:
        """The columns of the rollup buckets `kept`; nulls where not `there`."""
        arrays = {
            "count": filled(self.found[kept], there, pa.uint64()),
            "scale": filled(np.full(len(kept), sketch.SCALE), there, pa.int32()),
            "zero_count": filled(self.zeros[kept], there, pa.uint64()),
        }
        for sign, name in enumerate(_SIDES):
            low, sizes = self.low[sign], np.diff(self.first[sign])
            some = there & (sizes[kept] > 0)
            kind = ROLLUPS.schema.field(name).type
            found = buckets_array(low, self.first[sign], self.counts[sign], sizes > 0, kind)
            whole = len(kept) == len(low) and bool((some == (sizes > 0)).all())
            arrays[name] = found if whole else found.take(pa.array(kept, mask=~some))
        return arrays


def sketches_of_points(starts: Any, wanted: Any, values: Any) -> Sketches:
    """`wanted` rows are numbers."""
    placed = nothing_placed(len(starts) - 1)
    bits, index = values.view(np.int64), np.empty(len(values), np.int32)
    sketch.indexes(wanted, bits, index)
    sketch.place(starts[:-1], starts[1:], bits, index, placed)
    first, counts = _room(placed)
    if counts:
        sketch.fill(starts[:-1], starts[1:], bits, index, placed.low, first, counts)
    return Sketches(placed.found, placed.zeros, placed.low, first, counts)


def sketches_of_buckets(batch: pa.RecordBatch, starts: Any, wanted: Any) -> Sketches:
    """`wanted` rows have a sketch, or hold nothing."""
    found, zeros = (
        np.add.reduceat(np.where(wanted, numbers(batch, name, np.uint64), 0).astype(np.int64), starts[:-1])
        for name in ("count", "zero_count")
    )
    placed = nothing_placed(len(starts) - 1)._replace(found=found, zeros=zeros)
    sides = []
    for sign, name in enumerate(_SIDES):
        side = buckets(column(batch, name), batch.num_rows)
        sizes = np.where(wanted, side.counts.sizes, 0)
        arrays = side.offset, side.counts.begins, sizes, side.counts.values
        sides.append(sketch.Parts(*map(read_only, arrays)))
        sketch.spans(starts[:-1], starts[1:], sides[sign], placed.low[sign], placed.high[sign])
    first, counts = _room(placed)
    for sign, counted in enumerate(counts):
        sketch.add(starts[:-1], starts[1:], sides[sign], placed.low[sign], first[sign], counted)
    return Sketches(found, zeros, placed.low, first, counts)


def _room(placed: sketch.Placed) -> tuple[Any, tuple[Any, ...]]:
    """(first, counts) of the cells of all sketches."""
    first = np.concatenate([np.zeros((2, 1), np.int64), np.cumsum(placed.high - placed.low, axis=1)], axis=1)
    if first[:, -1].sum() > MOST_CELLS and len(placed.found) > 1:
        return first, ()
    return first, tuple(np.zeros(first[sign, -1], np.uint64) for sign in (0, 1))
