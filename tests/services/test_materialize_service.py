"""History of rules on a real index and real segments: order, commits, what fails, and that merges follow. Only Spark is
missing: tasks run in this process."""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.tending import Retry
from lakerunner.model.errors import Crashed
from lakerunner.model.failpoint import arm
from lakerunner.model.metric_rules.metric_rule import MetricRule
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment
from lakerunner.model.time import ALL_TIME, HOUR_NS
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.materialize import Materialized, MaterializeLimits, MaterializeWork, materialize_work
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.services.materialize import LeftOut, Materialize, MaterializeParts, earliest_start
from lakerunner.services.tending import Overdue, ReminderLog, remind_merges
from lakerunner.services.work import WorkParts
from servers.postgres import empty_index
from suites.covered_lines import BY_SERVICE, BYTES, Files, Line, random_lines, request
from suites.ingested import ORGANIZATION, START
from suites.rule_values import Added

LIMITS = MaterializeLimits(memory=64 << 20)
SECONDS = 120


class History:
    """A lake of stored log segments without rules, and the loop. `fail` are segments that kill their worker."""

    def __init__(self, index: Index, directory: Path) -> None:
        self.index = index
        self.files = Files(directory)
        self.now = 1000.0
        self.waited: list[float] = []
        self.fail: set[UUID] = set()
        self.jobs: list[list[UUID]] = []
        self.first: Any = lambda: None

    def ingest(self, name: str, lines: list[Line], book: RuleBook = NO_RULES) -> Segment:
        result = self.files.ingest(self.files.put(name, request(lines)), book=book)
        (segment,) = result.segments
        self.index.commit(Commit((segment,), (), (), parts=result.parts))
        return segment

    def add(self, rule: MetricRule, since_ns: int | None = 0) -> int:
        made = self.index.metric_rules.put(ORGANIZATION, rule)
        if since_ns is not None:
            self.index.metric_rules.set_since(ORGANIZATION, rule.name, since_ns)
        return made.id

    def loop(self, rows_per_second: float = 0.0, at_once: int = 2) -> Materialize:
        work = WorkParts(self.index.tending, lambda: None, Retry(3, 10.0), at_once)
        spark: Any = nullcontext
        parts = MaterializeParts(self.index, spark, self.files.address, LIMITS, work, rows_per_second, self.job)
        return Materialize(parts, self.waited.append, lambda: self.now)

    def job(
        self, _spark: Any, works: Sequence[MaterializeWork], address: StoreAddress, limits: MaterializeLimits
    ) -> list[Materialized]:
        self.jobs.append([work.segment.id for work in works])
        if any(work.segment.id in self.fail for work in works):
            raise Crashed("a worker died")
        self.first()
        return [materialize_work(work, address, limits) for work in works]

    def live(self, signal: str = "logs") -> dict[UUID, Segment]:
        return {one.id: one for one in self.index.segments.pick(ORGANIZATION, signal, ALL_TIME).segments}

    def parts(self) -> Added:
        return self.files.parts(*self.live("metrics").values())


@pytest.fixture
def history(embedded_postgres_url: str, tmp_path: Path) -> Iterator[History]:
    with empty_index(embedded_postgres_url, Organization(ORGANIZATION, "acme")) as index:
        yield History(index, tmp_path)


def test_history_is_what_ingest_would_have_made_newest_first(history: History) -> None:
    hours = [random_lines(random.Random(hour), last=3500) for hour in range(3)]
    shifted = [
        [(service, hour * 3600 + second, text) for service, second, text in lines] for hour, lines in enumerate(hours)
    ]
    segments = [history.ingest(f"logs_{hour}", lines) for hour, lines in enumerate(shifted)]
    ids = history.add(BY_SERVICE.rule), history.add(BYTES.rule, START + HOUR_NS)
    loop = history.loop()
    loop.step()
    assert history.jobs == [[segments[2].id, segments[1].id]]
    assert [history.live()[one.id].rule_set for one in segments] == [(), ids, ids]
    loop.step()
    assert [history.live()[one.id].rule_set for one in segments] == [ids[:1], ids, ids]
    whole = RuleBook(tuple(replace(one, id=id_) for one, id_ in zip((BY_SERVICE, BYTES), ids, strict=True)))
    at_ingest = [
        history.files.ingest(history.files.put(f"again_{hour}", request(lines)), book=book).parts
        for book, hours_of in ((whole, shifted[1:]), (replace(whole, versions=whole.versions[:1]), shifted[:1]))
        for hour, lines in enumerate(hours_of)
    ]
    assert history.parts() == history.files.parts(*(one for parts in at_ingest for one in parts))
    loop.step()
    assert len(history.jobs) == 2
    loop.step()
    assert history.waited == [0.5]  # nothing is left: it looks again later


def test_covered_segments_can_be_merged_and_are_announced(history: History) -> None:
    """Segments of one hour, of which one was covered at ingest."""
    id_ = history.add(BY_SERVICE.rule)
    covered = RuleBook((replace(BY_SERVICE, id=id_),))
    segments = [
        history.ingest("logs_0", random_lines(random.Random(0)), covered),
        *(history.ingest(f"logs_{n}", random_lines(random.Random(n))) for n in (1, 2)),
    ]
    overdue = Overdue(reminder=0.0, merge=0.0, roll=0.0, target_bytes=1 << 20, few=0)
    assert len({one.rule_set for one in history.live().values()}) == 2
    history.loop().step()
    assert {one.rule_set for one in history.live().values()} == {(id_,)}
    published: list[tuple[str, bytes]] = []
    history.index.outbox.relay(published.extend)
    assert [topic for topic, _ in published if "compact" in topic] == ["boxer.logs.compact"] * 2
    assert remind_merges(history.index.tending, overdue, ReminderLog(60.0)) == len(segments)


def test_a_damaged_segment_is_set_aside_and_others_go_on(history: History) -> None:
    good, bad = (history.ingest(f"logs_{n}", random_lines(random.Random(n))) for n in (1, 2))
    history.files.store.put(bad.path, b"\0" * bad.bytes)
    id_ = history.add(BY_SERVICE.rule)
    loop = history.loop()
    loop.step()
    assert [history.live()[one.id].rule_set for one in (good, bad)] == [(id_,), ()]
    ((aside, reason),) = history.index.tending.list_aside(ORGANIZATION)
    assert (aside.id, str(bad.id) in reason) == (bad.id, True)
    loop.step()
    assert len(history.jobs) == 1


def test_a_segment_that_kills_its_worker_waits_and_others_go_on(history: History) -> None:
    segments = [history.ingest(f"logs_{n}", random_lines(random.Random(n))) for n in range(4)]
    id_ = history.add(BY_SERVICE.rule)
    bad = segments[3]
    history.fail = {bad.id}
    loop = history.loop()
    for _ in range(3):
        loop.step()
    assert [one.rule_set for one in history.live().values() if one.id != bad.id] == [(id_,)] * 3
    assert sum(bad.id in job for job in history.jobs) == 2  # with another, then alone
    history.now += 10.0
    history.fail = set()
    loop.step()
    assert history.live()[bad.id].rule_set == (id_,)


def test_pauses_double_and_end() -> None:
    left_out, one = LeftOut(10.0), ORGANIZATION
    left_out.add(one, 0.0)
    assert (list(left_out.at(9.0)), list(left_out.at(10.0))) == ([one], [])
    left_out.add(one, 10.0)
    assert (list(left_out.at(29.0)), list(left_out.at(30.0))) == ([one], [])
    for _ in range(20):
        left_out.add(one, 0.0)
    assert list(left_out.at(3600.0)) == []
    left_out.forget(one)
    left_out.add(one, 0.0)
    assert list(left_out.at(10.0)) == []


def test_a_version_over_its_limit_is_paused_and_others_go_on(history: History) -> None:
    segment = history.ingest("logs_1", [("cart", 1, "a"), ("shop", 2, "paid 3")])
    tight, fine = history.add(replace(BY_SERVICE.rule, max_series=1)), history.add(BYTES.rule)
    loop = history.loop()
    loop.step()
    assert history.live()[segment.id].rule_set == (fine,)
    found = history.index.metric_rules.find(ORGANIZATION, BY_SERVICE.rule.name)
    assert found.id == tight
    assert found.paused.startswith("more than 1 series in one segment")
    loop.step()
    assert len(history.jobs) == 1
    history.index.metric_rules.drop(ORGANIZATION, BYTES.rule.name)
    history.index.metric_rules.put(ORGANIZATION, BY_SERVICE.rule)  # with its limit it goes on
    history.now += 10.0
    loop.step()
    assert history.live()[segment.id].rule_set == tuple(sorted((tight, fine)))


def test_only_one_version_and_it_is_over_its_limit(history: History) -> None:
    segment = history.ingest("logs_1", [("cart", 1, "a"), ("shop", 2, "paid 3")])
    history.add(replace(BY_SERVICE.rule, max_series=1))
    history.loop().step()
    assert history.live()[segment.id].rule_set == ()
    assert history.live("metrics") == {}
    assert history.index.metric_rules.find(ORGANIZATION, BY_SERVICE.rule.name).paused


def test_a_segment_that_is_merged_meanwhile_is_left_to_the_merged_one(history: History) -> None:
    one = history.ingest("logs_1", random_lines(random.Random(1)))
    id_ = history.add(BY_SERVICE.rule)
    two = history.files.ingest(
        history.files.put("logs_2", request(random_lines(random.Random(2)))), book=NO_RULES
    ).segments[0]
    history.first = lambda: (
        history.index.commit(Commit((two,), (), (), (one.id,))) if one.id in history.live() else None
    )
    loop = history.loop()
    loop.step()
    assert [(one.id, one.rule_set) for one in history.live().values()] == [(two.id, ())]
    assert history.live("metrics") == {}
    loop.step()
    assert history.live()[two.id].rule_set == (id_,)


def test_a_rate_limit_is_the_time_that_rows_may_take(history: History) -> None:
    assert earliest_start(100.0, 50, 10.0) == 105.0
    assert earliest_start(100.0, 50, 0.0) == 100.0
    for n in range(2):
        history.ingest(f"logs_{n}", random_lines(random.Random(n), count=40))
    history.add(BY_SERVICE.rule)
    loop = history.loop(rows_per_second=10.0, at_once=1)
    loop.step()
    history.now += 3.9
    loop.step()
    assert (len(history.jobs), history.waited) == (1, [pytest.approx(0.1)])
    history.now += 0.1
    loop.step()
    assert len(history.jobs) == 2


def run_loop(url: str, directory: str, failpoint: str) -> None:
    """What a process does that tends history. Armed, it dies on the way."""
    arm(failpoint)
    index = Index.open(url)
    loop = History(index, Path(directory)).loop()
    for _ in range(3):
        loop.step()
    index.close()


@pytest.mark.parametrize("failpoint", ["before-parts", "after-parts", "before-cover", "after-cover"])
def test_a_process_that_is_killed_loses_nothing(history: History, tmp_path: Path, failpoint: str) -> None:
    lines = [random_lines(random.Random(n)) for n in range(3)]
    for number, some in enumerate(lines):
        history.ingest(f"logs_{number}", some)
    id_ = history.add(BY_SERVICE.rule)
    for point, code in ((failpoint, -signal.SIGKILL), ("", 0)):
        child = multiprocessing.get_context("spawn").Process(
            target=run_loop, args=(history.index.url, str(tmp_path), point)
        )
        child.start()
        child.join(SECONDS)
        assert child.exitcode == code
        if point:
            covered = [one.rule_set for one in history.live().values()].count((id_,))
            assert covered == (failpoint == "after-cover")
    assert {one.rule_set for one in history.live().values()} == {(id_,)}
    book = RuleBook((replace(BY_SERVICE, id=id_),))
    expected = [
        history.files.ingest(history.files.put(f"again_{n}", request(some)), book=book).parts
        for n, some in enumerate(lines)
    ]
    assert history.parts() == history.files.parts(*(one for parts in expected for one in parts))
