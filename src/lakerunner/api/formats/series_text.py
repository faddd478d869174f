"""Write the samples of series as text: the common base of all JSON formats of series.

A Vector or Samples becomes SampleRows; `write_rows` returns, for each series, the text of its doubles as Prometheus
writes them, each with the text around it. One call of a compiled kernel writes many series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lakerunner.kernel_cache import njit
from lakerunner.model.labels import Labels
from lakerunner.model.number_text import MAX_BYTES, Bits, put_go_double
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.values import Samples, Vector

Bytes = npt.NDArray[np.uint8]
_INFINITE = np.uint64(0x7FF << 52)
_QUOTE = 34


class PointArrays(NamedTuple):
    """Rows of doubles in one array: those of row n are at `first[n]:last[n]` where `wanted`. Place i of row n has the
    stamp number i - n * stride."""

    bits: Bits
    wanted: npt.NDArray[np.bool_]
    first: Ints
    last: Ints
    stride: int


class PointAffixes(NamedTuple):
    """The text around each double: the head of its row, its stamp, `middle`, the double, `tail`. Heads and stamps are
    packed texts with their ends. `quotes`: NaN and the infinities, which are not JSON numbers, get quotes."""

    heads: Bytes
    head_ends: Ints
    stamps: Bytes
    stamp_ends: Ints
    middle: Bytes
    tail: Bytes
    quotes: bool


@njit(cache=True, nogil=True)
def _put_copy(out: Any, at: Any, source: Any, first: Any, last: Any) -> Any:
    for place in range(first, last):
        out[at + place - first] = source[place]
    return at + last - first


@njit(cache=True, nogil=True)
def write_points(out: Any, ends: Any, points: Any, around: Any) -> None:
    """Write each wanted double of each row with the text around it to `out`; set `ends` to the end of each row."""
    # A double that equals the one before it is copied: many series repeat a value, and formatting it is the main cost.
    at, text_from, text_to, before = 0, 0, 0, ~points.bits[0] if len(points.bits) else np.uint64(0)
    for row in range(len(points.first)):
        head_from = around.head_ends[row - 1] if row else 0
        for place in range(points.first[row], points.last[row]):
            if not points.wanted[place]:
                continue
            bits = points.bits[place]
            stamp = place - row * points.stride
            at = _put_copy(out, at, around.heads, head_from, around.head_ends[row])
            at = _put_copy(
                out, at, around.stamps, around.stamp_ends[stamp - 1] if stamp else 0, around.stamp_ends[stamp]
            )
            at = _put_copy(out, at, around.middle, 0, len(around.middle))
            quoted = around.quotes and (bits & _INFINITE) == _INFINITE
            if quoted:
                out[at] = _QUOTE
                at += 1
            start = at
            at = _put_copy(out, at, out, text_from, text_to) if bits == before else put_go_double(out, at, bits)
            before, text_from, text_to = bits, start, at
            if quoted:
                out[at] = _QUOTE
                at += 1
            at = _put_copy(out, at, around.tail, 0, len(around.tail))
        ends[row] = at


@dataclass(frozen=True)
class PackedTexts:
    """Texts in one array, one after the other, with the end of each."""

    text: Bytes
    ends: Ints

    @classmethod
    def pack(cls, texts: Sequence[bytes]) -> PackedTexts:
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        return cls(np.frombuffer(b"".join(texts), np.uint8), ends)

    def __getitem__(self, number: int) -> bytes:
        start = int(self.ends[number - 1]) if number else 0
        return self.text[start : int(self.ends[number])].tobytes()

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.ends, prepend=0).max(initial=0))


@dataclass(frozen=True)
class SampleRows:
    """The samples of some series: those of series n are at `first[n]:last[n]`. The sample at place i of series n has
    the time number i - n * stride."""

    labels: Sequence[Labels]
    values: Floats
    present: Bools
    histograms: Objects | None
    first: Ints
    last: Ints
    stride: int

    def floats(self) -> Bools:
        if self.histograms is None:
            return self.present
        found: Bools = self.present & (self.histograms == None)  # noqa: E711 - compares element by element
        return found

    def histograms_of(self, row: int) -> Iterator[tuple[int, Histogram]]:
        """Yield (number of the time, histogram) of the row's histograms."""
        if self.histograms is None:
            return
        for place in range(self.first[row], self.last[row]):
            if self.present[place] and self.histograms[place] is not None:
                yield place - row * self.stride, self.histograms[place]


def rows_of_vector(vector: Vector) -> SampleRows:
    count, steps = vector.values.shape
    first = np.arange(count, dtype=np.int64) * steps
    flat = None if vector.histograms is None else vector.histograms.ravel()
    return SampleRows(vector.labels, vector.values.ravel(), vector.present.ravel(), flat, first, first + steps, steps)


def rows_of_samples(samples: Samples) -> SampleRows:
    """Return rows whose times have the same numbers as their places."""
    offsets = np.asarray(samples.offsets, np.int64)
    present = np.ones(len(samples.values), np.bool_)
    return SampleRows(samples.labels, samples.values, present, samples.histograms, offsets[:-1], offsets[1:], 0)


def write_rows(
    rows: SampleRows, stamps: PackedTexts, heads: PackedTexts, middle: bytes, tail: bytes, *, quotes: bool
) -> Iterator[bytes]:
    """Yield the text of each row: its doubles, each after its head, stamp and `middle`, and before `tail`."""
    if not len(rows.labels):
        return
    bits = np.ascontiguousarray(rows.values, np.float64).view(np.uint64)
    points = PointArrays(bits, np.ascontiguousarray(rows.floats()), rows.first, rows.last, rows.stride)
    fixed = [np.frombuffer(one, np.uint8) for one in (middle, tail)]
    around = PointAffixes(heads.text, heads.ends, stamps.text, stamps.ends, fixed[0], fixed[1], quotes)
    width = heads.longest + stamps.longest + len(middle) + len(tail) + MAX_BYTES + 2
    out = np.empty(int(np.sum(rows.last - rows.first)) * width, np.uint8)
    ends = np.empty(len(rows.labels), np.int64)
    write_points(out, ends, points, around)
    yield from (out[start:end].tobytes() for start, end in pairwise([0, *ends.tolist()]))


def slice_samples(samples: Samples, from_: int, to: int) -> Samples:
    """Return the samples of the series from_:to."""
    start, end = int(samples.offsets[from_]), int(samples.offsets[to])
    histograms = None if samples.histograms is None else samples.histograms[start:end]
    offsets = samples.offsets[from_ : to + 1] - start
    return Samples(samples.labels[from_:to], offsets, samples.times[start:end], samples.values[start:end], histograms)


def warm() -> None:
    """Compile the kernel, so that no query waits for it."""
    rows = rows_of_vector(Vector([()], np.ones((1, 1)), np.ones((1, 1), np.bool_)))
    list(write_rows(rows, PackedTexts.pack([b"0"]), PackedTexts.pack([b""]), b",", b",", quotes=False))
