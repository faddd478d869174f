"""A lake that the real rollup and the real compaction have tended is whole, and what is damaged afterwards is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakerunner.index.commit import Commit
from lakerunner.index.segments import CollectorTier
from lakerunner.model.segment import Column, Segment
from lakerunner.model.tier import next_tier
from lakerunner.model.time import ALL_TIME
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from suites.checked import ORG, START, CheckedLake, checked_lake, logs_of, points_of, spans_of
from suites.otlp_metrics import Otlp, gauge

LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckedLake]:
    monkeypatch.setattr("lakerunner.services.fsck._OUTBOX_SECONDS", 0.0)
    with checked_lake(embedded_postgres_url, tmp_path) as made:
        yield made


def live(lake: CheckedLake, signal: str, frequency_ms: int = 0) -> list[Segment]:
    return lake.index.inspect.tier(CollectorTier(ORG.id, "edge", signal, frequency_ms), ALL_TIME)


def roll_up(lake: CheckedLake, frequency_ms: int) -> tuple[Segment, ...]:
    """The windows of all segments of the tier that are in none yet."""
    touched = tuple(one for one in live(lake, "metrics", frequency_ms) if not one.rolled)
    target = next_tier(frequency_ms)
    assert target is not None
    work = RollupWork(ORG.id, "edge", frequency_ms, target, touched, touched)
    sources = lake.index.inspect.tier(CollectorTier(ORG.id, "edge", "metrics", frequency_ms), work.span)
    work = replace(work, sources=tuple(sources))
    made = rollup_work(work, StoreAddress(lake.settings.store_url), LIMITS)
    assert made.error == ""
    ids = tuple(one.id for one in touched)
    lake.index.commit(Commit(made.segments, (), (), rolled=ids, rolled_of=ORG.id))
    return made.segments


def merge(lake: CheckedLake, signal: str, frequency_ms: int = 0) -> None:
    ids = [one.id for one in live(lake, signal, frequency_ms)]
    order = {id_: place for place, id_ in enumerate(ids)}
    segments = tuple(sorted(lake.index.segments.get(ORG.id, ids), key=lambda one: order[one.id]))
    work = CompactWork(ORG.id, "edge", signal, frequency_ms, 1, segments)
    made = compact_work(work, StoreAddress(lake.settings.store_url), LIMITS)
    assert made.error == ""
    lake.index.commit(Commit(made.segments, (), (), replaced=tuple(ids)))


def tended(lake: CheckedLake) -> None:
    for part in range(3):
        lake.add("metrics", points_of(*(float(part * 40 + n) for n in range(40)), time=START + part * 40))
        lake.add("metrics", points_of(0.1, 0.2, float("nan"), name="ratio", time=START + part * 40))
        lake.add("logs", logs_of(f"a {part}", "b"))
        lake.add("traces", spans_of("a", str(part), part=str(part)))
    roll_up(lake, 0)
    lake.add("metrics", points_of(7.25, 8, name="load", time=START + 15.5))  # late: windows are made anew
    roll_up(lake, 0)
    roll_up(lake, 10_000)
    roll_up(lake, 60_000)


def test_a_tended_lake_is_whole_before_and_after_its_merges(lake: CheckedLake) -> None:
    tended(lake)
    code, said = lake.fsck(deep=True)
    assert [one for one in said["findings"] if one["severity"] == "error"] == []
    assert code == 0
    assert said["looked_at"]["segments rolled up again"] >= 9
    assert not [name for name in said["looked_at"] if name.startswith("rolled segments not compared")]
    for signal, frequency_ms in (("logs", 0), ("traces", 0), ("metrics", 0), ("metrics", 10_000)):
        merge(lake, signal, frequency_ms)
    code, said = lake.fsck(deep=True)
    assert (code, said["findings"]) == (0, [])
    assert said["looked_at"]["windows recomputed"] > 20
    lake.sql("UPDATE lrdb.segments SET state = 'live' WHERE level = 0 AND signal = 'logs'")
    code, said = lake.fsck()
    errors = [one for one in said["findings"] if one["severity"] == "error"]
    assert code == 1
    assert len(errors) == 3
    assert all("which it replaced, are both live" in one["what"] for one in errors)


def test_a_window_that_was_changed_is_found(lake: CheckedLake) -> None:
    tended(lake)
    (one, *_) = [segment for segment in live(lake, "metrics", 10_000) if segment.rows > 5]
    path = lake.path(one.path)
    table = pq.read_table(path)
    place = table.schema.get_field_index("chq_rollup_max")
    table = table.set_column(place, table.field(place), pc.add(table.column(place), pa.scalar(1.0)))
    order = pq.SortingColumn.from_ordering(
        table.schema, [(name, "ascending") for name in ("metric_name", "series", "timestamp")]
    )
    pq.write_table(table, path, sorting_columns=order)
    lake.sql("UPDATE lrdb.segments SET bytes = %s WHERE id = %s", path.stat().st_size, one.id)
    whats = {what for severity, check, what, _ in lake.found(deep=True) if (severity, check) == ("error", "rollups")}
    assert whats
    # The tier above is made of this one, and differs from it too.
    assert {what.split()[0] for what in whats} == {"chq_rollup_max"}


def test_attributes_that_are_lists_are_compared_as_such(lake: CheckedLake) -> None:
    """Whether a column of typed JSON holds them, or the map."""
    otlp = Otlp()
    scope = otlp.resource(service_name="cart")
    attributes = otlp.request.resource_metrics[0].resource.attributes
    attributes.add(key="process.command_args").value.array_value.values.add().string_value = "run"
    gauge(scope, "load", [(START + place, place) for place in range(5)])
    one = lake.add("metrics", otlp.data)
    assert [column for column in one.columns if column.type == "json"] == [
        Column("resource.process.command_args", "json")
    ]
    roll_up(lake, 0)
    assert lake.found(deep=True) == []
