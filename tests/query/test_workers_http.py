"""Three query workers behind real HTTP servers: the answers of one, whoever of them is stopped, and when."""

from __future__ import annotations

import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from anyio import CapacityLimiter
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lakerunner.api import server as server_module
from lakerunner.api.app import build_app
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.tls import Certificate, trusting
from lakerunner.api.workers.addresses import Addresses, lookups
from lakerunner.api.workers.worker_api import RemoteWorkers, WorkerApi, worker_name
from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import Busy, LakerunnerError, Lost, Position, TooLarge, Unavailable, UserError
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf
from lakerunner.query.contract.failures import EngineError
from lakerunner.query.gather import GatherOptions, UnitSize, assign, rank_workers
from lakerunner.query.row_gather import RowGather
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.slots import Slots
from lakerunner.query.sql import SqlQueries
from lakerunner.query.unit import VERSION, Unit
from lakerunner.query.worker import QueryWorker
from query.sample_lake import HOUR, NOW, OWN, START, Lake, Record, answer_of
from query.test_query_exact import QUERIES, in_order, rows_of
from servers.lake import wait_until
from suites.certificates import throw_away
from suites.queries import sql_queries

KEY = "of the cluster"
ENDLESS = "SELECT count(*) AS message FROM range(1000000) a(x), range(1000000) b(y) WHERE x + y = -1"
MANY = "SELECT message, unnest(range(600)) AS x FROM scan_1"


@dataclass
class Served:
    worker: QueryWorker
    server: HttpServer
    url: str

    @property
    def name(self) -> str:
        return worker_name(self.url, KEY)

    def kill(self) -> None:
        """As if the process died: its connections break, whatever waits in them."""
        for connection in list(self.server._server.server_state.connections):
            connection.loop.call_soon_threadsafe(connection.transport.abort)
        self.server._server.config.timeout_graceful_shutdown = 0
        self.server.stop()


Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    servers: list[HttpServer] = []

    def served(
        lake: Lake,
        *,
        slots: Slots | None = None,
        key: str = KEY,
        certificate: Certificate | None = None,
        **limits: int,
    ) -> Served:
        cache = SegmentCache(lake.store, tmp_path_factory.mktemp("cache"), 1 << 30)
        worker = QueryWorker(cache, lake.sandboxes(**({"max_rows": 10**8} | limits)), slots)
        threads = CapacityLimiter(worker.slots.at_once + worker.slots.waiting + 2)
        app = build_app(WorkerApi(worker.run, key, threads).routes())
        server = HttpServer(app, bind("127.0.0.1", 0), print, certificate=certificate)
        server.start()
        servers.append(server)
        return Served(worker, server, server.url)

    yield served
    for server in servers:
        server._server.config.timeout_graceful_shutdown = 0
        server.stop()


def wide_lake(directory: Path) -> Lake:
    """Twelve segments of 600 rows."""
    lake = Lake(directory)
    for n in range(12):
        lake.add([Record(START + n * HOUR + i, message=f"{n}/{i}") for i in range(600)])
    return lake


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return wide_lake(tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def three(lake: Lake, serve: Serve) -> Iterator[SqlQueries]:
    with remote([serve(lake) for _ in range(3)]) as workers:
        yield sql_queries(lake, workers, lake.sandboxes())


class remote:  # noqa: N801 reads as a function
    """The clients of these, closed at the end."""

    def __init__(self, served: Sequence[Served], key: str = KEY, trust: ssl.SSLContext | None = None) -> None:
        urls = ",".join(one.url for one in served)
        self._workers = RemoteWorkers(Addresses(lookups(urls)), key, 30, trust)

    def __enter__(self) -> RemoteWorkers:
        return self._workers

    def __exit__(self, *_: object) -> None:
        self._workers.close()


def leaf(sql: str = MANY, *, steady: bool = True) -> Leaf:
    (scan,) = compile_sql("SELECT message FROM logs", OWN, NOW).scans
    return Leaf(scan, SqlRows(sql, steady=steady))


def gather(lake: Lake, workers: RemoteWorkers, of: Leaf | None = None) -> RowGather:
    return RowGather(OWN, of or leaf(), lake.all, workers, GatherOptions())


def check_each_once(table: pa.Table) -> None:
    """Every row of MANY, none twice."""
    x = table["x"]
    powers = pa.table({"message": table["message"].dictionary_encode(), "x": x, "square": pc.multiply(x, x)})
    kinds = ["count", "sum", "max"]
    wanted = [("x", kind) for kind in kinds] + [("square", "sum")]
    found = powers.group_by("message").aggregate(wanted)
    assert found.num_rows == 12 * 600
    of_each = {"x_count": 600, "x_sum": sum(range(600)), "x_max": 599, "square_sum": sum(n * n for n in range(600))}
    assert {name: found[name].unique().to_pylist() for name in of_each} == {n: [v] for n, v in of_each.items()}


def busiest(served: Sequence[Served], lake: Lake) -> Served:
    """The one with the most segments."""
    names = [one.name for one in served]
    most, _ = Counter(rank_workers(segment.id, names)[0] for segment in lake.all).most_common(1)[0]
    return served[names.index(most)]


def shares(lake: Lake, urls: Sequence[str]) -> int:
    """How many units the segments make with these workers. Which segments are whose follows from the addresses, and
    those are drawn anew in each run: now and then a worker has none."""
    return len(assign(lake.all, urls, UnitSize()))


def failure(gathered: RowGather) -> LakerunnerError:
    with pytest.raises((LakerunnerError, pa.ArrowException)):
        gathered.reader().read_all()
    assert isinstance(gathered.failure, LakerunnerError)
    return gathered.failure


@pytest.mark.parametrize("sql", QUERIES)
def test_three_answer_as_one_does(sql: str, engine: SqlQueries, three: SqlQueries) -> None:
    one, many = answer_of(engine, sql), answer_of(three, sql)
    assert many.schema == one.schema
    assert rows_of(many) == rows_of(one)
    if "ORDER BY" in sql.rpartition(")")[2]:
        assert in_order(many) == in_order(one)


@pytest.mark.parametrize("steady", [True, False])
def test_a_worker_that_is_stopped_while_it_streams_is_taken_over(steady: bool, wide: Lake, serve: Serve) -> None:
    served = [serve(wide) for _ in range(3)]
    gone = busiest(served, wide)
    with remote(served) as workers:
        gathered = gather(wide, workers, leaf(steady=steady))
        reader = gathered.reader()
        first = [reader.read_next_batch()] if steady else []
        time.sleep(0.3 if steady else 0)
        gone.kill()
        table = pa.Table.from_batches([*first, *reader])
    check_each_once(table)
    assert gathered.account.read == 12
    assert sum(gathered.account.workers.values()) == shares(wide, [one.name for one in served])
    assert gone.name not in gathered.account.workers


def test_a_worker_that_is_not_there_is_taken_over(wide: Lake, serve: Serve) -> None:
    served = [serve(wide) for _ in range(2)]
    busiest(served, wide).kill()
    with remote(served) as workers:
        table = gather(wide, workers, leaf("SELECT message FROM scan_1")).reader().read_all()
    assert sorted(table["message"].to_pylist()) == sorted(record.message for record, _ in wide.records)


def test_a_worker_told_to_stop_ends_what_it_has_begun(
    wide: Lake, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_DRAIN_SECONDS", 120)  # what it has begun takes longer on a busy machine
    only = serve(wide)
    with remote([only]) as workers:
        reader = gather(wide, workers).reader()
        first = reader.read_next_batch()
        stopping = threading.Thread(target=only.server.stop)
        stopping.start()
        time.sleep(0.3)
        check_each_once(pa.Table.from_batches([first, *reader]))
        stopping.join(60)


def test_when_none_is_left_the_error_names_each(wide: Lake, serve: Serve) -> None:
    served = [serve(wide) for _ in range(2)]
    for one in served:
        one.kill()
    with remote(served) as workers:
        error = failure(gather(wide, workers))
    assert type(error) is Unavailable
    assert str(error).startswith("no query worker is reachable: ")
    assert all(f"query worker {one.name} is unreachable" in str(error) for one in served)
    assert "127.0.0.1" not in str(error)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_closing_stops_the_work_over_there(wide: Lake, serve: Serve, scheme: str) -> None:
    only = serve(wide, certificate=throw_away().files.loaded if scheme == "https" else None)
    with remote([only], trust=throw_away().trust) as workers:
        gathered = gather(wide, workers, leaf(ENDLESS))
        seen: list[str] = []

        def read() -> None:
            try:
                gathered.reader()
            except UserError as error:
                seen.append(str(error))

        reading = threading.Thread(target=read)
        reading.start()
        wait_until(lambda: only.worker.slots.free == only.worker.slots.at_once - 1, "the work begins", 60)
        gathered.close()
        reading.join(60)
        wait_until(lambda: only.worker.slots.free == only.worker.slots.at_once, "the work ends", 60)
        assert seen == ["the query was cancelled"]


def test_a_worker_is_called_by_https_if_its_certificate_can_be_verified(wide: Lake, serve: Serve) -> None:
    only = serve(wide, certificate=throw_away().files.loaded)
    with remote([only], trust=trusting(str(throw_away().file))) as workers:
        table = gather(wide, workers, leaf("SELECT message FROM scan_1")).reader().read_all()
    assert sorted(table["message"].to_pylist()) == sorted(record.message for record, _ in wide.records)
    with remote([only]) as untrusting:
        assert f"query worker {only.name} is unreachable" in str(failure(gather(wide, untrusting)))


def test_errors_keep_their_kind_on_the_way(wide: Lake, serve: Serve) -> None:
    with remote([serve(wide, max_rows=7199)]) as workers:
        wrong = failure(gather(wide, workers, leaf("SELECT message::INTEGER AS m FROM scan_1")))
        assert type(wrong) is EngineError
        assert "Could not convert" in str(wrong)
        assert (wrong.sql[:14], wrong.position) == ("SELECT message", Position(1, 15))
        past = failure(gather(wide, workers, leaf("SELECT message FROM scan_1")))
        assert type(past) is TooLarge
        assert "more than 7199 rows" in str(past)
        assert gather(wide, workers, leaf("SELECT 1 AS x FROM scan_1 LIMIT 7199")).reader().read_all().num_rows == 7199


def test_a_worker_without_room_says_so_and_another_is_asked(wide: Lake, serve: Serve) -> None:
    full, other = serve(wide, slots=Slots(1, waiting=0)), serve(wide)
    with remote([full]) as workers:
        endless = gather(wide, workers, leaf(ENDLESS))
        endless.start()
        while full.worker.slots.free:
            time.sleep(0.01)
        error = failure(gather(wide, workers, leaf("SELECT message FROM scan_1")))
        assert type(error) is Busy
        assert str(error) == "the worker runs 1 unit, 0 waiting: try again later"
        with remote([full, other]) as both:
            gathered = gather(wide, both, leaf("SELECT message FROM scan_1"))
            assert gathered.reader().read_all().num_rows == 7200
            assert gathered.account.workers == {other.name: shares(wide, [full.name, other.name])}
        endless.close()


def test_more_may_wait_than_the_server_has_threads_for_other_things(wide: Lake, serve: Serve) -> None:
    """Sixty units wait, more than a server's forty threads: the one that runs is read all the same."""
    only = serve(wide, slots=Slots(1))
    unit = Unit(OWN, leaf("SELECT message FROM scan_1"), tuple(wide.all[:1]))
    with remote([only]) as workers:
        (worker,) = workers.here()
        rows: list[int] = []
        asking = [
            threading.Thread(target=lambda: rows.append(sum(batch.num_rows for batch in worker.run(unit))))
            for _ in range(60)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join(60)
    assert rows == [600] * 60


def test_a_worker_of_another_cluster_or_version_is_not_the_askers_fault(wide: Lake, serve: Serve) -> None:
    with remote([serve(wide)], key="another") as workers:
        error = failure(gather(wide, workers))
        assert type(error) is Unavailable
        assert "refused the unit: this worker only accepts units from a query-api with its worker_key" in str(error)
        assert "another" not in str(error)
    with remote([serve(wide)]) as workers:
        (worker,) = workers.here()
        unit = Unit(OWN, leaf(), ())
        newer = replace(unit)
        object.__setattr__(
            newer, "to_bytes", lambda: unit.to_bytes().replace(b'"version":%d' % VERSION, b'"version":99')
        )
        refusal = f"refused the unit: work unit of version 99: this worker takes version {VERSION}"
        with pytest.raises(Lost, match=refusal):
            worker.run(newer)


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (lambda: Response("hello", 404), "returned 404, and not as a query worker does"),
        (lambda: Response(b"", 200), "broke off its answer"),
        (lambda: Response(b"A" + struct.pack(">I", 100) + b"short", 200), "broke off its answer"),
    ],
)
def test_what_is_no_answer_is_lost(response: Callable[[], Response], said: str, wide: Lake, tmp_path: Path) -> None:
    route = Route("/internal/v1/run", lambda _: response(), methods=["POST"])
    check_lost(route, said, wide)


def test_an_answer_without_its_end_is_lost(wide: Lake) -> None:
    """All its rows are there, and the end of the response too; only the word that says so is not."""
    sink = pa.BufferOutputStream()
    table = pa.table({"message": ["a"], "x": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    body = b"A" + struct.pack(">I", len(data)) + data
    check_lost(
        Route("/internal/v1/run", lambda _: StreamingResponse(iter([body])), methods=["POST"]), "broke off", wide
    )


def check_lost(route: Route, said: str, lake: Lake) -> None:
    server = HttpServer(build_app([route]), bind("127.0.0.1", 0), print)
    server.start()
    workers = RemoteWorkers(Addresses(lookups(server.url)), KEY, 30)
    error = failure(gather(lake, workers))
    assert f"query worker {worker_name(server.url, KEY)} {said}" in str(error)
    workers.close()
    server.stop()
