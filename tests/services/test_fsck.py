"""Each invariant, broken on purpose, is found and named; what is whole is called so."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.commands.fsck import FsckRequest, run_fsck
from lakerunner.commands.objects import work
from lakerunner.index.commit import Commit
from lakerunner.index.sources import Arrival
from lakerunner.model.segment import Column, segment_id
from lakerunner.model.source import SourceObject
from lakerunner.model.text_index import CHECKSUM
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.services.checks import doubles, files
from suites.checked import ORG, START_NS, CheckedLake, checked_lake, logs_of, points_of, spans_of

FILES, OBJECTS, ROWS = ("error", "files"), ("error", "objects"), ("error", "rows")


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckedLake]:
    monkeypatch.setattr("lakerunner.services.fsck._OUTBOX_SECONDS", 0.0)
    with checked_lake(embedded_postgres_url, tmp_path) as made:
        yield made


@pytest.mark.parametrize("deep", [False, True])
def test_a_lake_that_is_whole_is_clean(lake: CheckedLake, deep: bool) -> None:
    lake.add("logs", logs_of("a", "b"))
    lake.add("metrics", points_of(1, 2, 3))
    lake.add("traces", spans_of("a", "b"))
    code, said = lake.fsck(deep=deep)
    assert (code, said["errors"], said["notes"], said["findings"]) == (0, 0, 0, [])
    assert said["complete"] is True
    assert {name: said["looked_at"][name] for name in ("organizations", "segments", "side files", "objects")} == {
        "organizations": 1,
        "segments": 3,
        "side files": 4,
        "objects": 7,
    }
    assert said["looked_at"].get("rows read") == (7 if deep else None)


def test_an_object_that_is_gone(lake: CheckedLake) -> None:
    gone, side = lake.add("logs", logs_of("a", "b")), lake.add("metrics", points_of(1))
    lake.path(gone.path).unlink()
    lake.path(side.side_path("series.parquet")).unlink()
    code, said = lake.fsck()
    assert code == 1
    assert sorted((one["what"], one["where"]) for one in said["findings"]) == [
        ("a side file of a live segment is missing", side.side_path("series.parquet")),
        ("the file of a live segment with 2 rows is missing", gone.path),
    ]
    assert {one["severity"] for one in said["findings"]} == {"error"}
    assert {one["organization"] for one in said["findings"]} == {"default"}


def test_a_file_of_another_size(lake: CheckedLake) -> None:
    one = lake.add("logs", logs_of("a"))
    with lake.path(one.path).open("ab") as file:
        file.write(b"x")
    lake.path(one.side_path("text.bin")).write_bytes(b"")
    stated = one.statistics["side_bytes"]["text.bin"]
    assert sorted(lake.found()) == [
        (*FILES, f"it has {one.bytes + 1} bytes, {one.bytes} in the index", one.path),
        (*FILES, f"this side file has 0 bytes, {stated} in the index", one.side_path("text.bin")),
    ]


def test_rows_columns_and_times_are_those_of_the_file(lake: CheckedLake) -> None:
    (one,) = lake.make("logs", logs_of("a", "b"))
    less = tuple(column for column in one.columns if column.name != "message")
    wrong = replace(
        one, rows=3, columns=(*less, Column("attributes.x", "string")), time=TimeRange(START_NS, START_NS + 9)
    )
    lake.index.commit(Commit((wrong,), (), ()))
    times = "2025-10-09T08:00:00.000000000Z"
    assert lake.found() == [
        (*FILES, "it has 2 rows, 3 in the index", one.path),
        (
            *FILES,
            "its columns differ from the index: also message; without attributes.x",
            one.path,
        ),
        (*FILES, f"its rows are from {times} to {times[:-2]}1Z, in the index {times} to {times[:-2]}8Z", one.path),
    ]


def test_the_order_of_columns_counts() -> None:
    assert files._describe_difference(["a", "c", "b"], ["a", "b", "c"]) == "different order, c before b"


def rewritten(lake: CheckedLake, **options: object) -> str:
    """A segment of logs whose file was written again by pyarrow, of the size that the index says."""
    (one,) = lake.make("logs", logs_of("a", "b", "c", "d"))
    table = pq.read_table(lake.path(one.path))
    if options.pop("backwards", False):
        table = table.take(pa.array([3, 2, 1, 0]))
    pq.write_table(table, lake.path(one.path), **options)
    lake.index.commit(Commit((replace(one, bytes=lake.path(one.path).stat().st_size),), (), ()))
    return one.path


def test_an_order_that_is_not_declared(lake: CheckedLake) -> None:
    path = rewritten(lake)
    what = "the sort order of its rows is not declared: expected service_name, timestamp"
    assert lake.found() == [(*FILES, what, path)]


def test_an_order_that_is_declared_and_not_kept_is_found_by_reading(lake: CheckedLake) -> None:
    schema = pq.read_schema(lake.path(lake.make("logs", logs_of("a"))[0].path))
    order = pq.SortingColumn.from_ordering(schema, [("service_name", "ascending"), ("timestamp", "ascending")])
    path = rewritten(lake, backwards=True, sorting_columns=order)
    assert [one for one in lake.found() if one[0] == "error"] == []
    what = "3 of its rows are not in order: expected order is service_name, timestamp"
    assert [one for one in lake.found(deep=True) if one[0] == "error"] == [(*FILES, what, path)]


@pytest.mark.parametrize(
    ("from_end", "said"),
    [(False, "no valid page header at byte 0"), (True, "page checksum mismatch at byte ")],
)
def test_a_flipped_bit_is_found_by_reading(lake: CheckedLake, from_end: bool, said: str) -> None:
    """In the header of a page, which has no checksum, or behind it."""
    one = lake.add("logs", logs_of(*(f"message number {number}" for number in range(500))))
    group = pq.read_metadata(lake.path(one.path)).row_group(0)
    chunk = next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "message")
    data = bytearray(lake.path(one.path).read_bytes())
    data[chunk.data_page_offset + (chunk.total_compressed_size - 20 if from_end else 1)] ^= 1
    lake.path(one.path).write_bytes(data)
    assert lake.found() == []
    ((severity, check, what, where),) = lake.found(deep=True)
    assert (severity, check, where) == ("error", "files", one.path)
    assert what.startswith(f"cannot be read: column message, row group 0: {said}")


@pytest.mark.parametrize("checked", [False, True])
def test_a_text_index_that_would_not_find_a_text_is_found_by_reading(lake: CheckedLake, checked: bool) -> None:
    """Whatever its checksum says, or without one: what it must have is made anew of the rows. A bit too many finds
    too much, and is no harm."""
    one = lake.add("logs", logs_of(*(f"message number {number}" for number in range(500))))
    path = lake.path(one.side_path("text.bin"))
    data = path.read_bytes()[: -CHECKSUM.size]
    set_at = max(place for place, byte in enumerate(data) if byte)
    bit = data[set_at] & -data[set_at]

    def changed(place: int, byte: int) -> list[tuple[str, str, str, str]]:
        made = data[:place] + bytes([byte]) + data[place + 1 :]
        path.write_bytes(made + CHECKSUM.pack(zlib.crc32(made)))
        if not checked:
            path.write_bytes(made[:4] + b"\1" + made[5:])
            stated = "jsonb_set(statistics::jsonb, '{side_bytes,text.bin}', to_jsonb(%s::int))"
            lake.sql(f"UPDATE lrdb.segments SET statistics = {stated}::json", len(made))
        assert lake.found() == []
        return lake.found(deep=True)

    assert changed(set_at, data[set_at]) == []
    assert changed(set_at, 255) == []
    what = "this text index lacks 1 bits of the texts of its segment: searches miss these texts"
    assert changed(set_at, data[set_at] ^ bit) == [(*FILES, what, one.side_path("text.bin"))]
    what = "this text index does not match the row groups or hashing of its segment"
    assert changed(16, 9) == [(*FILES, what, one.side_path("text.bin"))]  # probes of tokens
    what = "this side file cannot be read: not a text index: wrong first bytes"
    assert changed(0, 0) == [(*FILES, what, one.side_path("text.bin"))]


def test_a_flipped_bit_of_a_text_index_is_found_by_its_checksum(lake: CheckedLake) -> None:
    one = lake.add("logs", logs_of("a message"))
    path = lake.path(one.side_path("text.bin"))
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    assert lake.found() == []
    what = "this side file cannot be read: checksum of the text index is wrong"
    assert lake.found(deep=True) == [(*FILES, what, one.side_path("text.bin"))]


def test_a_table_of_streams_that_does_not_match_is_found_by_reading(lake: CheckedLake) -> None:
    one, other = (lake.add("logs", logs_of(*lines)) for lines in (("an error", "b"), ("an error", "c d")))
    path = lake.path(one.side_path("streams.parquet"))
    path.write_bytes(lake.path(other.side_path("streams.parquet")).read_bytes())
    stated = "jsonb_set(statistics::jsonb, '{side_bytes,streams.parquet}', to_jsonb(%s::int))"
    lake.sql(f"UPDATE lrdb.segments SET statistics = {stated}::json WHERE id = %s", path.stat().st_size, one.id)
    what = "this table of streams does not match the rows of its segment: lists of streams are wrong"
    assert lake.found(deep=True) == [(*FILES, what, one.side_path("streams.parquet"))]


def test_a_flipped_bit_beside_a_segment_of_traces_is_found_by_reading(lake: CheckedLake) -> None:
    one = lake.add("traces", spans_of(*(f"span {number}" for number in range(50))))
    path = lake.path(one.side_path("traces.parquet"))
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 1
    path.write_bytes(data)
    assert lake.found() == []
    ((severity, check, what, where),) = lake.found(deep=True)
    assert (severity, check, where) == ("error", "files", one.side_path("traces.parquet"))
    assert what.startswith("this side file cannot be read: could not verify page integrity")


def test_a_segment_that_is_replaced_meanwhile_is_no_finding(lake: CheckedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    one = lake.add("logs", logs_of("a"))
    lake.path(one.path).unlink()
    looked_at = files._check_segment_files

    def replaced_meanwhile(*arguments: Any) -> object:
        found = looked_at(*arguments)
        monkeypatch.setattr(files, "_check_segment_files", looked_at)
        (new,) = lake.make("logs", logs_of("a", "b"))
        lake.index.commit(Commit((replace(new, level=1),), (), (), replaced=(one.id,)))
        return found

    monkeypatch.setattr(files, "_check_segment_files", replaced_meanwhile)
    assert lake.found() == []


def test_objects_that_nobody_knows(lake: CheckedLake) -> None:
    one = lake.add("logs", logs_of("a"))
    young, old = lake.make("logs", logs_of("young"))[0], lake.make("logs", logs_of("old"))[0]
    beside = old.statistics["side_bytes"]
    for key in (old.path, *map(old.side_path, beside)):
        lake.age(key, 2)
    other = one.side_path("other.bin")
    lake.store.put(other, b"abc")
    lake.age(other, 3)
    elsewhere = f"db/{segment_id('x')}/c/x"
    lake.store.put(elsewhere, b"x")
    found = lake.found()
    assert sorted(found[:4]) == sorted(
        [
            (*OBJECTS, f"this object of {old.bytes} bytes is not in the index, 2.0 hours old", old.path),
            *(
                (*OBJECTS, f"this object of {size} bytes is not in the index, 2.0 hours old", old.side_path(name))
                for name, size in beside.items()
            ),
            (*OBJECTS, "this object of 3 bytes is not in the index, 3.0 hours old", other),
        ]
    )
    assert found[4] == (*OBJECTS, "this object belongs to no known organization", elsewhere)
    ((severity, check, what, where),) = found[5:]
    assert (severity, check) == ("note", "objects")
    assert what == ("3 young objects not known to the index: work that is about to be committed, or was cut")
    assert where in (young.path, *map(young.side_path, beside))
    assert not [one for one in lake.found(organization="default") if one[3] == elsewhere]


def test_an_object_below_the_name_of_an_organization_belongs_to_none(lake: CheckedLake) -> None:
    """Segments stand below its id: nobody looks elsewhere."""
    lake.store.put(f"db/{ORG.name}/edge/x", b"x")
    assert lake.found() == [(*OBJECTS, "this object belongs to no known organization", f"db/{ORG.name}/edge/x")]


def test_what_no_sweep_takes_is_not_left_to_the_sweeper(lake: CheckedLake) -> None:
    one = lake.add("logs", logs_of("a"))
    (orphan,) = lake.make("logs", logs_of("old"))
    beside, foreign = one.side_path("other.bin"), one.path.rpartition("/")[0] + "/notes.txt"
    for key in (beside, foreign):
        lake.store.put(key, b"abc")
    sides = [orphan.side_path(name) for name in orphan.statistics["side_bytes"]]
    for key in (beside, foreign, orphan.path, *sides):
        lake.age(key, 3)
    to_do = {finding["where"]: finding["to_do"] for finding in lake.fsck()[1]["findings"]}
    assert to_do == {
        **dict.fromkeys(
            (orphan.path, *sides),
            "check that a sweeper is running: it deletes the object; so does `lakerunner sweep`",
        ),
        beside: "the sweeper leaves it: find out who wrote it, then delete it; nothing reads it",
        foreign: "the sweeper leaves it: find out who wrote it, then delete it; nothing reads it",
    }


def test_files_of_replaced_segments_past_the_grace_time_are_a_note(lake: CheckedLake) -> None:
    old = lake.add("logs", logs_of("a"))
    (new,) = lake.make("logs", logs_of("a", "b"))
    lake.index.commit(Commit((replace(new, level=1),), (), (), replaced=(old.id,)))
    assert lake.fsck()[0] == 0
    assert lake.found() == []
    lake.sql("UPDATE lrdb.segments SET replaced_at = now() - interval '2 hours' WHERE id = %s", old.id)
    ((severity, check, what, where),) = lake.found()
    assert (severity, check) == ("note", "objects")
    assert what == "3 objects of replaced or expired segments past the grace time"
    assert where in (old.path, *map(old.side_path, old.statistics["side_bytes"]))


def test_a_segment_and_the_one_that_took_its_place(lake: CheckedLake) -> None:
    old = lake.add("logs", logs_of("a"))
    (new,) = lake.make("logs", logs_of("a", "b"))
    lake.index.commit(Commit((replace(new, level=1),), (), (), replaced=(old.id,)))
    lake.sql("UPDATE lrdb.segments SET state = 'live' WHERE id = %s", old.id)
    what = f"segment {new.id} and segment {old.id}, which it replaced, are both live: their rows count twice"
    code, said = lake.fsck(organization=str(ORG.id))
    assert code == 1
    errors = [one for one in said["findings"] if one["severity"] == "error"]
    assert [(one["check"], one["what"], one["where"]) for one in errors] == [("rows", what, "edge/logs")]


@pytest.mark.parametrize("rows_at_once", [doubles.ROWS_AT_ONCE, 2])
def test_rows_delivered_twice_are_a_note(lake: CheckedLake, monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    monkeypatch.setattr(doubles, "ROWS_AT_ONCE", rows_at_once)
    one, two = lake.add("metrics", points_of(1, 2, 3.5)), lake.add("metrics", points_of(1, 2, 4.5))
    first, second = lake.add("traces", spans_of("a", "b", x="1")), lake.add("traces", spans_of("a", "b", "c", x="1"))
    lake.add("traces", spans_of("a", x="2"))
    lake.add("traces", spans_of("a", x="1", time_ns=START_NS + HOUR_NS))
    hour = "2025-10-09 08h"
    code, said = lake.fsck()
    assert code == 0
    assert [(f["severity"], f["what"]) for f in said["findings"]] == [
        ("note", "2 rows in two live segments or more: delivered twice, and not merged")
    ] * 2
    assert {f["to_do"] for f in said["findings"]} == {
        "nothing, if they can still be merged: the merge drops one. If one is full or of the last level, both rows stay"
    }
    wheres = [f["where"] for f in said["findings"]]
    assert wheres == [
        f"edge/metrics {hour}: {one.id}, {two.id}",
        f"edge/traces {hour}: {first.id}, {second.id}",
    ]
    assert said["looked_at"]["hours compared"] == 2


def test_equal_parts_of_rules_are_not_doubles(lake: CheckedLake) -> None:
    for _ in range(2):
        lake.add("metrics", points_of(1, 2), collector="_errors.1")
    code, said = lake.fsck(deep=True)
    assert (code, said["findings"]) == (0, [])
    assert said["looked_at"]["hours with overlapping segments"] == 0


def test_logs_are_compared_by_their_delivery(lake: CheckedLake) -> None:
    lake.add("logs", logs_of("same", "twice"))
    lake.add("logs", logs_of("same"))  # an equal row of another delivery
    assert lake.found() == []
    lake.add("logs", logs_of("same", "twice"))
    ((severity, check, what, _),) = lake.found()
    assert (severity, check) == ("note", "rows")
    assert what == "2 rows in two live segments or more: delivered twice, and not merged"


def test_equal_rows_of_one_segment_are_rows(lake: CheckedLake) -> None:
    lake.add("traces", spans_of("a"), spans_of("a"))
    lake.add("traces", spans_of("b"))
    code, said = lake.fsck(deep=True)
    assert (code, said["findings"]) == (0, [])
    assert said["looked_at"]["rows compared"] == 3


def test_hours_are_drawn_by_the_seed(lake: CheckedLake) -> None:
    for hour in range(4):
        for _ in range(2):
            lake.add("traces", spans_of("a", time_ns=START_NS + hour * HOUR_NS))
    drawn = {lake.fsck(sample=1, seed=seed)[1]["findings"][0]["where"] for seed in range(12)}
    assert 1 < len(drawn) <= 4
    assert lake.fsck(sample=1, seed=5)[1]["findings"] == lake.fsck(sample=1, seed=5)[1]["findings"]
    assert len(lake.fsck(deep=True)[1]["findings"]) == 4
    assert lake.fsck(sample=0)[1]["findings"] == []


def announced(lake: CheckedLake, name: str) -> SourceObject:
    source = SourceObject("local", f"otel-raw/default/edge/{name}", "e", 1, 1)
    lake.index.sources.announce([Arrival(source, ORG.id, "edge", "logs", "objstore.ingest.logs", b"{}")])
    return source


def test_sources_work_and_outbox(lake: CheckedLake) -> None:
    done, stale, broken = (announced(lake, name) for name in ("done", "stale", "broken"))
    lake.index.commit(Commit((), (done,), ((broken, "bad"),)))
    lake.sql("UPDATE lrdb.source_objects SET ended_at = NULL WHERE key = %s", done.key)
    lake.sql("UPDATE lrdb.source_objects SET seen_at = now() - interval '25 hours' WHERE key = %s", stale.key)
    lake.sql(
        "INSERT INTO lrdb.failed_work VALUES"
        " ('segments.logs.compact', '\\x01', '', %s, 5, 'a page is damaged', 'aside', now(), now())",
        ORG.id,
    )
    lake.index.sources.set_aside(SourceObject("local", "otel-raw/nobody/x", "e", 1, 1), "whose?")
    assert lake.found() == [
        ("error", "sources", "this raw object is done, and its row does not say when", done.key),
        ("note", "sources", "1 raw objects were seen over a day ago and are not ingested", stale.key),
        ("note", "sources", "1 raw objects are set aside", broken.key),
        ("note", "work", "1 box set aside: a page is damaged", "segments.logs.compact"),
        ("note", "sources", "1 raw object of an unknown organization", "lrdb.source_objects"),
        ("note", "outbox", "3 messages not relayed", "objstore.ingest.logs"),
    ]
    (said,) = (one["to_do"] for one in lake.fsck()[1]["findings"] if one["check"] == "work")
    assert said == "`lakerunner work` shows them, `lakerunner work --requeue` sends them again"
    assert "--requeue" in {option for one in work.params for option in one.opts}


def test_a_store_that_is_away_is_not_an_error_of_the_lake(lake: CheckedLake) -> None:
    lake.add("logs", logs_of("a"))
    lake.store.root.rename(lake.store.root.with_name("elsewhere"))
    code, said = lake.fsck()
    assert (code, said["errors"], said["complete"]) == (3, 0, False)
    assert said["not_checked"][0] == ("files of default: the local store cannot be opened: No such file or directory")
    assert not lake.store.root.exists()


def test_an_index_that_is_away(lake: CheckedLake) -> None:
    errors = io.StringIO()
    away = replace(lake.settings, database_url=lake.settings.database_url + "x")
    assert run_fsck(away, FsckRequest(), io.StringIO(), errors) == 3
    assert errors.getvalue().startswith("error: nothing could be checked: cannot use PostgreSQL at 127.0.0.1:")


def test_usage(lake: CheckedLake, tmp_path: Path) -> None:
    errors = io.StringIO()
    assert run_fsck(lake.settings, FsckRequest("nobody"), io.StringIO(), errors) == 2
    assert errors.getvalue() == "error: organization 'nobody' not found; known organizations: default\n"
    errors = io.StringIO()
    home = tmp_path / "none"
    assert run_fsck(replace(lake.settings, database_url="", home=home), FsckRequest(), io.StringIO(), errors) == 2
    assert errors.getvalue() == (
        f"error: no lake found in {home}: start one with `lakerunner up`, or name the home of "
        "yours with --home or LAKERUNNER_HOME, or its PostgreSQL server with DATABASE_URL\n"
    )
    assert not home.exists()


def test_the_table(lake: CheckedLake) -> None:
    one = lake.add("logs", logs_of("a"))
    lake.path(one.path).unlink()
    out = io.StringIO()
    assert run_fsck(lake.settings, FsckRequest(seed=7), out, io.StringIO()) == 1
    head, *rest = out.getvalue().split("\n1 row\n")
    assert [cell.strip() for cell in head.splitlines()[1].split("┃")[1:-1]] == [
        "severity",
        "check",
        "organization",
        "what",
        "where",
        "to_do",
    ]
    assert "".join("".join(rest).splitlines(keepends=True)) == (
        "looked at: organizations 1, segments 1, side files 2, "
        f"bytes of segments {one.bytes}, objects 2, hours with overlapping segments 0, raw objects 0, "
        "topics of the outbox 0\n"
        "the sample was drawn with --seed 7; --deep checks everything\n"
        "1 error, 0 notes\n"
    )
