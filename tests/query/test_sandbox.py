"""Sandboxes: one organization each, used again for it, confined, and ended at their limits while others go on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.errors import Crashed, LakerunnerError, TooLarge, TooLong, Unavailable, UserError
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import Limits
from lakerunner.query.sandbox.instance import limit, lock, open_instance
from lakerunner.query.sandbox.pool import RecentLoad, Sandboxes
from lakerunner.query.sandbox.process import Sandbox
from lakerunner.query.sandbox.running import Running, Work
from lakerunner.query.segment_cache.lease import LeasedFile

A, B = UUID(int=0xA), UUID(int=0xB)
ONE, TWO = UUID(int=1), UUID(int=2)
SORT = "SELECT x, md5(x::VARCHAR) AS m FROM range(1200000) t(x) ORDER BY m"
LONG = "SELECT a.x, b.y FROM range(1000000) a(x), range(1000000) b(y)"
ENDLESS = "SELECT count(*) FROM range(1000000) a(x), range(1000000) b(y) WHERE x + y = -1"
X, Y, Z, W = (f"'{letter * 1000}'" for letter in "xyzw")
GROWTH = {
    "concat": f"WITH a AS (SELECT {X} || range AS x FROM range(2048)), "
    + ", ".join(f"{n} AS (SELECT x || x || x || x AS x FROM {m})" for m, n in zip("abcdefgh", "bcdefghi", strict=True))
    + " SELECT max(length(x)) FROM i",
    "list_reduce": f"SELECT length(list_reduce([{X} || i FOR i IN range(40)], lambda a, b: a || a))",
    "replace": f"SELECT length(replace(replace(replace({X}, 'x', {Y}), 'y', {Z}), 'z', {W}))",
}


class Nothing:
    """The source of relations without rows."""

    account = Account()
    failure = None

    def close(self) -> None:
        """There is nothing to stop."""


def pool(directory: Path, memory: str = "100MB", seconds: float = 60.0, **settings: Any) -> Sandboxes:
    limits = Limits(memory, seconds, 10_000_000)
    return Sandboxes(limits, threads=1, spill_directory=directory / "spill", **settings)


@pytest.fixture
def sandboxes(tmp_path: Path) -> Iterator[Sandboxes]:
    made = pool(tmp_path)
    yield made
    made.close()


def running(sandboxes: Sandboxes, sql: str, organization: UUID = A, **work: Any) -> Running:
    def open_(held: ExitStack) -> tuple[Sandbox, Work]:
        return sandboxes.lend(held, organization), Work(sql, **work)

    return Running(sandboxes, open_, sandboxes.limits, Nothing())


def rows(sandboxes: Sandboxes, sql: str, organization: UUID = A, **work: Any) -> list[Any]:
    return [tuple(row.values()) for batch in running(sandboxes, sql, organization, **work) for row in batch.to_pylist()]


def used(sandboxes: Sandboxes, organization: UUID) -> int:
    """The process that would do this organization's next work."""
    with ExitStack() as held:
        return sandboxes.lend(held, organization).pid


def alive(pid: int) -> bool:
    """Until its last thread has ended: the first may be gone before the others."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what a pool does beside queries."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def written(directory: Path, name: str, value: int) -> LeasedFile:
    pq.write_table(pa.table({"x": [value]}), directory / name)
    return LeasedFile(directory / name)


class TestLending:
    def test_work_of_one_organization_shares_a_process_and_two_at_once_do_not(self, sandboxes: Sandboxes) -> None:
        first = used(sandboxes, A)
        assert used(sandboxes, A) == first
        with ExitStack() as held:
            assert sandboxes.lend(held, A).pid == first
            assert sandboxes.lend(held, A).pid != first

    def test_no_process_ever_works_for_two_organizations(self, sandboxes: Sandboxes) -> None:
        seen: dict[int, UUID] = {}
        for organization in (UUID(int=n % 7) for n in range(40)):
            pid = used(sandboxes, organization)
            assert seen.setdefault(pid, organization) == organization

    def test_few_are_kept_and_the_others_end(self, sandboxes: Sandboxes) -> None:
        with ExitStack() as held:
            pids = [sandboxes.lend(held, A).pid for _ in range(7)]
        eventually(lambda: sum(map(alive, pids)) == 4)
        sandboxes.close()
        assert [pid for pid in pids if alive(pid)] == []

    def test_a_pool_that_is_forgotten_ends_its_processes(self, tmp_path: Path) -> None:
        forgotten = pool(tmp_path)
        pid = used(forgotten, A)
        assert alive(pid)
        del forgotten
        eventually(lambda: not alive(pid) and not list((tmp_path / "spill").iterdir()))

    def test_a_closed_pool_prepares_nothing_any_more(self, tmp_path: Path) -> None:
        for _ in range(3):
            sandboxes = pool(tmp_path)
            used(sandboxes, A)  # giving it back prepares a spare one, in a thread
            sandboxes.close()
            assert list((tmp_path / "spill").iterdir()) == []

    def test_one_that_spilled_is_not_used_again(self, tmp_path: Path) -> None:
        sandboxes = pool(tmp_path, "60MB")
        before = used(sandboxes, A)
        answer = running(sandboxes, SORT)
        next(iter(answer))
        answer.close()
        assert used(sandboxes, A) != before
        eventually(lambda: not any(names for _, _, names in os.walk(tmp_path / "spill")))

    def test_one_that_was_killed_is_replaced(self, sandboxes: Sandboxes) -> None:
        pid = used(sandboxes, A)
        os.kill(pid, 9)
        eventually(lambda: not alive(pid))
        assert rows(sandboxes, "SELECT 1") == [(1,)]
        answer = running(sandboxes, LONG)
        batches = iter(answer)
        next(batches)
        os.kill(answer._sandbox.pid if answer._sandbox else 0, 9)
        with pytest.raises(Crashed, match=r"ended \(signal 9\)"):
            list(batches)
        assert rows(sandboxes, "SELECT 1") == [(1,)]

    def test_a_dead_zygote_is_replaced(self, sandboxes: Sandboxes) -> None:
        pid = used(sandboxes, A)
        eventually(lambda: len(sandboxes._spare) == 1)  # it is made beside queries, and has to be among those that end
        zygote = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        forked = [int(child) for child in Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()]
        assert pid in forked
        os.kill(zygote, 9)
        eventually(lambda: not any(map(alive, forked)))  # the kernel ends them with their zygote
        assert rows(sandboxes, "SELECT 1") == [(1,)]


class TestFiles:
    def test_the_next_work_sees_neither_files_nor_views_of_the_one_before(
        self, sandboxes: Sandboxes, tmp_path: Path
    ) -> None:
        with ExitStack() as held:
            first = sandboxes.lend(held, A).link({ONE: written(tmp_path, "a", 1)})[ONE].path
            assert first.exists()
        assert not first.exists()
        assert (tmp_path / "a").exists()

        def open_(held: ExitStack) -> tuple[Sandbox, Work]:
            sandbox = sandboxes.lend(held, A)
            path = sandbox.link({TWO: written(tmp_path, "b", 2)})[TWO].path
            assert path.parent == first.parent
            return sandbox, Work("SELECT x FROM v", views={"v": f"SELECT x FROM read_parquet('{path}')"})

        answer = Running(sandboxes, open_, sandboxes.limits, Nothing())
        assert [batch.to_pydict() for batch in answer] == [{"x": [2]}]
        with pytest.raises(UserError, match="table v is not available"):
            rows(sandboxes, "SELECT x FROM v")
        with pytest.raises(LakerunnerError):
            rows(sandboxes, "SELECT x FROM w", views={"w": f"SELECT x FROM read_parquet('{first}')"})

    def test_a_file_that_cannot_be_linked_is_an_error(self, sandboxes: Sandboxes, tmp_path: Path) -> None:
        with ExitStack() as held, pytest.raises(Unavailable, match="need one file system, with hard links"):
            sandboxes.lend(held, A).link({ONE: LeasedFile(tmp_path)})
        with ExitStack() as held, pytest.raises(Unavailable, match="was removed"):
            sandboxes.lend(held, A).link({ONE: LeasedFile(tmp_path / "absent")})
        assert rows(sandboxes, "SELECT 1") == [(1,)]

    def test_the_instance_alone_reaches_no_other_file_and_no_setting(self, tmp_path: Path) -> None:
        """Without the check of the SQL and without confinement, the locked settings still hold."""
        root = open_instance()
        limit(root, tmp_path, {"memory": "100MB", "milliseconds": 60_000, "spill": "1GB"})
        lock(root, 1)
        (tmp_path / "files").mkdir()
        inside = written(tmp_path / "files", "a.parquet", 1).path
        outside = written(tmp_path, "b.parquet", 2).path
        assert root.execute(f"SELECT x FROM read_parquet('{inside}')").fetchall() == [(1,)]
        for function in ("read_parquet", "read_text", "read_blob", "parquet_metadata", "glob"):
            with pytest.raises(duckdb.PermissionException, match="disabled by configuration"):
                root.execute(f"SELECT * FROM {function}('{outside}')")
        for sql in (f"COPY (SELECT 1) TO '{tmp_path}/out.csv'", f"ATTACH '{tmp_path}/other.db'"):
            with pytest.raises(duckdb.PermissionException):
                root.execute(sql)
        for sql in ("SET memory_limit = '1TB'", "SET allowed_directories = ['/']", "SET TimeZone = 'Asia/Tokyo'"):
            with pytest.raises(duckdb.Error, match="locked"):
                root.execute(sql)
        assert root.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


PROBE = """
import os, socket, sys, threading
from pathlib import Path
from lakerunner.query.sandbox.confine import confine
directory = Path(sys.argv[1])
print("missing", confine(directory, 200 << 20))

def attempt(name, action):
    try:
        action()
        print(name, "allowed")
    except (OSError, MemoryError) as error:
        print(name, "refused")

attempt("own file", lambda: (directory / "files/a").read_text())
attempt("write own file", lambda: (directory / "files/a").write_text("x"))
attempt("spill", lambda: (directory / "spill/s").write_text("x"))
attempt("other file", lambda: (directory / "secret").read_text())
attempt("environment", lambda: open("/proc/self/environ").read())
attempt("socket", lambda: socket.socket())
attempt("socket pair", lambda: socket.socketpair())
attempt("fork", os.fork)
attempt("program", lambda: os.execv(sys.executable, [sys.executable]))
attempt("signal", lambda: os.kill(os.getppid(), 0))
attempt("memory", lambda: bytearray(300 << 20))
attempt("less memory", lambda: bytearray(100 << 20))
thread = threading.Thread(target=attempt, args=("other file in a thread", lambda: (directory / "secret").read_text()))
thread.start()
thread.join()
"""


class TestConfinement:
    def test_a_confined_process_has_its_own_files_and_memory_and_nothing_else(self, tmp_path: Path) -> None:
        for name in ("files", "spill"):
            (tmp_path / name).mkdir()
        (tmp_path / "files/a").write_text("a")
        (tmp_path / "secret").write_text("s")
        done = subprocess.run([sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True, check=True)
        first, *lines = done.stdout.splitlines()
        if first != "missing []":
            pytest.skip(f"this kernel lacks protections of sandboxes: {first}")
        assert lines == [
            "own file allowed",
            "write own file refused",
            "spill allowed",
            "other file refused",
            "environment refused",
            "socket refused",
            "socket pair refused",
            "fork refused",
            "program refused",
            "signal refused",
            "memory refused",
            "less memory allowed",
            "other file in a thread refused",
        ]

    def test_the_environment_holds_nothing_of_the_server(
        self, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LAKERUNNER_WORKER_KEY", "canary-value")
        environment = Path(f"/proc/{used(sandboxes, A)}/environ").read_bytes().split(b"\0")
        names = {entry.partition(b"=")[0].decode() for entry in environment if entry}
        allowed = {"LD_LIBRARY_PATH", "PYTHONPATH", "OPENBLAS_NUM_THREADS", "ARROW_DEFAULT_MEMORY_POOL"}
        assert names <= allowed | {"MALLOC_ARENA_MAX", "LC_CTYPE"}

    def test_descriptors_of_the_server_are_not_open_there(self, sandboxes: Sandboxes, tmp_path: Path) -> None:
        with (tmp_path / "open").open("w"), ExitStack() as held:
            pid = sandboxes.lend(held, A).pid
            rows(sandboxes, "SELECT 1")
            open_there = {os.readlink(path).partition(":")[0] for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert not {path for path in open_there if path.startswith(str(tmp_path))}


class TestLimits:
    @pytest.mark.parametrize("sql", GROWTH.values(), ids=GROWTH.keys())
    def test_growth_ends_at_the_limit_and_others_go_on(self, sql: str, sandboxes: Sandboxes) -> None:
        with ExitStack() as held:
            sandboxes.lend(held, B)
            with pytest.raises(TooLarge, match="query_memory 100MB") as raised:
                rows(sandboxes, sql)
            assert raised.value.http_status == 413
        assert rows(sandboxes, "SELECT 1") == [(1,)]

    def test_all_together_are_bounded_and_the_largest_ends(self, tmp_path: Path) -> None:
        sandboxes = pool(tmp_path, "1GB", total_bytes=250 << 20)
        small = running(sandboxes, LONG, B)
        batches = iter(small)
        next(batches)
        with pytest.raises(TooLarge, match="sandbox_memory"):
            rows(sandboxes, GROWTH["concat"])
        assert next(batches).num_rows > 0
        small.close()

    def test_time_is_bounded_though_the_engine_does_not_stop_by_itself(self, tmp_path: Path) -> None:
        sandboxes = pool(tmp_path, seconds=0.5)
        with pytest.raises(TooLong, match="limit query_seconds"):
            rows(sandboxes, ENDLESS)

    def test_a_stopped_process_is_killed(self, sandboxes: Sandboxes) -> None:
        """One that answers nothing any more, not even that it stops."""
        answer = running(sandboxes, LONG)
        batches = iter(answer)
        next(batches)
        pid = answer._sandbox.pid if answer._sandbox else 0
        os.kill(pid, 19)
        answer.close()
        eventually(lambda: not alive(pid))
        assert rows(sandboxes, "SELECT 1") == [(1,)]

    def test_one_that_stops_in_time_is_used_again(self, sandboxes: Sandboxes) -> None:
        pid = used(sandboxes, A)
        answer = running(sandboxes, LONG)
        next(iter(answer))
        answer.close()
        assert used(sandboxes, A) == pid

    def test_large_rows_come_in_pieces(self, tmp_path: Path) -> None:
        sandboxes = pool(tmp_path, "1GB")
        batches = list(running(sandboxes, f"SELECT replace({X}, 'x', {Y}) || x AS x FROM range(100) t(x)"))
        assert sum(batch.num_rows for batch in batches) == 100
        assert max(batch.nbytes for batch in batches) < 17 << 20

    def test_a_row_has_a_limit(self, tmp_path: Path) -> None:
        sandboxes = pool(tmp_path, "1GB")
        wide = f"replace({X}, 'x', {Y})"
        # concat copies each text once; a chain of || would copy the first ones again at every step
        assert len(rows(sandboxes, f"SELECT concat({', '.join([wide] * 60)})")) == 1
        with pytest.raises(TooLarge, match="a row has 66 MiB, more than the 64 allowed"):
            rows(sandboxes, f"SELECT concat({', '.join([wide] * 70)})")

    def test_a_message_is_cut(self, tmp_path: Path) -> None:
        with pytest.raises(UserError) as raised:
            rows(pool(tmp_path, "500MB"), f"SELECT CAST(replace({X}, 'x', {Y}) AS INTEGER)")
        assert len(str(raised.value)) < 10_000


class TestStreams:
    def test_streams_are_read_once_or_kept(self, sandboxes: Sandboxes) -> None:
        for sql, expected in (
            ("SELECT sum(x) AS s FROM t", [(4950,)]),
            ("SELECT (SELECT max(x) FROM t) + (SELECT count(*) FROM t) AS s", [(199,)]),
        ):
            table = pa.table({"x": range(100)})
            assert rows(sandboxes, sql, streams={"t": table.to_reader(10)}) == expected

    def test_a_stream_that_breaks_off_never_ends_in_a_whole_answer(self, sandboxes: Sandboxes) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"x": [1]})
            raise Unavailable("the store is away")

        stream = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())
        with pytest.raises(LakerunnerError):
            rows(sandboxes, "SELECT sum(x) AS s FROM t", streams={"t": stream})
        assert rows(sandboxes, "SELECT 1") == [(1,)]

    def test_a_limit_leaves_the_rest_of_a_stream_unread(self, sandboxes: Sandboxes) -> None:
        table = pa.table({"x": range(1_000_000)})
        assert rows(sandboxes, "SELECT x FROM t LIMIT 1", streams={"t": table.to_reader(1000)}) == [(0,)]


def test_many_threads_share_a_pool(sandboxes: Sandboxes) -> None:
    found: list[tuple[int, Any]] = []

    def ask(number: int) -> None:
        for n in range(5):
            found.append((number + n, rows(sandboxes, f"SELECT {number + n} AS x", UUID(int=number % 3))))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 30
    assert all(answer == [(number,)] for number, answer in found)


class TestLoad:
    def test_of_several_the_greedy_one_is_heavy_and_one_alone_never(self) -> None:
        load = RecentLoad()
        load.add(A, 10.0, 100.0)
        assert not load.is_heavy(A, 100.0)
        load.add(B, 0.1, 100.0)
        assert load.is_heavy(A, 100.0)
        assert not load.is_heavy(B, 100.0)

    def test_what_is_older_counts_less_and_is_forgotten(self) -> None:
        load = RecentLoad()
        load.add(A, 1.5, 100.0)
        load.add(B, 1.5, 104.0)
        assert not load.is_heavy(A, 104.0)  # 1.5 / 2 ** (4 / 5) is 0.86
        assert load.is_heavy(B, 104.0)
        load.add(B, 1.5, 200.0)
        assert not load.is_heavy(B, 200.0)  # A is forgotten: it is alone

    def test_a_sandbox_of_a_greedy_organization_yields_from_the_start(self, sandboxes: Sandboxes) -> None:
        sandboxes._load.add(A, 100.0, time.monotonic())
        sandboxes._load.add(B, 0.1, time.monotonic())
        with ExitStack() as held:
            greedy, modest = sandboxes.lend(held, A), sandboxes.lend(held, B)
            assert rows(sandboxes, "SELECT 1", B) == [(1,)]
            assert os.getpriority(os.PRIO_PROCESS, greedy.pid) == 15
            own = os.getpriority(os.PRIO_PROCESS, 0)  # the tests themselves may run at a lower priority
            assert os.getpriority(os.PRIO_PROCESS, modest.pid) == own + 5

    def test_one_that_computes_long_yields_and_one_that_waits_does_not(self, sandboxes: Sandboxes) -> None:
        with ExitStack() as held:
            waits = sandboxes.lend(held, A)  # for longer than the other one, and without work

            def ask() -> None:
                with pytest.raises(LakerunnerError):
                    rows(sandboxes, ENDLESS, B)

            reader = threading.Thread(target=ask)
            reader.start()
            eventually(lambda: any(os.getpriority(os.PRIO_PROCESS, one.pid) == 15 for one in (*sandboxes._busy,)))
            assert waits.sound
            assert os.getpriority(os.PRIO_PROCESS, waits.pid) < 15
            for one in (*sandboxes._busy,):
                one.kill()
            reader.join(60)
