"""Results of operators on series, piece by piece: vectors, partials, samples and rows of listings; and how the pieces
of many workers are joined.

Within a process pieces are passed as they are; over HTTP each is one row of an Arrow stream: a JSON header, and arrays
as their bytes. What always holds: a piece read back has the same bits. Joined series are sorted by labels, whichever
worker computed them and in whatever order the pieces came, so that sums, choices and errors depend on that order alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.model.errors import Unavailable
from lakerunner.model.labels import Labels
from lakerunner.plan.operator import Operator
from lakerunner.series.arrays import Floats, Objects
from lakerunner.series.histograms.histogram import BucketCounts, Histogram, ResetHint, points_of
from lakerunner.series.notes import Note
from lakerunner.series.values import Partial, Samples, Vector, concatenate, concatenate_samples, sort_by_labels

SCHEMA = pa.schema([("header", pa.binary()), ("labels", pa.large_binary()), ("arrays", pa.list_(pa.large_binary()))])
_HEAD = 8  # how many numbers precede the buckets of a histogram
_Shape = tuple[int, ...]


@dataclass(frozen=True)
class ListingRows:
    """Rows of a listing: JSON values."""

    rows: Sequence[Any]


@dataclass(frozen=True)
class Untiered:
    """The worker found that rollups cannot give the answer (series/rollups.py): it must be computed from samples."""

    reason: str


@dataclass(frozen=True)
class Piece:
    value: Vector | Partial | Samples | ListingRows | Untiered
    notes: tuple[Note, ...] = ()

    @property
    def points(self) -> int:
        """Return how many values it holds; histograms count with their buckets."""
        match self.value:
            case Vector(_, values, _, histograms):
                return values.size + points_of(histograms)
            case Samples(_, _, times, _, histograms):
                return len(times) + points_of(histograms)
            case Partial(_, arrays, histograms):
                return sum(array.size for array in arrays.values()) + sum(map(points_of, histograms.values()))
        return 0


def to_batch(piece: Piece) -> pa.RecordBatch:
    labels: Sequence[Labels] = () if isinstance(piece.value, ListingRows | Untiered) else piece.value.labels
    parts = _Parts()
    kind, write, _ = _CODECS[type(piece.value)]
    extra = write(piece.value, parts)
    header = {
        "kind": kind,
        "parts": parts.described,
        "notes": [[n.level, n.message, n.start, n.end] for n in piece.notes],
        **extra,
    }
    row = [
        pa.array([orjson.dumps(header)], pa.binary()),
        pa.array([orjson.dumps(labels if isinstance(labels, tuple | list) else list(labels))], pa.large_binary()),
        pa.array([parts.data], pa.list_(pa.large_binary())),
    ]
    return pa.RecordBatch.from_arrays(row, schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> list[Piece]:
    try:
        return [_piece(batch, row) for row in range(batch.num_rows)]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Unavailable(f"a query worker sent a piece that this version cannot read: {error}") from error


def _piece(batch: pa.RecordBatch, row: int) -> Piece:
    header = orjson.loads(memoryview(batch.column("header")[row].as_buffer()))
    labels = [tuple(map(tuple, one)) for one in orjson.loads(memoryview(batch.column("labels")[row].as_buffer()))]
    parts: dict[str, Any] = {}
    for (name, type_, shape), data in zip(header["parts"], batch.column("arrays")[row].values, strict=True):
        parts[name] = np.frombuffer(data.as_buffer(), type_).reshape(shape)
    value = _READERS[header["kind"]](labels, parts, header)
    return Piece(value, tuple(Note(*note) for note in header["notes"]))


@dataclass
class _Parts:
    described: list[tuple[str, str, _Shape]] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)

    def add(self, name: str, array: Any) -> None:
        whole = np.ascontiguousarray(array)
        self.described.append((name, whole.dtype.str, whole.shape))
        self.data.append(whole.tobytes())

    def add_histograms(self, name: str, histograms: Objects | None) -> None:
        if histograms is None:
            return
        flat = histograms.reshape(-1)
        places = np.flatnonzero(flat != None)  # noqa: E711 elementwise
        numbers = [_numbers(flat[place]) for place in places]
        self.add(f"{name}.shape", np.array(histograms.shape, np.int64))
        self.add(f"{name}.places", places.astype(np.int64))
        self.add(f"{name}.sizes", np.array([len(one) for one in numbers], np.int64))
        self.add(f"{name}.numbers", np.concatenate([np.zeros(0), *numbers]))


def _numbers(histogram: Histogram) -> Floats:
    positive, negative = histogram.positive, histogram.negative
    head = [histogram.schema, histogram.count, histogram.sum, histogram.zero_threshold, histogram.zero_count]
    head += [histogram.reset_hint, len(positive.indexes), len(negative.indexes)]
    found: Floats = np.concatenate(
        [head, positive.indexes, positive.counts, negative.indexes, negative.counts, histogram.custom_values]
    )
    return found


def _histogram(numbers: Floats) -> Histogram:
    schema, count, sum_, threshold, zeros, hint, first, second = numbers[:_HEAD].tolist()
    a, b = _HEAD + int(first), _HEAD + 2 * int(first)
    c, d = b + int(second), b + 2 * int(second)
    return Histogram(
        int(schema),
        count,
        sum_,
        threshold,
        zeros,
        BucketCounts(numbers[_HEAD:a].astype(np.int32), numbers[a:b]),
        BucketCounts(numbers[b:c].astype(np.int32), numbers[c:d]),
        tuple(numbers[d:].tolist()),
        ResetHint(int(hint)),
    )


def _histograms(parts: Mapping[str, Any], name: str) -> Objects | None:
    if f"{name}.shape" not in parts:
        return None
    found: Objects = np.full(int(np.prod(parts[f"{name}.shape"])), None, object)
    ends = np.cumsum(parts[f"{name}.sizes"])
    for place, size, end in zip(parts[f"{name}.places"], parts[f"{name}.sizes"], ends, strict=True):
        found[place] = _histogram(parts[f"{name}.numbers"][end - size : end])
    return found.reshape(tuple(parts[f"{name}.shape"]))


def _arrays_codec(name_on_wire: str, kind: type[Vector] | type[Samples], *names: str) -> tuple[str, Any, Any]:
    """Return the codec of a value with these arrays, some of which may be None, and histograms."""

    def write(value: Any, parts: _Parts) -> dict[str, Any]:
        for name in names:
            if (array := getattr(value, name)) is not None:
                parts.add(name, array)
        parts.add_histograms("histograms", value.histograms)
        return {}

    def read(labels: list[Labels], parts: Mapping[str, Any], _: Mapping[str, Any]) -> Vector | Samples:
        arrays = {name: parts[name] for name in names if name in parts}
        return kind(labels, histograms=_histograms(parts, "histograms"), **arrays)

    return name_on_wire, write, read


def _write_partial(partial: Partial, parts: _Parts) -> dict[str, Any]:
    for name, array in partial.arrays.items():
        parts.add(name, array)
    for name, histograms in partial.histograms.items():
        parts.add_histograms(name, histograms)
    return {"arrays": list(partial.arrays), "histograms": list(partial.histograms)}


def _read_partial(labels: list[Labels], parts: Mapping[str, Any], header: Mapping[str, Any]) -> Partial:
    histograms = {name: _histograms(parts, name) for name in header["histograms"]}
    return Partial(
        labels,
        {name: parts[name] for name in header["arrays"]},
        {name: found for name, found in histograms.items() if found is not None},
    )


# Name on the wire, writer and reader of each kind of value. The names stay when a class is renamed: a worker may run
# another version.
_CODECS: Mapping[type, tuple[str, Any, Any]] = {
    Vector: _arrays_codec("Vector", Vector, "values", "present", "drop_name"),
    Samples: _arrays_codec("Samples", Samples, "offsets", "times", "values", "drop_name", "starts"),
    Partial: ("Partial", _write_partial, _read_partial),
    ListingRows: ("ListingRows", lambda value, _: {"rows": value.rows}, lambda *given: ListingRows(given[2]["rows"])),
    Untiered: ("Untiered", lambda value, _: {"reason": value.reason}, lambda *given: Untiered(given[2]["reason"])),
}
_READERS = {name: read for name, _, read in _CODECS.values()}


class SeriesOperator(Operator):
    """An operator on series. `run` gets the series of one unit; the operator's own module states what it uses of
    them."""

    input = "series"

    @abstractmethod
    def run(self, series: Any) -> Iterator[Piece]:
        """Yield the results of one unit. The cut into pieces depends on the data and the operator alone."""

    def encode(self, results: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        return map(to_batch, results)

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
        for batch in batches:
            yield from from_batch(batch)

    def check_points(self, points: int) -> None:
        """Raise TooLarge if the pieces of a unit may not hold this many values and samples."""


def join_vectors(vectors: Sequence[Vector], steps: int) -> Vector:
    if not vectors:
        return Vector((), np.zeros((0, steps)), np.zeros((0, steps), bool))
    return sort_by_labels(concatenate(vectors))


def join_samples(parts: Sequence[Samples]) -> Samples:
    samples = concatenate_samples(parts)
    order = sorted(range(len(samples)), key=samples.labels.__getitem__)
    return samples if order == list(range(len(order))) else samples.rows(order)


def distinct_samples(parts: Sequence[Samples]) -> Samples:
    """Join the series of all parts, each taken from the first part that has it."""
    seen: set[Labels] = set()
    rows: list[Samples] = []
    for part in parts:
        if seen.isdisjoint(part.labels):
            rows.append(part)
        else:
            rows += [part.between(n, n + 1) for n, labels in enumerate(part.labels) if labels not in seen]
        seen.update(part.labels)
    return join_samples(rows)
