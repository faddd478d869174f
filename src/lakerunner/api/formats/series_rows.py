"""Series and their samples as rows of doubles, and their text: what every form of an answer is written from.

Comes in: a Vector or Samples. Goes out: for each series the text of its doubles, each with what stands around it, made
by one call into machine code for many series (point_text.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from lakerunner.api.formats.point_text import Around, Bytes, Points, write_points
from lakerunner.model.labels import Labels
from lakerunner.model.number_text import MAX_BYTES
from lakerunner.series.arrays import Bools, Floats, Ints, Objects
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.values import Samples, Vector


@dataclass(frozen=True)
class Texts:
    """One behind the other, with where each ends."""

    text: Bytes
    ends: Ints

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Texts:
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        return cls(np.frombuffer(b"".join(texts), np.uint8), ends)

    def __getitem__(self, number: int) -> bytes:
        start = int(self.ends[number - 1]) if number else 0
        return self.text[start : int(self.ends[number])].tobytes()

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.ends, prepend=0).max(initial=0))


@dataclass(frozen=True)
class Rows:
    """Some series' samples: those of series n are at `first[n]:last[n]`, at the time of number place - n * stride."""

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
        found: Bools = self.present & (self.histograms == None)  # noqa: E711 - of each place
        return found

    def histograms_of(self, row: int) -> Iterator[tuple[int, Histogram]]:
        """(number of the time, histogram)"""
        if self.histograms is None:
            return
        for place in range(self.first[row], self.last[row]):
            if self.present[place] and self.histograms[place] is not None:
                yield place - row * self.stride, self.histograms[place]


def rows_of_vector(vector: Vector) -> Rows:
    count, steps = vector.values.shape
    first = np.arange(count, dtype=np.int64) * steps
    flat = None if vector.histograms is None else vector.histograms.ravel()
    return Rows(vector.labels, vector.values.ravel(), vector.present.ravel(), flat, first, first + steps, steps)


def rows_of_samples(samples: Samples) -> Rows:
    """Their times are numbered as their places are."""
    offsets = np.asarray(samples.offsets, np.int64)
    present = np.ones(len(samples.values), np.bool_)
    return Rows(samples.labels, samples.values, present, samples.histograms, offsets[:-1], offsets[1:], 0)


def written_rows(
    rows: Rows, stamps: Texts, heads: Texts, middle: bytes, tail: bytes, *, quotes: bool
) -> Iterator[bytes]:
    """Of each row, its doubles with what stands around them (point_text.py)."""
    if not len(rows.labels):
        return
    bits = np.ascontiguousarray(rows.values, np.float64).view(np.uint64)
    points = Points(bits, np.ascontiguousarray(rows.floats()), rows.first, rows.last, rows.stride)
    fixed = [np.frombuffer(one, np.uint8) for one in (middle, tail)]
    around = Around(heads.text, heads.ends, stamps.text, stamps.ends, fixed[0], fixed[1], quotes)
    width = heads.longest + stamps.longest + len(middle) + len(tail) + MAX_BYTES + 2
    out = np.empty(int(np.sum(rows.last - rows.first)) * width, np.uint8)
    ends = np.empty(len(rows.labels), np.int64)
    write_points(out, ends, points, around)
    yield from (out[start:end].tobytes() for start, end in pairwise([0, *ends.tolist()]))


def some_samples(samples: Samples, from_: int, to: int) -> Samples:
    """These series."""
    start, end = int(samples.offsets[from_]), int(samples.offsets[to])
    histograms = None if samples.histograms is None else samples.histograms[start:end]
    offsets = samples.offsets[from_ : to + 1] - start
    return Samples(samples.labels[from_:to], offsets, samples.times[start:end], samples.values[start:end], histograms)


def warm() -> None:
    """Have the machine code ready, so that no query waits for its compilation."""
    rows = rows_of_vector(Vector([()], np.ones((1, 1)), np.ones((1, 1), np.bool_)))
    list(written_rows(rows, Texts.of([b"0"]), Texts.of([b""]), b",", b",", quotes=False))
