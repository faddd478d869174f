"""What is lost comes back from raw objects: every row, and none twice."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from lakerunner.commands.fsck import RepairRequest, repair, run_repair
from lakerunner.index.commit import Commit
from lakerunner.model.organization import Organization
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceState
from lakerunner.model.time import ALL_TIME, HOUR_NS
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.part_segments import RuleBook
from lakerunner.services.repair import mend as mending
from servers.lake import LAKERUNNER, clean_environment
from suites.checked import ORG, START, START_NS, checked_lake, logs_of, points_of, spans_of
from suites.repaired import RawLake
from suites.rules import rule

TABLES = ("logs", "metrics", "spans")
ALL = '{service_name=~".+"}'


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawLake]:
    monkeypatch.setattr("lakerunner.services.fsck._OUTBOX_SECONDS", 0.0)
    with checked_lake(embedded_postgres_url, tmp_path) as made:
        yield RawLake(made, tmp_path)


def test_a_whole_lake_has_nothing_to_repair(lake: RawLake) -> None:
    lake.ingest("logs", logs_of("a", "b"))
    assert lake.repair() == (0, ["nothing to repair"])


def test_fresh_segments_of_all_signals_come_back(lake: RawLake) -> None:
    made = [
        *lake.ingest("logs", logs_of("a", "b"), logs_of("c")),
        *lake.ingest("metrics", points_of(1, 2, 3.5), points_of(4, name="other")),
        *lake.ingest("traces", spans_of("a", "b", x="1"), spans_of("c", y="2")),
    ]
    before = lake.answers(*TABLES)
    lake.lose(*made)
    assert lake.repair() == (
        0,
        [
            "traces 2025-10-09 08:00 default/edge: file is missing; restored 3 of 3 rows from 2 raw objects",
            "metrics 2025-10-09 08:00 default/edge: file is missing; restored 4 of 4 rows from 2 raw objects",
            "logs 2025-10-09 08:00 default/edge: file is missing; restored 3 of 3 rows from 2 raw objects",
            "3 segments repaired, 10 rows restored",
        ],
    )
    assert lake.answers(*TABLES) == before
    assert lake.errors() == []
    assert lake.repair() == (0, ["nothing to repair"])


def flip(lake: RawLake, segment: Segment, column: str, group: int = 0) -> None:
    """Change a bit in the last page of a column."""
    path = lake.lake.path(segment.path)
    chunks = pq.read_metadata(path).row_group(group)
    chunk = next(
        chunks.column(n) for n in range(chunks.num_columns) if chunks.column(n).path_in_schema.split(".")[0] == column
    )
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("signal", "datas", "column"),
    [
        ("logs", [logs_of("a", "b"), logs_of("c"), logs_of("d")], "timestamp"),
        ("metrics", [points_of(1, 2), points_of(3.5, name="other"), points_of(1, name="third")], "timestamp"),
        ("traces", [spans_of("a", "b", x="1"), spans_of("c", y="2"), spans_of("d", z="3")], "timestamp"),
    ],
)
@pytest.mark.parametrize("merged", [False, True])
def test_a_damaged_page(lake: RawLake, signal: str, datas: list[bytes], column: str, merged: bool) -> None:
    """Beside segments that hold other rows of the hour."""
    first = lake.ingest(signal, datas[0])
    second = lake.ingest(signal, datas[1])
    (damaged,) = lake.merge([*first, *second]) if merged else first
    lake.ingest(signal, datas[2])
    table = "spans" if signal == "traces" else signal
    before = lake.answers(table)
    flip(lake, damaged, column)
    rows = f"{damaged.rows} of {damaged.rows} rows from {2 if merged else 1} raw object{'s' if merged else ''}"
    assert lake.repair() == (
        0,
        [
            f"{signal} 2025-10-09 08:00 default/edge: file is damaged; restored {rows}",
            f"1 segment repaired, {damaged.rows} rows restored",
        ],
    )
    assert lake.answers(table) == before
    assert lake.errors() == []
    (restored,) = (one for one in lake.live(signal) if one.rows == damaged.rows and one.level == damaged.level)
    assert (restored.id != damaged.id, restored.ingested) == (True, damaged.ingested)


def test_what_a_client_delivered_twice_comes_back_as_often(lake: RawLake) -> None:
    """In one segment, in two of one box, in two boxes, the other copy being lost, live or merged."""
    same, more = logs_of("same", "rows"), logs_of("more")
    one = lake.ingest("logs", same, same, more)
    first, second = lake.ingest("logs", same, same, tasks=2)
    later = lake.ingest("logs", same)
    last = lake.ingest("logs", same)
    assert [one[0].rows, first.rows, second.rows, later[0].rows] == [5, 2, 2, 2]
    lake.merge([*lake.ingest("logs", logs_of("x")), *lake.ingest("logs", same)])
    before = lake.answers("logs")
    assert len(before[0]) == 16
    for lost in (one, (first,), (second,), later, (*one, *later), last):
        live = {segment.ingested: segment for segment in lake.live("logs")}
        lake.lose(*(live[lake.lake.index.segments.get(ORG.id, [gone.id])[0].ingested] for gone in lost))
        code, lines = lake.repair()
        assert (code, lines[-1]) == (
            0,
            f"{len(lost)} segment{'s' if len(lost) > 1 else ''} repaired, {sum(g.rows for g in lost)} rows restored",
        )
        assert lake.answers("logs") == before
    assert lake.errors() == []


def test_a_merge_that_dropped_a_copy_gets_each_row_once(lake: RawLake) -> None:
    first = lake.ingest("traces", spans_of("a", "b"))
    second = lake.ingest("traces", spans_of("a", "b", "c"))
    (merged,) = lake.merge([*first, *second])
    assert merged.rows == 3
    lake.ingest("traces", spans_of("b"))
    lake.merge([*lake.ingest("traces", spans_of("a")), *lake.ingest("traces", spans_of("other", time_ns=START_NS + 9))])
    before = lake.answers("spans")
    lake.lose(merged)
    code, lines = lake.repair()
    assert (code, lines[-1]) == (0, "1 segment repaired, 3 rows restored")
    assert lake.answers("spans") == before
    assert lake.errors() == []


def test_parts_of_a_merge_that_was_cut(lake: RawLake, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(LOGS, row_group_rows=100)
    monkeypatch.setattr("lakerunner.pipeline.compact.spec_of", lambda *_: small)
    messages = [f"message {number}" for number in range(150)]
    parts = [lake.ingest("logs", logs_of(*messages, time_ns=START_NS + 1000 * n))[0] for n in range(2)]
    cut = lake.merge(parts, max_bytes=1)
    assert len(cut) > 1
    before = lake.answers("logs")
    lake.lose(cut[0])
    assert lake.repair()[0] == 0
    assert lake.answers("logs") == before
    there = lake.live("logs")
    lake.lose(*there)
    assert lake.repair()[1][-1] == f"{len(there)} segments repaired, 300 rows restored"
    assert lake.answers("logs") == before
    assert lake.errors() == []


def test_merged_and_fresh_segments_of_one_hour_are_all_lost(lake: RawLake) -> None:
    """What counts among points of one time stays what counts: each segment gets its own rows."""
    made = [lake.ingest("metrics", points_of(*range(n, n + 4)), points_of(n, name=f"m{n}"))[0] for n in range(6)]
    lake.roll_up(0)
    merged = [*lake.merge(made[:2]), *lake.merge(made[2:4])]
    lake.merge(merged)
    before = lake.answers("metrics")
    order = {one.ingested: one.rows for one in lake.live("metrics")}
    lake.lose(*lake.live("metrics"))
    assert lake.repair()[0] == 0
    assert lake.answers("metrics") == before
    assert {one.ingested: one.rows for one in lake.live("metrics")} == order
    assert all(one.rolled for one in lake.live("metrics"))
    assert lake.errors() == []


def test_an_object_that_was_read_in_part(lake: RawLake) -> None:
    lines = [f'{{"timestamp": "2025-10-09T08:00:0{n}Z", "message": "m{n}"}}' for n in range(5)]
    lines.insert(2, "{broken")
    (lost,) = lake.ingest("logs", "\n".join(lines).encode(), ending="jsonl")
    assert lake.states() == [SourceState.PARTIAL]
    before = lake.answers("logs")
    lake.lose(lost)
    assert lake.repair()[1][-1] == "1 segment repaired, 5 rows restored"
    assert lake.answers("logs") == before
    assert lake.errors() == []


def test_more_raw_objects_than_one_merge_takes(lake: RawLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.pipeline.restore.AT_ONCE", 2)
    datas = [points_of(n, name="load", time=START) for n in range(7)]
    (lost,) = lake.ingest("metrics", *datas, datas[0])
    before = lake.answers("metrics")
    order = pq.read_table(lake.lake.path(lost.path)).column("int_value").to_pylist()
    lake.lose(lost)
    assert lake.repair()[1][-1] == "1 segment repaired, 8 rows restored"
    assert lake.answers("metrics") == before
    (made,) = lake.live("metrics")
    assert pq.read_table(lake.lake.path(made.path)).column("int_value").to_pylist() == order
    assert lake.errors() == []


def test_a_raw_object_that_is_gone(lake: RawLake) -> None:
    """The rows of the others come back, and what is lost for good is reported."""
    (lost,) = lake.ingest("logs", logs_of("a", "b"), logs_of("c"), logs_of("d"))
    lake.lose(lost)
    _, changed, gone = lake.raw_keys()
    lake.lake.path(gone).unlink()
    lake.lake.store.put(changed, logs_of("another"))
    code, lines = lake.repair()
    assert code == 1
    assert lines == [
        "logs 2025-10-09 08:00 default/edge: file is missing; restored 2 of 4 rows from 1 raw object; 2 rows lost: "
        f"raw object {gone}: it is gone: deleted, or past raw_retention; "
        f"raw object {changed}: the object has changed since it was announced",
        "1 segment repaired, 2 rows restored, 1 not whole",
    ]
    assert [json.loads(row)["message"] for row in lake.answers("logs")[0]] == ["a", "b"]


def test_nothing_is_changed_where_nothing_is_left(lake: RawLake) -> None:
    (lost,) = lake.ingest("logs", logs_of("a", "b"))
    lake.lose(lost)
    (gone,) = lake.raw_keys()
    lake.lake.path(gone).unlink()
    code, lines = lake.repair()
    assert (code, lines[-1]) == (1, "0 segments repaired, 0 rows restored, 1 not whole")
    assert lines[0] == (
        "logs 2025-10-09 08:00 default/edge: file is missing; not repaired: 0 of 2 rows found; 2 rows lost: "
        f"raw object {gone}: it is gone: deleted, or past raw_retention"
    )
    assert [one.id for one in lake.live("logs")] == [lost.id]


def covered_lake(lake: RawLake, *names: str) -> RuleBook:
    """Rules over all lines, stored in the index."""
    return RuleBook(tuple(lake.lake.index.metric_rules.put(ORG.id, rule(name, selector=ALL)) for name in names))


def covering(lake: RawLake) -> list[tuple[int, ...]]:
    return [one.rule_set for one in lake.live("logs")]


def test_rows_that_are_all_restored_are_covered_as_before(lake: RawLake) -> None:
    book = covered_lake(lake, "a", "b")
    ids = tuple(version.id for version in book.versions)
    (lost,) = lake.ingest("logs", logs_of("a", "b"), logs_of("c"), book=book)
    lake.ingest("logs", logs_of("d"), book=book)
    lake.lose(lost)
    assert lake.repair()[0] == 0
    assert covering(lake) == [ids, ids]
    assert [one.id for one in lake.lake.index.metric_rules.current(ORG.id)] == list(ids)
    (side,) = [one for one in lake.live("logs") if one.rows == 1]
    lake.lake.path(side.side_path("text.bin")).unlink()
    assert lake.repair()[0] == 0
    assert covering(lake) == [ids, ids]


@pytest.mark.parametrize("dry_run", [True, False])
def test_where_rows_stay_lost_new_versions_of_their_rules_begin(lake: RawLake, dry_run: bool) -> None:
    book = covered_lake(lake, "a", "b")
    old, other = book.versions
    (lost,) = lake.ingest("logs", logs_of("a", "b"), logs_of("c"), book=RuleBook((old,)))
    lake.ingest("logs", logs_of("d"), book=book)
    lake.lose(lost)
    lake.lake.path(lake.raw_keys()[1]).unlink()
    _, lines = lake.repair(dry_run=dry_run)
    current = lake.lake.index.metric_rules.current(ORG.id)
    if dry_run:
        assert "; would begin new versions of the rules that covered them; 1 row lost: " in lines[0]
        assert current == [old, other]
        return
    assert "restored 2 of 3 rows from 1 raw object; new versions of the rules that covered them: a; " in lines[0]
    assert [(one.rule, one.version) for one in current] == [(old.rule, 2), (other.rule, 1)]
    assert covering(lake) == [(), (old.id, other.id)]


def test_lost_segments_of_different_rules_begin_them_anew(lake: RawLake) -> None:
    """Their rows may have changed places: one merged segment and one fresh one of the same hour."""
    book = covered_lake(lake, "a")
    first = lake.ingest("logs", logs_of("a", "b"), book=book)
    lake.lose(*first, *lake.ingest("logs", logs_of("c")))
    assert lake.repair()[0] == 0
    (renewed,) = lake.lake.index.metric_rules.current(ORG.id)
    assert (renewed.rule, renewed.version) == (book.versions[0].rule, 2)
    assert covering(lake) == [(), ()]


def test_parts_of_a_rule_are_not_made_again(lake: RawLake) -> None:
    book = covered_lake(lake, "a")
    lake.ingest("logs", logs_of("a", "b"), book=book)
    (made,) = lake.lake.index.segments.pick(ORG.id, "metrics", ALL_TIME).segments
    lake.lose(made)
    code, lines = lake.repair()
    assert code == 1
    assert lines[0].endswith("not repaired: a rule made it: drop the rule and add it again")


def test_the_sound_part_of_a_damaged_file_is_kept(lake: RawLake) -> None:
    (damaged,) = lake.ingest("logs", logs_of(*(f"message {n}" for n in range(45_000))))
    groups = pq.read_metadata(lake.lake.path(damaged.path))
    assert groups.num_row_groups > 1
    left = damaged.rows - groups.row_group(1).num_rows
    flip(lake, damaged, "message", group=1)
    (gone,) = lake.raw_keys()
    lake.lake.path(gone).unlink()
    code, lines = lake.repair()
    assert code == 1
    assert f"restored {left:,} of 45,000 rows from the sound part of the file; " in lines[0]
    assert len(lake.answers("logs")[0]) == left
    assert lake.errors() == []


@pytest.mark.parametrize("name", ["text.bin", "streams.parquet", "series.parquet", "traces.parquet"])
@pytest.mark.parametrize("missing", [False, True])
def test_files_beside_a_segment(lake: RawLake, name: str, missing: bool) -> None:
    of_logs = dict.fromkeys(("text.bin", "streams.parquet"), ("logs", "logs"))
    signal, table = {**of_logs, "series.parquet": ("metrics", "metrics")}.get(name, ("traces", "spans"))
    data = {"logs": logs_of("a", "a"), "metrics": points_of(1, 2), "traces": spans_of("a", "b")}[signal]
    (lost,) = lake.ingest(signal, data, data)
    before = lake.answers(table)
    path = lake.lake.path(lost.side_path(name))
    if missing:
        path.unlink()
    else:
        path.write_bytes(bytes(reversed(path.read_bytes())))
    code, lines = lake.repair()
    what = f"{signal} 2025-10-09 08:00 default/edge: {name} is {'missing' if missing else 'damaged'}; "
    did = (
        "restored 4 of 4 rows from 2 raw objects" if signal == "metrics" else "made it again from the segment's 4 rows"
    )
    assert (code, lines[0]) == (0, what + did)
    assert lake.answers(table) == before
    assert lake.errors() == []


def rolled_lake(lake: RawLake) -> None:
    for part in range(3):
        lake.ingest("metrics", points_of(*(part * 40.0 + n for n in range(40)), time=START + part * 40))
    lake.roll_up(0)
    lake.ingest("metrics", points_of(7.25, 8, time=START + 15.5))  # late: windows are made again
    for tier in (0, 10_000, 60_000):
        lake.roll_up(tier)


def windows(lake: RawLake, frequency_ms: int) -> dict[tuple[object, ...], tuple[object, ...]]:
    """What queries read: of a window in several segments, that of the last one."""
    found: dict[tuple[object, ...], tuple[object, ...]] = {}
    for one in lake.live("metrics", frequency_ms):
        for row in pq.read_table(lake.lake.path(one.path)).to_pylist():
            key = row["metric_name"], row["series"], row["timestamp"]
            found[key] = row["chq_rollup_count"], row["chq_rollup_sum"]
    return found


@pytest.mark.parametrize(
    "damage",
    [
        lambda lake: lake.lose(*lake.live("metrics", 10_000)),
        lambda lake: lake.lose(*lake.merge(lake.live("metrics", 10_000))),
        lambda lake: lake.lose(lake.live("metrics", 60_000)[0]),
        lambda lake: lake.lose(*(one for tier in (0, 10_000, 60_000, 300_000) for one in lake.live("metrics", tier))),
        lambda lake: [lake.lake.path(one.side_path("series.parquet")).unlink() for one in lake.live("metrics", 10_000)],
        lambda lake: [
            lake.lake.path(one.side_path("cardinality.parquet")).unlink() for one in lake.live("metrics", 60_000)
        ],
    ],
    ids=["tier", "merged tier", "second tier", "all tiers", "series", "sketches"],
)
def test_rollups_are_made_again(lake: RawLake, damage: Callable[[RawLake], None]) -> None:
    rolled_lake(lake)
    before = [windows(lake, tier) for tier in (10_000, 60_000, 300_000)]
    damage(lake)
    code, lines = lake.repair()
    assert (code, " not " in lines[-1]) == (0, False)
    for tier in (10_000, 60_000):  # what was made again is rolled up again
        if any(not one.rolled for one in lake.live("metrics", tier)):
            lake.roll_up(tier)
    assert [windows(lake, tier) for tier in (10_000, 60_000, 300_000)] == before
    assert lake.errors() == []


def test_rollups_whose_points_have_expired_stay_lost(lake: RawLake) -> None:
    rolled_lake(lake)
    (lost, *_) = lake.live("metrics", 10_000)
    points = lake.live("metrics")
    end_ns = max(one.time.end_ns for one in points)
    cutoff = Cutoff("metrics", 0, end_ns, end_ns, end_ns, end_ns)
    lake.lake.index.sweep.expire(ORG.id, cutoff, [one.id for one in points], START_NS)
    lake.lose(lost)
    code, lines = lake.repair()
    assert code == 1
    assert "metrics 10s 2025-10-09 08:00 default/edge: file is missing; not repaired: the raw rows that" in lines[0]
    assert lost.id in {one.id for one in lake.live("metrics", 10_000)}


def test_another_organization_is_not_touched(lake: RawLake) -> None:
    other = Organization(UUID(int=5), "acme")
    lake.lake.index.organizations.create(other)
    (mine,) = lake.ingest("logs", logs_of("a"))
    (theirs,) = lake.ingest("logs", logs_of("a"), organization=other.id)
    lake.lose(mine, theirs)
    assert lake.repair(organization="default")[1][-1] == "1 segment repaired, 1 row restored"
    assert [one.id for one in lake.live("logs", organization=other.id)] == [theirs.id]
    assert not lake.lake.path(theirs.path).exists()
    assert lake.repair()[1] == [
        "logs 2025-10-09 08:00 acme/edge: file is missing; restored 1 of 1 row from 1 raw object",
        "1 segment repaired, 1 row restored",
    ]


def test_a_dry_run_changes_nothing(lake: RawLake) -> None:
    (lost,) = lake.ingest("logs", logs_of("a"), logs_of("b"))
    lake.lose(lost)
    before = sorted(path for path in lake.lake.store.root.rglob("*"))
    assert lake.repair(dry_run=True) == (
        0,
        [
            "logs 2025-10-09 08:00 default/edge: file is missing; would restore 2 of 2 rows from 2 raw objects",
            "1 segment would be repaired, 2 rows would be restored",
        ],
    )
    assert sorted(path for path in lake.lake.store.root.rglob("*")) == before
    assert [one.id for one in lake.live("logs")] == [lost.id]


def test_json(lake: RawLake) -> None:
    (lost,) = lake.ingest("logs", logs_of("a"), logs_of("b"))
    lake.lose(lost)
    code, lines = lake.repair(json=True)
    document = json.loads("\n".join(lines))
    assert (code, document) == (
        0,
        {
            "repaired": 1,
            "rows_restored": 2,
            "not_whole": 0,
            "dry_run": False,
            "segments": [
                {
                    "organization": "default",
                    "collector": "edge",
                    "signal": "logs",
                    "frequency_ms": 0,
                    "start_ns": lost.time.start_ns,
                    "end_ns": lost.time.end_ns,
                    "segments": [str(lost.id)],
                    "what": "file is missing",
                    "findings": [
                        "a side file of a live segment is missing",
                        "a side file of a live segment is missing",
                        "the file of a live segment with 2 rows is missing",
                    ],
                    "did": "restored 2 of 2 rows from 2 raw objects",
                    "rows": 2,
                    "restored": 2,
                    "raw_objects": 2,
                    "reason": "",
                    "repaired": True,
                    "whole": True,
                }
            ],
        },
    )


def command(lake: RawLake, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {"DATABASE_URL": lake.lake.settings.database_url, "LAKERUNNER_STORE": lake.lake.settings.store_url}
    return subprocess.run(
        [*LAKERUNNER, "repair", "--home", str(lake.directory), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=clean_environment(environment | settings),
        check=False,
    )


@pytest.mark.parametrize(
    ("failpoint", "left"), [("after-merge", 2), ("before-swap", 2), ("before-swap:2", 1), ("after-swap", 1)]
)
def test_killed_at_any_moment_it_is_run_again(lake: RawLake, failpoint: str, left: int) -> None:
    made = [lake.ingest("logs", logs_of(f"a{n}"), logs_of(f"b{n}", time_ns=START_NS + 5))[0] for n in range(2)]
    before = lake.answers("logs")
    lake.lose(*made)
    ended = command(lake, LAKERUNNER_FAILPOINT=failpoint)
    assert ended.returncode == -9
    assert lake.repair()[1][-1] == f"{left} segment{'s' if left > 1 else ''} repaired, {2 * left} rows restored"
    assert lake.answers("logs") == before
    assert lake.errors() == []


@pytest.mark.parametrize(("failpoint", "left"), [("before-roll", 1), ("after-roll", 0)])
def test_killed_while_it_makes_windows_it_is_run_again(lake: RawLake, failpoint: str, left: int) -> None:
    lake.ingest("metrics", points_of(*range(30), time=START + 1))
    lost = lake.roll_up(0)
    before = windows(lake, 10_000)
    lake.lose(*lost)
    assert command(lake, LAKERUNNER_FAILPOINT=failpoint).returncode == -9
    assert len(lake.repair()[1]) == left + 1
    assert windows(lake, 10_000) == before
    assert lake.errors() == []


def test_the_command_ends_with_what_it_found(lake: RawLake) -> None:
    lake.ingest("logs", logs_of("a"))
    whole = command(lake)
    assert (whole.returncode, whole.stdout, whole.stderr) == (0, "nothing to repair\n", "")
    out, errors = io.StringIO(), io.StringIO()
    assert run_repair(lake.lake.settings, RepairRequest("nobody"), out, errors) == 2
    assert (out.getvalue(), errors.getvalue()) == (
        "",
        "error: organization 'nobody' not found; known organizations: default\n",
    )


def test_a_store_or_an_index_that_is_away(lake: RawLake) -> None:
    lake.ingest("logs", logs_of("a"))
    settings, root = lake.lake.settings, lake.lake.store.root
    out, errors = io.StringIO(), io.StringIO()
    assert run_repair(replace(settings, database_url=settings.database_url + "x"), RepairRequest(), out, errors) == 3
    assert errors.getvalue().startswith("error: not all could be repaired: cannot use PostgreSQL at 127.0.0.1:")
    root.rename(root.with_name("elsewhere"))
    errors = io.StringIO()
    assert run_repair(settings, RepairRequest(), out, errors) == 3
    assert errors.getvalue() == (
        "error: not all could be repaired: the local store cannot be opened: No such file or directory\n"
    )
    assert (out.getvalue(), root.exists()) == ("", False)


def test_one_repair_at_a_time(lake: RawLake) -> None:
    out, errors = io.StringIO(), io.StringIO()
    with lake.lake.index.inspect.repairing("a test") as alone:
        assert alone
        assert run_repair(lake.lake.settings, RepairRequest(), out, errors) == 3
    assert errors.getvalue() == (
        "error: not all could be repaired: another repair of this lake is running: wait until it ends\n"
    )


def test_what_is_replaced_meanwhile_is_left_alone(lake: RawLake, monkeypatch: pytest.MonkeyPatch) -> None:
    (lost,) = lake.ingest("logs", logs_of("a"))
    (other,) = lake.lake.make("logs", logs_of("a"))
    lake.lose(lost)

    def replaced_meanwhile(name: str) -> None:
        if name == "before-swap":
            lake.lake.index.commit(Commit((replace(other, level=1),), (), (), (lost.id,)))

    monkeypatch.setattr(mending, "reach", replaced_meanwhile)
    assert lake.repair() == (
        0,
        [
            "logs 2025-10-09 08:00 default/edge: file is missing; replaced or expired meanwhile",
            "0 segments repaired, 0 rows restored",
        ],
    )
    assert [one.id for one in lake.live("logs")] == [other.id]


def test_a_file_that_is_not_what_the_index_says(lake: RawLake) -> None:
    """Its rows are ingested again if all are found; else it stays, as it can be read."""
    for rows, repaired in ((2, True), (3, False)):
        (one,) = lake.ingest("logs", logs_of("a", "b"))
        path = lake.lake.path(one.path)
        pq.write_table(pq.read_table(path), path)  # without the declared order
        size = path.stat().st_size
        lake.lake.sql("UPDATE lrdb.segments SET bytes = %s, rows = %s WHERE id = %s", size, rows, one.id)
        code, lines = lake.repair()
        did = (
            "restored 2 of 2 rows from 1 raw object" if repaired else "not repaired: 2 of 3 rows found; 1 row lost: no"
        )
        assert lines[0].startswith(f"logs 2025-10-09 08:00 default/edge: file and index differ; {did}")
        assert (code, one.id in {live.id for live in lake.live("logs")}) == (int(not repaired), not repaired)


def test_rows_of_several_hours_come_back_to_their_segments(lake: RawLake) -> None:
    later = START_NS + HOUR_NS
    made = lake.ingest("logs", logs_of("a", "b"), logs_of("c", time_ns=later), logs_of("d", "e", time_ns=later + 5))
    assert len(made) == 2
    lake.lose(made[1])
    assert lake.repair() == (
        0,
        [
            "logs 2025-10-09 09:00 default/edge: file is missing; restored 3 of 3 rows from 2 raw objects",
            "1 segment repaired, 3 rows restored",
        ],
    )
    assert lake.errors() == []


def test_an_object_that_gives_other_rows_now_is_not_used(lake: RawLake) -> None:
    (lost,) = lake.ingest("logs", logs_of("a"))
    lake.lake.sql("UPDATE lrdb.source_objects SET rows = 7")
    lake.lose(lost)
    code, lines = lake.repair()
    assert code == 1
    assert "it gave 7 rows when it was ingested and gives 1 now" in lines[0]


def test_help_names_the_exit_codes() -> None:
    assert repair.help is not None
    assert "Exit codes: 0 all is whole" in repair.help


def test_a_lake_in_a_bucket(lake: RawLake) -> None:
    """Where no object is a file of this machine."""
    settings = replace(lake.lake.settings, store="memory://repaired")
    bucket = shared_store(StoreAddress(settings.store_url))
    lake.lake.settings, lake.lake.store = settings, bucket  # type: ignore[assignment]
    made = [
        *lake.ingest("logs", logs_of("a", "b"), logs_of("c")),
        *lake.merge([*lake.ingest("metrics", points_of(1, 2)), *lake.ingest("metrics", points_of(3, name="other"))]),
        *lake.ingest("traces", spans_of("a", x="1"), spans_of("b", y="2")),
    ]
    lost, merged, damaged = made
    before = lake.answers(*TABLES)
    bucket.delete([lost.path, merged.path, merged.side_path("series.parquet")])
    data = bytearray(bucket.get(damaged.path, max_bytes=1 << 20))
    data[len(data) // 4] ^= 1
    bucket.put(damaged.path, bytes(data))
    assert lake.repair()[1][-1] == "3 segments repaired, 8 rows restored"
    lake.engine = None
    assert lake.answers(*TABLES) == before
    assert lake.errors() == []
