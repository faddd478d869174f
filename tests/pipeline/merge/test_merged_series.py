"""The table of series of a merged segment is the one that ingest makes of the same rows."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.pipeline.merge.inputs import Damaged, InputSeries
from lakerunner.pipeline.segment.series_files import SeriesTableSide
from pipeline.remote_write_oracle import framed, message_type
from suites.ingested import START, Ingested, ingested, random_metrics

SERIES = "series.parquet"


def built(case: Ingested, batches: Iterator[pa.RecordBatch]) -> bytes:
    side = SeriesTableSide(InputSeries(case.parts, case.read_side))
    for batch in batches:
        side.add(batch)
    return bytes(side.finish().data)


def in_pieces(batches: Iterator[pa.RecordBatch], chance: random.Random) -> Iterator[pa.RecordBatch]:
    """The same rows, cut anywhere, some columns as dictionaries."""
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            size = chance.randint(1, 9)
            piece = batch.slice(at, size)
            if chance.random() < 0.5:
                number = piece.schema.get_field_index("metric_name")
                piece = piece.set_column(number, "metric_name", piece.column(number).dictionary_encode())
            yield piece
            at += size


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_file_that_ingest_makes(seed: int) -> None:
    chance = random.Random(seed)
    case = ingested(METRICS, *(random_metrics(chance) for _ in range(chance.randint(1, 4))))
    assert built(case, case.row_groups()) == case.side(SERIES)
    assert built(case, in_pieces(case.row_groups(), chance)) == case.side(SERIES)


@pytest.mark.parametrize("seed", range(5))
def test_what_prometheus_sent_stays_as_it_was_sent(seed: int) -> None:
    """Type, unit and help of a series differ from request to request; names and labels are its own."""
    chance = random.Random(seed)
    case = ingested(METRICS, *(random_remote_write(chance) for _ in range(3)), form="prw2")
    file = built(case, in_pieces(case.row_groups(), chance))
    assert file == case.side(SERIES)
    table = pq.read_table(io.BytesIO(file))
    assert set(table.column("as_sent").to_pylist()) == {True}
    assert len(set(table.column("metric_type").to_pylist())) > 1


def random_remote_write(chance: random.Random) -> bytes:
    symbols = ["", "__name__", "up", "a:b", "ä.x", "pod", "1", "2", "help", "other", "seconds"]
    series: list[dict[str, Any]] = []
    for name in (2, 3, 4):
        for pod in (6, 7):
            if chance.random() < 0.7:
                time = START // 10**6 + chance.randrange(100)
                texts = {"help_ref": chance.choice([0, 8, 9]), "unit_ref": chance.choice([0, 10])}
                samples = [{"timestamp": time + place, "value": chance.random()} for place in range(5)]
                series.append(
                    {
                        "labels_refs": [1, name, 5, pod],
                        "metadata": {"type": chance.randrange(3), **texts},
                        "samples": samples,
                    }
                )
    return framed(message_type("prw2")(timeseries=series, symbols=symbols).SerializeToString())


def test_what_differs_from_point_to_point_is_that_of_the_first() -> None:
    """Of the earliest in time, whichever input has it, and of equal ones the first input's."""
    chance = random.Random(3)
    case = ingested(METRICS, *(random_metrics(chance, 200) for _ in range(4)))
    table = pq.read_table(io.BytesIO(built(case, case.row_groups())))
    rows = pa.Table.from_batches(case.row_groups()).column("description").take(table.column("first_row"))
    assert table.column("description").to_pylist() == rows.to_pylist()
    told = [pq.read_table(io.BytesIO(case.files[part.side_path(SERIES)])) for part in case.parts]
    said = [dict(zip(*(one.column(n).to_pylist() for n in ("series", "description")), strict=True)) for one in told]
    # Or there would be nothing to tell.
    assert any(len({one[s] for one in said if s in one}) > 1 for s in table.column("series").to_pylist())


def test_rollup_rows_have_their_series_from_the_tables_of_what_they_are_made_of() -> None:
    chance = random.Random(5)
    case = ingested(METRICS, *(random_metrics(chance) for _ in range(3)))
    whole = pa.Table.from_batches(case.row_groups())
    some = whole.filter(pa.array(whole.column("series").to_numpy() % 2 == 0)).drop_columns(["value"])
    side = SeriesTableSide(InputSeries(case.parts, case.read_side))
    for batch in some.combine_chunks().to_batches():
        side.add(batch)
    table = pq.read_table(pa.BufferReader(side.finish().data))
    all_of_it = pq.read_table(io.BytesIO(case.side(SERIES))).drop_columns(["first_row"])
    assert 0 < len(table) < len(all_of_it)
    wanted = all_of_it.filter(pa.array(all_of_it.column("series").to_numpy() % 2 == 0))
    assert table.drop_columns(["first_row"]).equals(wanted)
    assert table.column("first_row").to_pylist() == [0, *np.cumsum(wanted.column("rows").to_numpy())[:-1].tolist()]


def refused(case: Ingested, table: bytes | None, kind: type[Corrupt] = Damaged) -> str:
    """What is said where the second part has this table, which is set aside if it is to blame."""

    def read_side(segment: Segment, name: str) -> memoryview | None:
        if segment == case.parts[1]:
            return None if table is None else memoryview(table)
        return case.read_side(segment, name)

    side = SeriesTableSide(InputSeries(case.parts, read_side))
    for batch in case.row_groups():
        side.add(batch)
    with pytest.raises(kind) as caught:
        side.finish()
    if isinstance(caught.value, Damaged):
        assert caught.value.segment == case.parts[1].id
    return str(caught.value)


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.fixture(scope="module")
def case() -> Ingested:
    chance = random.Random(8)
    return ingested(METRICS, *(random_metrics(chance) for _ in range(2)))


def test_a_table_of_an_earlier_release_is_refused_by_name(case: Ingested) -> None:
    table = pq.read_table(io.BytesIO(case.files[case.parts[1].side_path(SERIES)]))
    reason = refused(case, written(table.drop_columns(["as_sent"])))
    assert str(case.parts[1].id) in reason
    assert "earlier version: ingest its metrics again" in reason


def test_a_damaged_table_is_refused_by_name(case: Ingested) -> None:
    data = case.files[case.parts[1].side_path(SERIES)]
    damaged = bytearray(data)
    damaged[len(data) // 3] ^= 0xFF
    for table in (bytes(damaged), data[: len(data) // 2], b"", None):
        assert str(case.parts[1].id) in refused(case, table)


def test_a_series_that_no_table_has_is_refused(case: Ingested) -> None:
    table = pq.read_table(io.BytesIO(case.files[case.parts[1].side_path(SERIES)]))
    assert "is missing from the tables of series" in refused(case, written(table.slice(0, 0)), Corrupt)


def test_many_series_take_no_loop() -> None:
    """100,000 series of two inputs, of which the second has half of its own; a loop in Python would take minutes."""
    count = 100_000
    case = ingested(METRICS, random_metrics(random.Random(1)))
    (table,) = (pq.read_table(io.BytesIO(case.side(SERIES))).slice(0, 1).combine_chunks(),)
    names = [f"metric{number % 100:03}" for number in range(count + count // 2)]
    series = np.arange(len(names))

    def table_of(numbers: npt.NDArray[np.int64]) -> bytes:
        wide: Any = table.take(pa.array(np.zeros(len(numbers), np.int64)))
        for name, values in (("series", series[numbers]), ("metric_name", [names[n] for n in numbers])):
            wide = wide.set_column(wide.schema.get_field_index(name), name, pa.array(values))
        return written(wide)

    tables = [table_of(np.arange(count)), table_of(np.arange(count // 2, count + count // 2))]
    parts = [replace(case.whole, id=UUID(int=number)) for number in range(2)]
    order = sorted(range(len(names)), key=lambda number: (names[number], number))
    (first,) = (next(case.row_groups()).slice(0, 1),)
    rows = first.take(pa.array(np.zeros(len(names), np.int64)))
    for name, values in (("series", series[order]), ("metric_name", [names[n] for n in order])):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    side = SeriesTableSide(InputSeries(parts, lambda segment, _: memoryview(tables[segment.id.int])))
    side.add(rows.slice(0, 70_000))
    side.add(rows.slice(70_000))
    merged = pq.read_table(pa.BufferReader(side.finish().data))
    assert merged.column("series").to_pylist() == [int(series[n]) for n in order]
    assert merged.column("first_row").to_pylist() == list(range(len(names)))
    assert set(merged.column("rows").to_pylist()) == {1}
