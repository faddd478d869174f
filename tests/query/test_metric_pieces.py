"""Pieces over the wire: what is read back has the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.promql.selection.staleness import STALE
from lakerunner.series.evaluation.pieces import SCHEMA, ListingRows, Piece, from_batch, to_batch
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, BucketCounts, Histogram, ResetHint
from lakerunner.series.notes import Note
from lakerunner.series.values import Partial, Samples, Vector

LABELS = ((("__name__", "up"), ("job", "a")), (("job", 'quo"te é'),))
VALUES = np.array([[1.5, np.nan, -0.0], [STALE, np.inf, 2**53 + 1.0]])
PRESENT = np.array([[True, True, False], [False, True, True]])
EXPONENTIAL = Histogram(
    3,
    7.0,
    np.nan,
    1e-9,
    2.0,
    BucketCounts(np.array([-3, 8], np.int32), np.array([1.0, 2.5])),
    reset_hint=ResetHint.GAUGE,
)
CUSTOM = Histogram(
    CUSTOM_BUCKETS,
    3.0,
    -1.0,
    positive=BucketCounts(np.array([0, 2], np.int32), np.array([1.0, 2.0])),
    custom_values=(0.5, np.inf),
)


def travelled(piece: Piece) -> Piece:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(to_batch(piece))
    (batch,) = pa.ipc.open_stream(sink.getvalue())
    (read,) = from_batch(batch)
    return read


def histograms_of(*placed: tuple[tuple[int, ...], Histogram], shape: tuple[int, ...]) -> Any:
    found = np.full(shape, None, object)
    for place, histogram in placed:
        found[place] = histogram
    return found


def fields_of(histogram: Histogram) -> str:
    return repr(histogram)


def test_a_vector_comes_back_bit_for_bit() -> None:
    histograms = histograms_of(((0, 1), EXPONENTIAL), ((1, 2), CUSTOM), shape=(2, 3))
    vector = Vector(LABELS, VALUES, PRESENT, histograms, np.array([True, False]))
    note = Note("warning", "metric might not be a counter", 3, 9)
    read = travelled(Piece(vector, (note,)))
    assert read.notes == (note,)
    assert isinstance(read.value, Vector)
    assert tuple(read.value.labels) == LABELS
    assert read.value.values.tobytes() == VALUES.tobytes()
    assert read.value.present.tolist() == PRESENT.tolist()
    assert read.value.drop_name.tolist() == [True, False]
    assert read.value.histograms is not None
    assert fields_of(read.value.histograms[0, 1]) == fields_of(EXPONENTIAL)
    assert fields_of(read.value.histograms[1, 2]) == fields_of(CUSTOM)
    assert read.value.histograms[0, 0] is None


def test_samples_and_partials_come_back() -> None:
    samples = Samples(
        LABELS, np.array([0, 1, 3]), np.array([5, 6, 7]), np.array([1.0, STALE, np.nan]), starts=np.array([0, 4, 5])
    )
    read = travelled(Piece(samples)).value
    assert isinstance(read, Samples)
    assert (read.offsets.tolist(), read.times.tolist(), read.histograms) == ([0, 1, 3], [5, 6, 7], None)
    assert read.values.tobytes() == samples.values.tobytes()
    assert read.starts is not None
    assert read.starts.tolist() == [0, 4, 5]
    partial = Partial(
        LABELS[:1], {"sum": VALUES[:1], "comp": -VALUES[:1]}, {"sum": histograms_of(((0, 0), CUSTOM), shape=(1, 3))}
    )
    read = travelled(Piece(partial)).value
    assert isinstance(read, Partial)
    assert read.arrays["comp"].tobytes() == (-VALUES[:1]).tobytes()
    assert fields_of(read.histograms["sum"][0, 0]) == fields_of(CUSTOM)


def test_rows_of_listings_come_back() -> None:
    assert travelled(Piece(ListingRows([["up", "gauge", None], {"a": 1}]))).value == ListingRows(
        [["up", "gauge", None], {"a": 1}]
    )


def test_what_is_no_piece_is_another_version() -> None:
    row = [
        pa.array([b"{}"], pa.binary()),
        pa.array([b"[]"], pa.large_binary()),
        pa.array([[]], pa.list_(pa.large_binary())),
    ]
    with pytest.raises(Unavailable, match="a piece that this version cannot read"):
        from_batch(pa.RecordBatch.from_arrays(row, schema=SCHEMA))
