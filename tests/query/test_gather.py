"""Every row once: from one worker or three, from those that are lost, from a store that is away, from bad segments."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import Absent, Corrupt, LakerunnerError, Lost, TooLarge, Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account, Missing
from lakerunner.query.contract.failures import EngineError
from lakerunner.query.gather import GatherOptions, UnitSize, rank_workers
from lakerunner.query.inflow import QueuedInflow, Spool, SpooledInflow
from lakerunner.query.row_gather import RowGather
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.slots import Slots
from lakerunner.query.unit import Unit
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import Worker
from query.sample_lake import FULL_SHRED, HOUR, NOW, OWN, START, Lake, Record

ENDLESS = "SELECT count(*) AS message FROM range(1000000) a(x), range(1000000) b(y) WHERE x + y = -1"
LONG = "SELECT a.x, b.y FROM range(1000000) a(x), range(1000000) b(y)"
HERE = GatherOptions()
PARTIAL = GatherOptions(partial=True)


@dataclass
class Trouble:
    """A real worker, and what happens to it: after so many rows of a unit it raises."""

    worker: QueryWorker
    name: str
    error: Exception | None = None
    after: int = 0
    asked: list[Unit] = field(default_factory=list)

    def run(self, unit: Unit) -> Answer:
        self.asked.append(unit)
        if self.error and not self.after:
            raise self.error
        return _Broken(self.worker.run(unit), self) if self.error else self.worker.run(unit)


class _Broken:
    def __init__(self, answer: Answer, trouble: Trouble) -> None:
        self._answer = answer
        self._trouble = trouble

    @property
    def schema(self) -> pa.Schema:
        return self._answer.schema

    @property
    def account(self) -> Account:
        return self._answer.account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._trouble.after
        for batch in self._answer:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                break
        assert self._trouble.error
        raise self._trouble.error

    def close(self) -> None:
        self._answer.close()


@dataclass
class Crew:
    """Workers that are known."""

    workers: Sequence[Worker]

    def here(self) -> Sequence[Worker]:
        return self.workers


Hire = Callable[..., Trouble]


def wide_lake(directory: Path) -> Lake:
    """Twelve segments of two layouts, 600 rows each."""
    lake = Lake(directory)
    for n in range(12):
        shred = FULL_SHRED if n % 3 else None
        lake.add([Record(START + n * HOUR + i, message=f"{n}/{i}") for i in range(600)], shred=shred)
    return lake


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return wide_lake(tmp_path_factory.mktemp("wide"))


@pytest.fixture
def hire(tmp_path: Path, wide: Lake) -> Hire:
    def hired(name: str, error: Exception | None = None, after: int = 0, **limits: int) -> Trouble:
        cache = SegmentCache(wide.store, tmp_path / f"cache-{name}", 1 << 30)
        slots = Slots(limits.pop("slots", 4))
        return Trouble(QueryWorker(cache, wide.sandboxes(**limits), slots), name, error, after)

    return hired


def leaf(sql: str = "SELECT message FROM scan_1", *, steady: bool = True) -> Leaf:
    (scan,) = compile_sql("SELECT message FROM logs", OWN, NOW).scans
    return Leaf(scan, SqlRows(sql, steady=steady))


def gather(lake: Lake, workers: Sequence[Worker], how: GatherOptions = HERE, of: Leaf | None = None) -> RowGather:
    return RowGather(OWN, of or leaf(), lake.all, Crew(workers), how)


def messages(gathered: RowGather) -> list[Any]:
    return gathered.reader().read_all()["message"].to_pylist()


def everything(lake: Lake) -> list[str]:
    return sorted(record.message for record, _ in lake.records)


def own_worker(segment: Segment, workers: Sequence[Trouble]) -> Trouble:
    best = rank_workers(segment.id, [worker.name for worker in workers])[0]
    return next(worker for worker in workers if worker.name == best)


def raised(gathered: RowGather) -> LakerunnerError:
    """Read as DuckDB reads it, the reader gives no more than a text: the error itself is the gather's."""
    with pytest.raises((LakerunnerError, pa.ArrowException)):
        gathered.reader().read_all()
    error = gathered.failure
    assert isinstance(error, LakerunnerError)
    return error


def test_three_workers_share_the_segments_and_give_what_one_gives(wide: Lake, hire: Hire) -> None:
    one = gather(wide, [hire("one")])
    assert sorted(messages(one)) == everything(wide)
    assert (one.account.workers, one.account.read) == ({"one": 1}, 12)
    crew = [hire(name) for name in "abc"]
    three = gather(wide, crew)
    assert sorted(messages(three)) == everything(wide)
    assert (three.account.workers, three.account.read) == ({"a": 1, "b": 1, "c": 1}, 12)
    for worker in crew:
        for segment in worker.asked[0].segments:
            assert own_worker(segment, crew) is worker


@pytest.mark.parametrize("sql", ["SELECT message FROM scan_1", "SELECT message FROM scan_1 WHERE message LIKE '%7%'"])
def test_the_order_of_a_steady_leaf_is_the_same_with_any_number_of_threads(sql: str, wide: Lake, hire: Hire) -> None:
    answers = [messages(gather(wide, [hire(f"t{n}", threads=n)], of=leaf(sql))) for n in (1, 2, 4, 8)]
    assert len(answers[0]) > 1000
    assert answers == [answers[0]] * 4


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("after", [0, 1, 600, 601, 2047, 2048, 2049, 10_000])
def test_a_worker_lost_in_the_middle_is_taken_over_and_no_row_comes_twice(
    after: int, steady: bool, wide: Lake, hire: Hire
) -> None:
    crew = [hire(name) for name in "abc"]
    gone = own_worker(wide.all[0], crew)
    gone.error, gone.after = Lost("query worker is gone"), after
    gathered = gather(wide, crew, of=leaf(steady=steady))
    assert sorted(messages(gathered)) == everything(wide)
    assert gathered.account.read == 12
    assert gone.name not in gathered.account.workers
    assert gathered.account.complete


def test_a_lost_worker_is_not_asked_again(wide: Lake, hire: Hire) -> None:
    crew = [hire("a", Lost("query worker a is gone")), hire("b")]
    gathered = gather(wide, crew, replace(HERE, size=UnitSize(segments=1)))
    assert sorted(messages(gathered)) == everything(wide)
    assert len(crew[0].asked) <= 2  # those that were with it when it went
    assert gathered.account.workers == {"b": 12}


def test_when_all_are_lost_the_error_names_them(wide: Lake, hire: Hire) -> None:
    crew = [hire(name, Lost(f"query worker {name} broke off its answer")) for name in "abc"]
    error = raised(gather(wide, crew, PARTIAL))
    assert type(error) is Unavailable
    assert str(error).startswith("no query worker is reachable: ")
    assert all(f"query worker {name} broke off" in str(error) for name in "abc")


def test_without_any_worker_the_setting_is_named(wide: Lake) -> None:
    with pytest.raises(Unavailable, match=r"no query workers available \(setting `workers`\)"):
        gather(wide, []).reader()


class TestStoreAway:
    def test_one_other_worker_is_tried(self, wide: Lake, hire: Hire) -> None:
        crew = [hire("a", Unavailable("the store is away")), hire("b")]
        gathered = gather(wide, crew)
        assert sorted(messages(gathered)) == everything(wide)
        assert len(crew[0].asked) == 1

    def test_but_no_third(self, wide: Lake, hire: Hire) -> None:
        crew = [hire(name, Unavailable("the store is away")) for name in "abcd"]
        gathered = gather(wide, crew, replace(PARTIAL, size=UnitSize(segments=12)))
        units = len(assignments(wide, crew))
        with pytest.raises(Unavailable, match="the store is away"):
            gathered.reader()  # the columns cannot be had either
        assert gathered.account.missing
        assert sum(worker.asked[-1].segments != () for worker in crew) <= 2 * units
        assert sum(unit.segments != () for worker in crew for unit in worker.asked) == 2 * units

    def test_a_partial_answer_names_what_is_missing(self, wide: Lake, hire: Hire) -> None:
        worker = hire("a")
        away = wide.all[3:5]
        worker.run = run_but(worker.worker, away)  # type: ignore[method-assign, assignment]
        size = UnitSize(segments=1)
        partial = gather(wide, [worker], replace(PARTIAL, size=size))
        lost = {f"{n}/{i}" for n in (3, 4) for i in range(600)}
        assert sorted(messages(partial)) == [message for message in everything(wide) if message not in lost]
        assert sorted(partial.account.missing, key=lambda missing: missing.time) == [
            Missing(1, segment.time, "the store is away") for segment in away
        ]
        assert (partial.account.read, partial.account.done) == (10, 12)
        assert str(raised(gather(wide, [worker], replace(HERE, size=size)))) == "the store is away"


def assignments(lake: Lake, crew: Sequence[Trouble]) -> Counter[str]:
    return Counter({own_worker(segment, crew).name: 1 for segment in lake.all})


def run_but(worker: QueryWorker, away: Sequence[Segment]) -> Callable[[Unit], Answer]:
    ids = {segment.id for segment in away}

    def run(unit: Unit) -> Answer:
        if any(segment.id in ids for segment in unit.segments):
            raise Unavailable("the store is away")
        return worker.run(unit)

    return run


class TestBadSegments:
    @pytest.fixture
    def wide(self, tmp_path: Path) -> Lake:
        return wide_lake(tmp_path / "wide")

    @pytest.mark.parametrize("number", [0, 5, 11])
    def test_the_bad_one_is_found_and_the_others_are_read(self, number: int, wide: Lake, hire: Hire) -> None:
        segment = wide.all[number]
        wide.store.put(segment.path, b"PAR1 nothing")
        crew = [hire("a"), hire("b")]
        partial = gather(wide, crew, PARTIAL)
        found = messages(partial)
        assert sorted(found) == [m for m in everything(wide) if not m.startswith(f"{number}/")]
        (missing,) = partial.account.missing
        assert (missing.segments, missing.time) == (1, segment.time)
        assert "has 12 bytes" in missing.reason
        assert partial.account.read == 11
        assert all(segment not in unit.segments for unit in own_other(crew, segment).asked)
        assert isinstance(raised(gather(wide, crew)), Corrupt)

    def test_one_that_is_gone(self, wide: Lake, hire: Hire) -> None:
        wide.store.delete([wide.all[2].path])
        partial = gather(wide, [hire("a")], PARTIAL)
        assert len(messages(partial)) == 11 * 600
        assert [missing.segments for missing in partial.account.missing] == [1]
        assert isinstance(raised(gather(wide, [hire("b")])), Absent)

    def test_all_bad_still_gives_the_columns(self, wide: Lake, hire: Hire) -> None:
        for segment in wide.all:
            wide.store.put(segment.path, b"x")
        partial = gather(wide, [hire("a")], PARTIAL)
        assert partial.reader().read_all().to_pydict() == {"message": []}
        assert sum(missing.segments for missing in partial.account.missing) == 12

    def test_a_unit_that_breaks_after_rows_were_handed_on_is_named(self, wide: Lake, hire: Hire) -> None:
        partial = gather(wide, [hire("a", Corrupt("a page cannot be read"), after=700)], PARTIAL)
        assert len(messages(partial)) == 700
        (missing,) = partial.account.missing
        assert (missing.segments, missing.reason) == (12, "broke off after 700 rows: a page cannot be read")


def own_other(crew: Sequence[Trouble], segment: Segment) -> Trouble:
    return next(worker for worker in crew if worker is not own_worker(segment, crew))


def test_what_the_user_got_wrong_is_raised_at_once(wide: Lake, hire: Hire) -> None:
    crew = [hire("a"), hire("b")]
    error = raised(gather(wide, crew, PARTIAL, leaf("SELECT message::INTEGER AS message FROM scan_1")))
    assert type(error) is EngineError
    assert "Could not convert" in str(error)
    assert max(len(worker.asked) for worker in crew) == 1


def test_without_segments_there_are_columns_and_no_rows(wide: Lake, hire: Hire) -> None:
    nothing = RowGather(OWN, leaf(), [], Crew([hire("a", Lost("gone")), hire("b")]), HERE)
    table = nothing.reader().read_all()
    assert (table.num_rows, table.schema.names) == (0, ["message"])


@pytest.mark.parametrize("sql", [ENDLESS, LONG])
def test_close_stops_all_soon(sql: str, wide: Lake, hire: Hire) -> None:
    worker = hire("a", max_rows=10**12)
    gathered = gather(wide, [worker], replace(HERE, size=UnitSize(segments=4)), leaf(sql))
    seen: list[BaseException] = []

    def read() -> None:
        try:
            gathered.reader().read_all()
        except (UserError, pa.ArrowException) as error:
            seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.5)
    began = time.monotonic()
    gathered.close()
    reader.join(60)
    assert time.monotonic() - began < 30  # it would take hours
    assert len(seen) == 1
    assert "the query was cancelled" in str(seen[0])
    wait_until(lambda: worker.worker.slots.free == worker.worker.slots.at_once)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_close_after_the_work_ended_is_no_short_answer(wide: Lake, hire: Hire) -> None:
    gathered = gather(wide, [hire("a")])
    reader = gathered.reader()
    wait_until(lambda: gathered.account.read == 12)
    reader.read_next_batch()
    gathered.close()
    gathered.close()
    with pytest.raises((UserError, pa.ArrowException), match="the query was cancelled"):
        reader.read_all()


def test_rows_that_nobody_reads_hold_the_worker_back(wide: Lake, hire: Hire) -> None:
    given = [0]
    worker = hire("a", max_rows=10**12)

    class Counted(_Broken):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            for batch in self._answer:
                given[0] += 1
                yield batch

    worker.run = lambda unit: Counted(worker.worker.run(unit), worker)  # type: ignore[method-assign]
    gathered = gather(wide, [worker], of=leaf(LONG))
    gathered.start()
    wait_until(lambda: given[0] == 257)
    time.sleep(0.2)
    assert given[0] == 257  # 256 wait, and one in the hand
    gathered.close()


def test_gathers_read_one_after_the_other_do_not_wait_for_each_other(tmp_path: Path, wide: Lake, hire: Hire) -> None:
    """One slot, and the second is read first: were the first held back, its worker would never be free."""
    worker = hire("a", slots=1, max_rows=10**7)
    how = replace(HERE, ahead=True, spool=Spool(tmp_path))
    much = leaf("SELECT a.x AS message FROM range(2000000) a(x)")
    first, second = gather(wide, [worker], how, much), gather(wide, [worker], how)
    for one in (first, second):
        one.start()
    assert sorted(messages(second)) == everything(wide)
    assert sum(messages(first)) == 2_000_000 * 1_999_999 // 2


def test_the_spool_has_a_limit(tmp_path: Path, wide: Lake, hire: Hire) -> None:
    batch = pa.record_batch({"x": pa.array(range(1000))})
    SpooledInflow(Spool(tmp_path, batch.nbytes)).put(batch)
    with pytest.raises(TooLarge, match="query_spool_bytes 7999"):
        SpooledInflow(Spool(tmp_path, batch.nbytes - 1)).put(batch)
    past = raised(gather(wide, [hire("a")], replace(HERE, ahead=True, spool=Spool(tmp_path, 100))))
    assert isinstance(past, TooLarge)
    assert "more than query_spool_bytes 100 of one table's rows: narrow its time range" in str(past)


def test_spooled_rows_are_all_there_beyond_memory_and_leave_no_file(tmp_path: Path) -> None:
    spooled = SpooledInflow(Spool(tmp_path))
    batch = pa.record_batch({"x": pa.array(range(100_000))})
    for n in range(30):
        spooled.put(batch.slice(n))
    spooled.end()
    assert sum(one.num_rows for one in spooled) == 30 * 100_000 - sum(range(30))
    assert list(tmp_path.iterdir()) == []


def test_a_batch_larger_than_the_queue_passes() -> None:
    queued = QueuedInflow()
    big = pa.record_batch({"x": pa.array(np.arange(5_000_000))})
    queued.put(big)
    queued.end()
    assert [batch.num_rows for batch in queued] == [5_000_000]


def test_random_records_of_all_layouts_come_through(lake: Lake, tmp_path: Path) -> None:
    own = [segment for segment in lake.all if segment.organization == OWN]
    crew = [
        Trouble(QueryWorker(SegmentCache(lake.store, tmp_path / name, 1 << 30), lake.sandboxes()), name)
        for name in ("x", "y", "z")
    ]
    plan = compile_sql("SELECT * FROM logs", OWN, NOW)
    rows = RowGather(OWN, plan.leaves[0], own, Crew(crew), replace(HERE, size=UnitSize(segments=1))).reader().read_all()
    assert rows.num_rows == len(lake.records)
