"""Equal rows have equal digests however their segments write them, and others have others."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.pipeline.read.sample import SAMPLES
from lakerunner.services.checks.row_digest import attribute_digests, row_digests
from suites.checked import START_NS, logs_of, points_of, spans_of


def made(signal: str, *datas: bytes) -> list[tuple[Segment, pa.RecordBatch]]:
    stored: dict[str, bytes] = {}
    raws = [Raw(SourceObject("b", f"k{n}", "e", len(d), 1), memoryview(d)) for n, d in enumerate(datas)]
    outcome = make_segments(
        SIGNALS[signal], UUID(int=1), "c", raws, lambda key, data: stored.update({key: bytes(data)})
    )
    assert outcome.failed == ()
    read = [(one, pq.read_table(io.BytesIO(stored[one.path]))) for one in outcome.segments]
    return [(one, table.combine_chunks().to_batches()[0]) for one, table in read]


def digests(signal: str, *datas: bytes) -> set[int]:
    return {
        int(digest)
        for one, batch in made(signal, *datas)
        for digest in row_digests(batch, None, {column.name for column in one.columns if column.type == "json"})
    }


@pytest.mark.parametrize("signal", sorted(SAMPLES))
def test_rows_of_every_kind_are_the_same_in_another_segment(signal: str) -> None:
    """The sample has every type of value; among others its attributes are rare and stay in the map."""
    sample = SAMPLES[signal]()
    alone = digests(signal, sample)
    others = {
        "logs": logs_of(*map(str, range(2000)), time_ns=5),
        "metrics": points_of(*range(2000), time=0),
        "traces": spans_of(*map(str, range(2000)), time_ns=5),
    }[signal]
    together = digests(signal, sample, others)
    assert alone <= together
    assert len(alone) == sum(batch.num_rows for _, batch in made(signal, sample))
    columns = [
        {c.name for one, _ in made(signal, *datas) for c in one.columns} for datas in ((sample,), (sample, others))
    ]
    assert columns[0] - columns[1]


def test_a_whole_number_is_the_same_in_both_columns() -> None:
    ((_, whole),) = made("metrics", points_of(1, 2))
    ((_, mixed),) = made("metrics", points_of(1, 2, 2.5))
    assert ("int_value" in whole.schema.names, "int_value" in mixed.schema.names) == (True, False)
    assert row_digests(whole).tolist() == row_digests(mixed).tolist()[:2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "1"}, {"a": "2"}),
        ({"a": "1"}, {"b": "1"}),
        ({"a": "1", "b": "2"}, {"a": "2", "b": "1"}),
        ({"a": ""}, {}),
    ],
)
def test_another_attribute_is_another_row(one: dict[str, str], other: dict[str, str]) -> None:
    first, second = (digests("traces", spans_of("x", time_ns=START_NS, **some)) for some in (one, other))
    assert not first & second


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, 1, -1, 2**62]),
        (pa.float64(), [0.0, -0.0, 1.0, float("nan"), float("inf")]),
        (pa.string(), ["", "a", "b", "ab", "a" * 9]),
        (pa.binary(), [b"", b"\0", b"\0\0"]),
        (pa.bool_(), [True, False]),
        (pa.list_(pa.int64()), [[], [0], [0, 0], [1, 2], [2, 1], [None, 1]]),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1, "b": None}]),
        (pa.map_(pa.string(), pa.string()), [[], [("a", "b")], [("b", "a")], [("a", "b"), ("c", "d")]]),
    ],
)
def test_different_values_have_different_digests_wherever_they_stand(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([*values, None], kind)
    found = row_digests(pa.RecordBatch.from_arrays([column], ["x"]))
    assert len(set(found.tolist())) == len(values) + 1
    assert found[-1] == 0
    sliced = pa.RecordBatch.from_arrays([column.slice(1)], ["x"])
    assert row_digests(sliced).tolist() == found[1:].tolist()


def test_a_map_has_no_order_and_attributes_are_of_their_scope() -> None:
    kind = pa.map_(pa.string(), pa.string())
    one, other = ([[("a", '"1"'), ("b", "2")]], [[("b", "2"), ("a", '"1"')]])
    batches = [pa.RecordBatch.from_arrays([pa.array(rows, kind)], ["attributes"]) for rows in (one, other)]
    assert row_digests(batches[0]) == row_digests(batches[1])
    shredded = pa.RecordBatch.from_arrays(
        [pa.array([[("b", "2")]], kind), pa.array(["1"])], ["attributes", "attributes.a"]
    )
    assert attribute_digests(shredded, "attributes") == attribute_digests(batches[0], "attributes")
    resource = pa.RecordBatch.from_arrays([pa.array(one, kind)], ["resource_attributes"])
    assert row_digests(resource) != row_digests(batches[0])
    assert attribute_digests(resource, "attributes") == np.zeros(1, np.uint64)
