"""What `lakerunner status` tells of a lake, as tables and as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from lakerunner.bus.backlog import Backlog
from lakerunner.bus.postgres import PostgresBus
from lakerunner.cli import cli
from lakerunner.commands.status import document, run_status
from lakerunner.commands.terminal.tables import age, fitting, size, status_view
from lakerunner.index.commit import Commit
from lakerunner.index.inspect import Level
from lakerunner.index.sources import Arrival
from lakerunner.model.errors import NotFound
from lakerunner.model.organization import Organization
from lakerunner.model.segment import segment_id
from lakerunner.model.source import SourceObject
from lakerunner.services.status import Status, Waiting, collect, write_amplification
from suites.checked import ORG, START_NS, CheckedLake, checked_lake, logs_of, points_of, spans_of

OTHER = Organization(segment_id("other"), "other")


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path) -> Iterator[CheckedLake]:
    with checked_lake(embedded_postgres_url, tmp_path) as made:
        yield made


def test_an_empty_lake(lake: CheckedLake) -> None:
    status = collect(lake.settings, lake.index, None, START_NS)
    assert status == Status(
        queues=(),
        lag=(
            Waiting("raw objects to ingest", 0, None),
            Waiting("raw objects set aside", 0, None),
            Waiting("segments to roll up, raw to 10s", 0, None),
            Waiting("segments to merge", 0, None),
        ),
        segments=(),
        sweeper=(),
        swept_bytes=(),
        written={},
    )


def test_everything_that_waits_is_told(lake: CheckedLake) -> None:
    lake.index.organizations.create(OTHER)
    sources = [SourceObject("local", f"otel-raw/default/edge/{n}", "e", 1, 1) for n in range(3)]
    topic = "objstore.ingest.logs"
    lake.index.sources.announce([Arrival(one, ORG.id, "edge", "logs", topic, b"{}") for one in sources])
    a, b = lake.add("logs", logs_of("a")), lake.add("logs", logs_of("b", "c"))
    lake.add("metrics", points_of(1, 2))
    merged = replace(lake.make("logs", logs_of("a", "b", "c"))[0], level=1)
    lake.add("traces", spans_of("a"))
    lake.add("traces", spans_of("b"))
    lake.index.commit(Commit((merged,), (sources[0],), ((sources[1], "bad"),), replaced=(a.id, b.id)))
    lake.sql("UPDATE lrdb.source_objects SET seen_at = now() - interval '90 minutes' WHERE key = %s", sources[2].key)
    lake.sql(
        "INSERT INTO lrdb.failed_work VALUES ('segments.logs.compact', '\\x01', '', %s, 5, 'damaged', 'aside',"
        " now() - interval '2 days', now())",
        ORG.id,
    )
    bus = PostgresBus(lake.index.pool, lake.index.url)
    bus.publish([("segments.logs.ingest", b"1"), ("segments.logs.ingest", b"2")])
    member = bus.subscribe(["segments.logs.ingest"], "ingest")
    member.take(1, 0)
    settings = replace(lake.settings, sweep_grace_seconds=-1.0, retention={"logs": "1h"})
    status = collect(settings, lake.index, ORG.id, START_NS + 2 * 3600 * 10**9)
    bus.close()
    assert [(one.topic, one.group, one.waiting, one.claimed) for one in status.queues] == [
        (topic, "outbox", 3, 0),
        ("segments.logs.ingest", "ingest", 1, 1),
    ]
    assert [(one.what, one.count, one.example) for one in status.lag] == [
        ("raw objects to ingest", 1, sources[2].key),
        ("raw objects set aside", 1, sources[1].key),
        ("segments to roll up, raw to 10s", 1, ""),
        ("segments to merge, traces", 2, ""),
        ("work set aside, segments.logs.compact", 1, "damaged"),
    ]
    assert [age(one.age_seconds) for one in (status.lag[0], status.lag[-1])] == ["1h 30m", "2d 0h"]
    assert [(one.signal, one.level, one.segments, one.rows) for one in status.segments] == [
        ("logs", 1, 1, 3),
        ("metrics", 0, 1, 2),
        ("traces", 0, 2, 2),
    ]
    assert [(one.what, one.count) for one in status.sweeper] == [
        ("replaced segments, due", 2),
        ("logs past retention", 1),
    ]
    assert status.swept_bytes == (a.bytes + b.bytes, merged.bytes)
    assert status.written == {"logs": 2.0, "metrics": 1.0, "traces": 1.0}
    others = collect(settings, lake.index, OTHER.id, START_NS)
    assert (others.segments, others.sweeper, others.lag[0].count) == ((), (), 0)


STATUS = Status(
    queues=(Backlog("objstore.ingest.logs", "outbox", 3), Backlog("segments.logs.ingest", "ingest", 1200, 4, 0, 75.5)),
    lag=(
        Waiting("raw objects to ingest", 1, 90061.0, "otel-raw/default/edge/x"),
        Waiting("segments to merge", 0, None),
    ),
    segments=(Level("logs", 0, 0, 2, 30, 4096, 0), Level("metrics", 10_000, 1, 1, 1_000_000, 3 << 30, 1)),
    sweeper=(Waiting("replaced segments, due", 7, None),),
    swept_bytes=(1536,),
    written={"logs": 1.0},
)

TABLES = """\
Queues                                                           \n\
┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━┓
┃ topic                ┃ group  ┃ waiting ┃ claimed ┃ oldest ┃
┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━┩
│ objstore.ingest.logs │ outbox │       3 │       0 │        │
│ segments.logs.ingest │ ingest │   1,200 │       4 │ 1m 15s │
└──────────────────────┴────────┴─────────┴─────────┴────────┘
To be done
┏━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃ what                  ┃ count ┃ oldest ┃ the oldest              ┃
┡━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ raw objects to ingest │     1 │  1d 1h │ otel-raw/default/edge/x │
│ segments to merge     │     0 │        │                         │
└───────────────────────┴───────┴────────┴─────────────────────────┘
Segments
┏━━━━━━━━━┳━━━━━━┳━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━┓
┃ signal  ┃ tier ┃ level ┃ segments ┃      rows ┃   bytes ┃ bytes each ┃
┡━━━━━━━━━╇━━━━━━╇━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━┩
│ logs    │ raw  │     0 │        2 │        30 │ 4.0 KiB │    2.0 KiB │
│ metrics │ 10s  │     1 │        1 │ 1,000,000 │ 3.0 GiB │    3.0 GiB │
│ all     │      │       │        3 │ 1,000,030 │ 3.0 GiB │    1.0 GiB │
└─────────┴──────┴───────┴──────────┴───────────┴─────────┴────────────┘
For the sweeper
┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━┓
┃ what                   ┃ segments ┃   bytes ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━┩
│ replaced segments, due │        7 │ 1.5 KiB │
└────────────────────────┴──────────┴─────────┘
written per stored byte: logs 1.00
1 segment no longer merged: `lakerunner work` says why
"""


def test_the_tables() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(status_view(STATUS))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines == [line.rstrip() for line in TABLES.splitlines()]


def test_the_document() -> None:
    said = document(STATUS)
    assert said["segments"][1]["tier"] == "10s"
    assert said["sweeper"] == [{"what": "replaced segments, due", "segments": 7, "bytes": 1536}]
    assert said["queues"][1]["age_seconds"] == 75.5
    assert said["written_per_stored_byte"] == {"logs": 1.0}


def test_without_a_terminal_it_is_shown_once_also_with_watch(lake: CheckedLake) -> None:
    for watch in (None, 5.0):
        out = io.StringIO()
        run_status(lake.settings, None, watch, False, out)
        assert out.getvalue().count("To be done") == 1
    out = io.StringIO()
    run_status(lake.settings, "default", None, True, out)
    assert json.loads(out.getvalue())["segments"] == []
    with pytest.raises(NotFound, match="organization 'x' not found; known organizations: default"):
        run_status(lake.settings, "x", None, True, io.StringIO())


def test_what_a_terminal_has_no_room_for_is_said() -> None:
    def lines(height: int) -> list[str]:
        console = Console(file=io.StringIO(), width=120, height=height)
        with console.capture() as captured:
            console.print(fitting(console, status_view(STATUS)))
        return [line.rstrip() for line in captured.get().splitlines()]

    whole = lines(200)
    assert lines(len(whole)) == whole
    assert lines(len(whole) - 1) == [
        *whole[:-2],
        "no room for 2 more lines: `lakerunner status` shows all",
    ]
    assert len(lines(10)) == 10


def test_the_command_refuses_what_makes_no_sense_and_makes_no_lake(tmp_path: Path) -> None:
    both = CliRunner().invoke(cli, ["status", "--watch", "--json"])
    assert both.exit_code == 2
    assert "--watch and --json are both given: --watch is for people, --json for programs" in both.output
    nowhere = CliRunner().invoke(cli, ["status", "--home", str(tmp_path / "none")])
    assert isinstance(nowhere.exception, NotFound)
    assert list(tmp_path.iterdir()) == []


def test_write_amplification_is_of_raw_rows() -> None:
    levels = [
        Level("logs", 0, 0, 1, 1, 100, 0),
        Level("logs", 0, 2, 1, 1, 300, 0),
        Level("metrics", 10_000, 3, 1, 1, 100, 0),
    ]
    assert write_amplification(levels) == {"logs": 2.5}


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.4, "0s"), (59, "59s"), (60, "1m 0s"), (3725, "1h 2m"), (864000, "10d 0h")]
)
def test_ages(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(("bytes_", "text"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.0 MiB"), (5 << 40, "5.0 TiB")])
def test_sizes(bytes_: int, text: str) -> None:
    assert size(bytes_) == text
