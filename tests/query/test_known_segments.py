"""While PostgreSQL is away, picks that are known are answered with, marked; the rest is Unavailable."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.condition import Condition, Equals
from lakerunner.model.errors import Unavailable
from lakerunner.model.organization import Organization
from lakerunner.model.segment import SegmentPick
from lakerunner.model.time import ALL_TIME, MAX_NS, TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.query.known_segments import KnownSegments, Pick
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import OneWorker
from query.sample_lake import HOUR, NOW, OTHER, OWN, START, Lake, Record
from servers.lake import wait_until
from suites.queries import sql_queries

SHOP, PAY = (Equals("service_name", (name,)) for name in ("shop", "pay"))


class Away(Lake):
    """A lake whose index can be away."""

    away = False

    def pick(self, organization: UUID, signal: str, time: TimeRange, **asked: Any) -> SegmentPick:
        if self.away:
            raise Unavailable("PostgreSQL does not answer")
        return super().pick(organization, signal, time, **asked)


@pytest.fixture
def lake(tmp_path: Path) -> Away:
    lake = Away(tmp_path)
    for hour in range(4):
        lake.add([Record(START + hour * HOUR + n, message=f"{hour}.{n}") for n in range(3)])
    lake.add([Record(START, message="theirs")], organization=OTHER)
    return lake


def scan(start: int = 0, end: int = 4, *conditions: Condition) -> Scan:
    return Scan("scan_1", "logs", TimeRange(START + start * HOUR, START + end * HOUR), ("message",), (), (), conditions)


def pick(known: KnownSegments, asked: Scan, organization: UUID = OWN, now_ns: int = NOW) -> Pick:
    return known.pick(organization, asked, now_ns)


def ids(picked: Pick) -> list[UUID]:
    return [segment.id for segment in picked.segments]


def test_a_known_pick_answers_for_what_it_covers(lake: Away) -> None:
    known = KnownSegments(lake)
    fresh = pick(known, scan())
    assert fresh.account.degraded == ""
    lake.away = True
    whole = pick(known, scan(), now_ns=NOW + HOUR)
    assert ids(whole) == ids(fresh)
    assert whole.account.considered == 4
    assert whole.account.degraded == "the index is unreachable: segments as of 2024-01-02 00:00:00 UTC"
    assert ids(pick(known, scan(1, 2))) == ids(fresh)[1:2]


@pytest.mark.parametrize(
    "asked",
    [
        scan(0, 5),
        scan(-1, 4),
        scan(-1, 5),
        Scan("scan_1", "traces", scan().time, ("name",)),
        Scan("s", "logs", ALL_TIME, ()),
    ],
)
def test_what_no_pick_covers_is_unavailable(asked: Scan, lake: Away) -> None:
    known = KnownSegments(lake)
    pick(known, scan())
    lake.away = True
    with pytest.raises(Unavailable, match="does not answer"):
        pick(known, asked)


def test_two_picks_are_never_put_together(lake: Away) -> None:
    known = KnownSegments(lake)
    pick(known, scan(0, 2))
    pick(known, scan(2, 4))
    lake.away = True
    with pytest.raises(Unavailable):
        pick(known, scan(1, 3))


def test_a_pick_covers_questions_with_more_conditions_and_no_others(lake: Away) -> None:
    known = KnownSegments(lake)
    pick(known, scan(0, 4, SHOP))
    lake.away = True
    assert len(pick(known, scan(0, 4, SHOP, PAY)).segments) == 4
    with pytest.raises(Unavailable):
        pick(known, scan())
    with pytest.raises(Unavailable):
        pick(known, scan(0, 4, PAY))


def test_no_organization_is_told_of_anothers_segments(lake: Away) -> None:
    known = KnownSegments(lake)
    pick(known, scan())
    lake.away = True
    with pytest.raises(Unavailable):
        pick(known, scan(), OTHER)
    lake.away = False
    pick(known, scan(), OTHER)
    lake.away = True
    assert {segment.organization for segment in pick(known, scan(), OTHER).segments} == {OTHER}
    assert {segment.organization for segment in pick(known, scan()).segments} == {OWN}


def test_the_newest_pick_counts_and_the_index_whenever_it_answers(lake: Away) -> None:
    known = KnownSegments(lake)
    pick(known, scan(0, 4), now_ns=NOW)
    lake.add([Record(START + HOUR, message="late")])
    pick(known, scan(1, 2), now_ns=NOW + HOUR)
    lake.away = True
    assert len(pick(known, scan(1, 2)).segments) == 2
    assert len(pick(known, scan(0, 4)).segments) == 4
    lake.away = False
    assert len(pick(known, scan(0, 4)).segments) == 5


def test_no_more_segments_are_held_than_allowed(lake: Away) -> None:
    known = KnownSegments(lake, 2 * 50 + 5)  # two picks, and five segments
    pick(known, scan(0, 2))
    pick(known, scan(1, 4))
    lake.away = True
    pick(known, scan(0, 2))
    lake.away = False
    pick(known, scan(2, 3, SHOP))  # a third pick: the one used longest ago goes
    lake.away = True
    assert len(pick(known, scan(0, 2)).segments) == 2
    with pytest.raises(Unavailable):
        pick(known, scan(1, 4))
    tiny = KnownSegments(lake, 50 + 3)
    lake.away = False
    pick(tiny, scan(0, 4))  # four segments: more than it may hold
    lake.away = True
    with pytest.raises(Unavailable):
        pick(tiny, scan(0, 4))


def test_a_postgresql_that_stops_and_comes_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add([Record(START + n, message=f"m{n}") for n in range(10)])
    lake.add([Record(START, message="theirs")], organization=OTHER)
    server = EmbeddedPostgres(tmp_path / "postgres")
    url = server.start()
    index = Index.open(url, connections=2)
    try:
        index.migrate()
        for id_, name in ((OWN, "own"), (OTHER, "other")):
            index.organizations.create(Organization(id_, name))
            index.commit(Commit(tuple(one for one in lake.all if one.organization == id_), (), ()))
        engine = sql_queries(index, OneWorker(lake.worker()), lake.sandboxes())
        assert ask(engine, OWN) == (10, "")
        index.pool.timeout = 1.0
        server.stop()
        count, degraded = ask(engine, OWN)
        assert (count, degraded) == (10, "the index is unreachable: segments as of 2024-01-02 00:00:00 UTC")
        with pytest.raises(Unavailable, match="PostgreSQL"):
            ask(engine, OTHER)
        server.start()
        index.pool.timeout = 30.0

        def is_found_again() -> bool:
            with suppress(Unavailable):
                return ask(engine, OTHER) == (1, "")
            return False

        wait_until(is_found_again, "the server is looked for again", 60)
        assert ask(engine, OWN) == (10, "")
    finally:
        index.close()
        server.stop()


def ask(engine: SqlQueries, organization: UUID) -> tuple[int, str]:
    sql = "SELECT message FROM logs WHERE timestamp >= '2024-01-01'"
    answer = engine.sql(organization, Question(sql, NOW))
    return sum(batch.num_rows for batch in answer), answer.account.degraded


def test_a_range_without_an_end_is_covered_later_too(lake: Away) -> None:
    known = KnownSegments(lake)
    since = Scan("scan_1", "logs", TimeRange(START, MAX_NS), ("message",))
    pick(known, since)
    lake.away = True
    later = Scan("scan_1", "logs", TimeRange(START + HOUR, MAX_NS), ("message",))
    assert len(pick(known, later).segments) == 3
