"""Of a large segment only what a scan needs is fetched, held and read; answers are those of whole files."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.condition import (
    AllOf,
    AnyOf,
    Condition,
    Contains,
    Equals,
    Labelled,
    Leaf,
    NotNull,
    Present,
    leaves,
    word_pattern,
)
from lakerunner.model.errors import Corrupt, TooLarge
from lakerunner.model.lru import LruCache
from lakerunner.model.signal import TRACES, Attribute
from lakerunner.model.source import SourceObject
from lakerunner.model.time import ALL_TIME, TimeRange
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.steps import order
from lakerunner.plan.scan import Scan, attribute_column, id_column
from lakerunner.query.segment_cache import files
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.segment_cache.files import CachedFile, Files, StoredObject
from lakerunner.query.segment_cache.footers import Footer, read_footer
from lakerunner.query.segment_cache.lease import LeasedFile
from query.real_lake import SERVICES, WORDS, Asking, CountingStore, RealLake, some_records
from query.sample_lake import OWN, START

LOGS = Scan("s", "logs", ALL_TIME, ("message",))


@pytest.fixture(scope="module", autouse=True)
def small_gaps() -> Iterator[None]:
    """These segments are a hundredth of what segments are: so must be what is fetched between two chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "GAP_BYTES", 1000)
        yield


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> RealLake:
    lake = RealLake(tmp_path_factory.mktemp("real"))
    for seed in range(3):
        lake.add(partial(some_records, rows=8000, seed=seed))
    assert all(segment.bytes > 600_000 for segment in lake.segments)
    return lake


@pytest.fixture
def asking(lake: RealLake, tmp_path: Path) -> Asking:
    lake.store.reads.clear()
    return Asking(SegmentCache(lake.store, tmp_path / "cache", 1 << 30), tmp_path)


@pytest.fixture(scope="module")
def linked(lake: RealLake) -> Asking:
    """Over the store's own files."""
    return Asking(SegmentCache(LocalStore(lake.store.root), lake.directory / "links", 1), lake.directory)


def message_of(lake: RealLake, number: int) -> str:
    path = lake.store.root / lake.segments[0].path
    return str(pq.read_table(path, columns=["message"]).column(0)[number].as_py())


def test_a_column_costs_its_own_bytes_once(lake: RealLake, asking: Asking, linked: Asking) -> None:
    scan = replace(LOGS, columns=("severity", "service_name"))
    sql = "SELECT severity, service_name, count(*) AS n FROM s GROUP BY ALL ORDER BY ALL"
    found, account = asking.ask(scan, sql, lake.segments)
    assert found.equals(linked.ask(scan, sql, lake.segments)[0])
    assert (account.read, account.pruned, account.bytes_cached) == (3, {}, 0)
    assert account.bytes_fetched == sum(length for _, _, length in lake.store.reads)
    assert account.bytes_fetched < sum(segment.bytes for segment in lake.segments) / 3
    lake.store.reads.clear()
    again, account = asking.ask(scan, sql, lake.segments)
    assert (again.equals(found), lake.store.reads, account.bytes_fetched) == (True, [], 0)
    assert account.bytes_cached > 0


def test_the_size_is_what_is_there_and_not_the_holes(lake: RealLake, asking: Asking) -> None:
    asking.ask(replace(LOGS, columns=("severity",)), "SELECT count(severity) FROM s", lake.segments)
    on_disk = [path.stat() for path in asking.cache.directory.iterdir() if path.is_file()]
    assert sorted(status.st_size for status in on_disk) == sorted(segment.bytes for segment in lake.segments)
    # Blooms that are filled in take a page each on disk, of which only their own bytes count.
    fetched = sum(length for _, _, length in lake.store.reads)
    assert fetched <= asking.cache.size <= fetched + 1000
    assert sum(status.st_blocks * 512 for status in on_disk) < sum(segment.bytes for segment in lake.segments) / 2


def test_most_of_a_segment_is_fetched_as_all_of_it(lake: RealLake, asking: Asking) -> None:
    scan = replace(LOGS, columns=("message", "trace_id", "attributes"))
    with asking.cache.hold(scan, lake.segments[:1]) as held:
        (file,) = held.files.values()
        assert file.rows is None
        assert file.path.read_bytes() == lake.store.get(lake.segments[0].path, max_bytes=1 << 30)
        assert asking.cache.size == held.account.bytes_fetched == lake.segments[0].bytes


def test_no_byte_is_fetched_twice_by_queries_that_want_it_at_once(lake: RealLake, asking: Asking) -> None:
    columns = ["severity", "service_name", "timestamp", "trace_id", "attributes", "resource_attrs"]

    def hold(number: int) -> None:
        chance = random.Random(number)
        with asking.cache.hold(replace(LOGS, columns=tuple(chance.sample(columns, 2))), lake.segments):
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, range(40)))
    reads = sorted(lake.store.reads)
    for (key, start, length), (other, after, _) in pairwise(reads):
        assert key != other or start + length <= after
    assert asking.cache.size >= sum(length for _, _, length in reads)


class TestText:
    def test_a_word_is_not_found_in_longer_ones(self, lake: RealLake, asking: Asking) -> None:
        """`imeout` is in every row group, but never as a word."""
        scan = replace(LOGS, conditions=(Contains("message", "imeout", is_word=True),))
        found, account = asking.ask(scan, "SELECT message FROM s", lake.segments)
        assert (found.num_rows, account.pruned, account.read) == (0, {"text index": 3}, 0)

    def test_a_needle_reads_the_row_group_that_has_it(self, lake: RealLake, asking: Asking) -> None:
        needle = message_of(lake, 4321)[-40:]
        scan = replace(LOGS, conditions=(Contains("message", needle),))
        sql = f"SELECT message FROM s WHERE contains(message, '{needle}')"
        found, account = asking.ask(scan, sql, lake.segments)
        assert found.to_pydict() == {"message": [message_of(lake, 4321)]}
        assert (account.pruned, account.read) == ({"text index": 2}, 1)
        groups = account.row_groups
        assert groups > 5
        assert account.row_groups_pruned == {"text index": groups - 1}
        of_files = sum(length for key, _, length in lake.store.reads if key.endswith(".parquet"))
        assert of_files < lake.segments[0].bytes / 4
        assert account.bytes_fetched == of_files + sum(s.statistics["side_bytes"]["text.bin"] for s in lake.segments)

    def test_of_a_segment_that_cannot_hold_it_the_file_is_not_opened(self, lake: RealLake, asking: Asking) -> None:
        scan = replace(LOGS, conditions=(Contains("message", "nothing like this is anywhere"),))
        found, account = asking.ask(scan, "SELECT message FROM s", lake.segments)
        assert (found.num_rows, account.pruned, account.read) == (0, {"text index": 3}, 0)
        assert sorted({key for key, _, _ in lake.store.reads}) == sorted(s.side_path("text.bin") for s in lake.segments)

    @pytest.mark.parametrize(
        "condition",
        [
            Contains("message", "ca"),
            Equals("message", ("no",)),
            Contains("body", "nothing like this is anywhere"),
            Equals(Attribute("attributes", "id"), ("short",)),
            Contains("message", "half of a pair: \ud800"),
        ],
    )
    def test_where_it_cannot_help_it_is_not_asked(self, condition: Condition, lake: RealLake, asking: Asking) -> None:
        asking.ask(replace(LOGS, conditions=(condition,)), "SELECT count(*) FROM s", lake.segments)
        assert not [key for key, _, _ in lake.store.reads if key.endswith("text.bin")]

    @pytest.mark.parametrize("damage", ["cut", "other bytes", "bits", "absent", "not known of"])
    def test_a_damaged_index_loses_no_rows(
        self, damage: str, lake: RealLake, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        needle = message_of(lake, 77)[-40:]
        copy = RealLake(tmp_path / "copy")
        first = copy.add(lambda request: some_records(request, 8000, 0))
        other = copy.add(lambda request: some_records(request, 400, 1))
        index = bytes(copy.store.get(first.side_path("text.bin"), max_bytes=1 << 30))
        match damage:
            case "cut":
                copy.store.put(first.side_path("text.bin"), index[:-1])
            case "other bytes":
                copy.store.put(first.side_path("text.bin"), b"x" * len(index))
            case "bits":  # none of a text that is there: it would be left out
                copy.store.put(first.side_path("text.bin"), index[:36] + bytes(len(index) - 40) + index[-4:])
            case "absent":
                copy.store.delete([first.side_path("text.bin")])
            case "not known of":
                first = replace(first, statistics={})
        scan = replace(LOGS, conditions=(Contains("message", needle),))
        asking = Asking(copy.cache(), tmp_path)
        found, account = asking.ask(scan, f"SELECT message FROM s WHERE contains(message, '{needle}')", [first, other])
        assert found.num_rows == 1
        assert "text index" not in account.row_groups_pruned
        assert (account.read, account.pruned) == (1, {"text index": 1})
        assert ("a text index cannot be used" in caplog.text) == (damage != "not known of")


class TestStatistics:
    def test_a_service_reads_its_own_row_groups(self, lake: RealLake, asking: Asking) -> None:
        """Segments are sorted by it."""
        scan = replace(LOGS, columns=("service_name",), conditions=(Equals("service_name", ("pay",)),))
        found, account = asking.ask(scan, "SELECT count(*) AS n FROM s WHERE service_name = 'pay'", lake.segments)
        assert found.to_pydict() == {"n": [6000]}
        assert account.row_groups_pruned["statistics"] >= account.row_groups / 2
        assert account.read == 3

    @pytest.mark.parametrize(
        "condition",
        [
            Equals("service_name", ("aaa", "zzz")),
            Equals("collector", ("edge",)),
            Equals("body", ("x",)),  # no record has one, so there is no such column
            Equals("trace_id", ("00" * 17, "")),
            Equals(Attribute("resource_attributes", "absent"), ("x",)),
            Present((Attribute("scope_attributes", "absent"),)),
            NotNull("body"),
            Labelled("attributes", "user_id"),  # behind the keys of the map
            Labelled("resource_attributes", "service_name", ("zzz",)),
            AnyOf((Equals("service_name", ("zzz",)), AllOf((Equals("severity", ("WARN",)), NotNull("body"))))),
        ],
    )
    def test_what_cannot_be_there_prunes_the_segment(
        self, condition: Condition, lake: RealLake, asking: Asking
    ) -> None:
        found, account = asking.ask(replace(LOGS, conditions=(condition,)), "SELECT message FROM s", lake.segments)
        assert (found.num_rows, account.pruned, account.read) == (0, {"statistics": 3}, 0)
        assert account.row_groups_pruned == {"statistics": account.row_groups}

    @pytest.mark.parametrize(
        "condition",
        [
            Equals("severity_number", ("0",)),  # no text
            Equals("trace_id", ("ABCD",)),  # no lower-case hexadecimal text
            Equals("trace_id", ("abc",)),
            Equals("organization_id", ("x",)),
            Equals(Attribute("attributes", "code"), ("!",)),  # a column of integers, and strings in the map
            Equals(Attribute("attributes", "nothing"), ("!",)),  # between the keys of the map
            Contains("service_name", "zzz"),
            AnyOf((Equals("service_name", ("zzz",)), Contains("severity", "zzz"))),
        ],
    )
    def test_what_is_not_certain_prunes_nothing(self, condition: Condition, lake: RealLake, asking: Asking) -> None:
        _, account = asking.ask(replace(LOGS, conditions=(condition,)), "SELECT count(*) FROM s", lake.segments)
        assert (account.read, account.row_groups_pruned) == (3, {})

    def test_a_label_is_absent_where_the_index_lists_all_keys(self, lake: RealLake, asking: Asking) -> None:
        scan = replace(LOGS, conditions=(Labelled("attributes", "nothing", ("!",)),))  # between the keys of the map
        few = [replace(one, statistics={**one.statistics, "label_count": 500}) for one in lake.segments]
        read = [asking.ask(scan, "SELECT count(*) FROM s", own)[1].read for own in (lake.segments, few)]
        assert read == [0, 3]

    def test_the_time_range_leaves_row_groups_out(self, lake: RealLake, asking: Asking) -> None:
        scan = replace(LOGS, columns=("timestamp",), time=TimeRange(START, START + 100))
        found, account = asking.ask(scan, "SELECT count(*) AS n FROM s WHERE epoch_ns(timestamp) < 1", lake.segments)
        assert (found.to_pydict(), account.pruned, account.read) == ({"n": [0]}, {"statistics": 2}, 1)
        assert account.row_groups_pruned["statistics"] >= account.row_groups - len(SERVICES)


class TestBlooms:
    @pytest.mark.parametrize("way", ["fetched", "linked"])
    def test_a_trace_reads_the_row_group_that_has_it(
        self, way: str, lake: RealLake, asking: Asking, linked: Asking
    ) -> None:
        """Logs are not sorted by it: bounds say nothing."""
        path = lake.store.root / lake.segments[1].path
        traces, messages = pq.read_table(path, columns=["trace_id", "message"]).columns
        scan = replace(LOGS, ids=("trace_id",), conditions=(Equals("trace_id", (traces[5000].as_py().hex(), "00")),))
        sql = f"SELECT message FROM s WHERE \"{id_column('s', 'trace_id')}\" = from_hex('{traces[5000].as_py().hex()}')"
        found, account = (asking if way == "fetched" else linked).ask(scan, sql, lake.segments)
        assert found.to_pydict() == {"message": [messages[5000].as_py()]}
        assert account.row_groups_pruned["bloom filter"] >= account.row_groups - 4  # one in a hundred is taken for it
        assert account.pruned.get("bloom filter", 0) + account.read == 3
        if way == "fetched":
            assert account.bytes_fetched == sum(length for _, _, length in lake.store.reads)
            assert account.bytes_fetched < sum(segment.bytes for segment in lake.segments) / 4
            lake.store.reads.clear()
            assert asking.ask(scan, sql, lake.segments)[0].equals(found)
            assert lake.store.reads == []


class TestBounds:
    def test_sparse_files_go_when_there_is_no_room(self, lake: RealLake, asking: Asking, tmp_path: Path) -> None:
        asking.ask(replace(LOGS, columns=("severity",)), "SELECT count(severity) FROM s", lake.segments[:1])
        one = asking.cache.size
        small = Asking(SegmentCache(lake.store, tmp_path / "small", 2 * one), tmp_path)
        for segment in (*lake.segments, lake.segments[0]):
            small.ask(replace(LOGS, columns=("severity",)), "SELECT count(severity) FROM s", [segment])
            assert small.cache.size <= 2 * one
        left = {path.name for path in small.cache.directory.iterdir() if path.is_file()}
        assert len(left) in (1, 2)
        assert any(str(lake.segments[0].id) in name for name in left)

    def test_one_query_that_needs_more_than_fits_is_refused(self, lake: RealLake, tmp_path: Path) -> None:
        scan = replace(LOGS, columns=("service_name", "trace_id"))
        with lake.cache("room").hold(scan, lake.segments) as held:
            need = held.account.bytes_fetched
        assert need < sum(segment.bytes for segment in lake.segments)
        tight = SegmentCache(lake.store, tmp_path / "tight", need // 2)
        with pytest.raises(TooLarge, match=rf"reads \d+ bytes of segments, more than cache_max_bytes {need // 2}"):
            tight.hold(scan, lake.segments).__enter__()
        assert (tight.held, tight.size <= need // 2) == (0, True)
        with tight.hold(replace(LOGS, columns=("severity",)), lake.segments[:1]):
            pass

    def test_a_restart_forgets_what_is_sparse(self, lake: RealLake, asking: Asking) -> None:
        asking.ask(replace(LOGS, columns=("severity",)), "SELECT count(severity) FROM s", lake.segments)
        asking.cache.close()
        assert SegmentCache(lake.store, asking.cache.directory, 1 << 30).size == 0
        assert [path.name for path in asking.cache.directory.iterdir()] == ["whole"]

    def test_footers_are_kept_up_to_a_bound(self, lake: RealLake, tmp_path: Path) -> None:
        with lake.cache("footers").hold(LOGS, lake.segments) as held:
            paths = [held.files[segment.id].path for segment in lake.segments]
            read = [read_footer(path, "key") for path in paths]
        objects = [named(n) for n in range(3)]
        kept: LruCache[Footer] = LruCache(2 * max(footer.bytes for footer in read))
        for object_, footer in zip(objects[:2], read[:2], strict=True):
            kept.put(object_, footer, footer.bytes)
        assert kept.get(objects[0]) is read[0]
        kept.put(objects[2], read[2], read[2].bytes)
        assert [kept.get(object_) is not None for object_ in objects] == [True, False, True]

    def test_a_damaged_footer_is_corrupt_and_not_kept(self, lake: RealLake, tmp_path: Path) -> None:
        copy = RealLake(tmp_path / "copy")
        segment = copy.add(lambda request: some_records(request, 8000, 0))
        data = bytes(copy.store.get(segment.path, max_bytes=1 << 30))
        cache = copy.cache()
        for damaged in (data[:-1] + b"x", data[:-200] + b"\xff" * 192 + data[-8:], data[:-8] + b"\xff" * 4 + b"PAR1"):
            copy.store.put(segment.path, damaged)
            with pytest.raises(Corrupt, match=segment.path):
                cache.hold(LOGS, [segment]).__enter__()
            assert (cache.size, cache.held) == (0, 0)
        copy.store.put(segment.path, data)
        with cache.hold(LOGS, [segment]) as held:
            assert held.account.read == 1


def named(number: int) -> StoredObject:
    return StoredObject(f"name {number}", "key", 1)


# Conditions, and the SQL that they are drawn from.
CODE, ID, RARE = Attribute("attributes", "code"), Attribute("attributes", "id"), Attribute("attributes", "rare")
PLAIN_COLUMNS = ["timestamp", "service_name", "severity", "message", "trace_id", "attributes", "resource_attrs", "body"]


@st.composite
def questions(draw: st.DrawFn) -> tuple[Scan, str, bool]:
    """A scan with conditions, its SQL, and whether the segments come in turned order."""
    condition, sql = draw(st.sampled_from(CONDITIONS))
    more = draw(st.sampled_from(CONDITIONS))
    columns = draw(st.lists(st.sampled_from(PLAIN_COLUMNS), unique=True, max_size=4))
    attributes = draw(st.lists(st.sampled_from([CODE, ID, RARE]), unique=True, max_size=2))
    third = draw(st.sampled_from(CONDITIONS))
    conditions, wheres = draw(
        st.sampled_from(
            [
                ((condition,), [sql]),
                ((condition, more[0]), [sql, more[1]]),
                ((AnyOf((condition, more[0])),), [f"({sql} OR {more[1]})"]),
                ((AnyOf((condition, AllOf((more[0], third[0])))),), [f"({sql} OR ({more[1]} AND {third[1]}))"]),
            ]
        )
    )
    used = {c for one in leaves(conditions) for c in columns_of(one)}
    columns += [c for c in used if isinstance(c, str) and c not in columns and c != "trace_id"]
    attributes += [c for c in used if isinstance(c, Attribute) and c not in attributes]
    ids = ("trace_id",) if "trace_id" in used else ()
    time = ALL_TIME
    if draw(st.booleans()):
        start = START + draw(st.integers(0, 3 * 10**9))
        time = TimeRange(start, start + draw(st.sampled_from([10**5, 10**9])))
        columns += [] if "timestamp" in columns else ["timestamp"]
        wheres.append(f"epoch_ns(timestamp) >= {time.start_ns} AND epoch_ns(timestamp) < {time.end_ns}")
    scan = Scan("s", "logs", time, tuple(columns), tuple(attributes), ids, conditions)
    return scan, f"SELECT * FROM s WHERE {' AND '.join(wheres)}", draw(st.booleans())


def columns_of(condition: Leaf) -> tuple[str | Attribute, ...]:
    if isinstance(condition, Equals | Contains):
        return (condition.column,)
    return condition.attributes if isinstance(condition, Present) else ()


def attribute(name: Attribute) -> str:
    return '"' + attribute_column("s", name).replace('"', '""') + '"'


def conditions_of(lake: RealLake) -> list[tuple[Condition, str]]:
    table = pq.read_table(lake.store.root / lake.segments[1].path, columns=["message", "trace_id", "attributes.id"])
    message, trace, own = (table.column(n)[table.num_rows // 3].as_py() for n in range(3))
    literals = [message[-30:], message[3:12], "café", "TIMEOUT user", "cart-17 ", "absent from all of them"]
    made: list[tuple[Condition, str]] = [(Contains("message", t), f"contains(message, '{t}')") for t in literals]
    made += [(Contains("message", t, True), f"message ILIKE '%{t}%'") for t in literals]
    made += [(Contains("message", w, is_word=True), f"regexp_matches(message, '{word_pattern(w)}')") for w in WORDS[:3]]
    made += [(Contains("message", "x1", is_word=True), f"regexp_matches(message, '{word_pattern('x1')}')")]
    made += [(Equals("message", (message, "x" * 9)), f"message IN ('{message}', '{'x' * 9}')")]
    made += [(Equals("service_name", (s,)), f"service_name = '{s}'") for s in ("cart", "pay", "zebra")]
    made += [(Equals("severity", ("WARN",)), "severity = 'WARN'")]
    trace_bytes = '"' + id_column("s", "trace_id") + '"'
    made += [(Equals("trace_id", (t,)), f"{trace_bytes} = from_hex('{t}')") for t in (trace.hex(), "00ff", "")]
    made += [(Equals(ID, (t,)), f"{attribute(ID)} = '{t}'") for t in (own, "id-" + "0" * 24 + "-z", own[3:27])]
    made += [(Contains(ID, own[5:25]), f"contains({attribute(ID)}, '{own[5:25]}')")]
    made += [(Equals(CODE, (t,)), f"{attribute(CODE)} = '{t}'") for t in ("teapot", "404", "1")]
    made += [(Present((RARE,)), f"{attribute(RARE)} IS NOT NULL"), (NotNull("body"), "false")]
    return made


CONDITIONS: list[tuple[Condition, str]] = []


@pytest.fixture(scope="module")
def poison(lake: RealLake) -> Iterator[None]:
    """Every byte of a file that was not fetched is garbage."""
    CONDITIONS[:] = conditions_of(lake)
    empty = Files._empty

    def garbage(self: Files, object_: StoredObject) -> CachedFile:
        file = empty(self, object_)
        file.path.write_bytes(os.urandom(object_.bytes))
        return file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "_empty", garbage)
        yield


def check_any(data: st.DataObject, lake: RealLake, linked: Asking) -> None:
    """Some questions to a new cache, against the store's own files, all of their rows, in the same order."""
    cache = SegmentCache(lake.store, lake.directory / "poisoned", 3_200_000)
    poisoned = Asking(cache, lake.directory)
    for _ in range(data.draw(st.integers(1, 3))):
        scan, sql, turned = data.draw(questions())
        segments = lake.segments[::-1] if turned else lake.segments
        found, account = poisoned.ask(scan, sql, segments)
        expected, whole = linked.ask(replace(scan, conditions=(), time=ALL_TIME), sql, segments)
        assert found.equals(expected)
        assert account.read + sum(account.pruned.values()) == len(segments) == whole.read
        assert linked.ask(scan, sql, segments)[0].equals(expected)
    cache.close()
    shutil.rmtree(cache.directory)


def test_many_scans_at_once_within_a_small_cache(lake: RealLake, tmp_path: Path, poison: None) -> None:
    """Whatever is fetched, evicted and fetched again, and by whom: what is read is there."""
    cache = SegmentCache(lake.store, tmp_path / "cache", 1_500_000)
    columns = ["severity", "service_name", "timestamp", "trace_id", "span_id", "resource_attrs"]
    whole = {s.id: pq.read_table(lake.store.root / s.path) for s in lake.segments}

    def right(number: int) -> bool:
        chance = random.Random(number)
        segment = chance.choice(lake.segments)
        scan = replace(LOGS, columns=("trace_id", chance.choice(columns)), conditions=chance.choice(some))
        with cache.hold(scan, [segment]) as held:
            for file in held.files.values():
                sql = (
                    f"SELECT trace_id FROM read_parquet('{file.path}') WHERE ({ranges(file)}) AND trace_id IS NOT NULL"
                )
                with duckdb.connect() as connection:
                    found = connection.execute(sql).fetchall()
                rows = [
                    n for first, end in file.rows or ((0, segment.rows),) for n in range(first, min(end, segment.rows))
                ]
                if found != [(value,) for value in whole[segment.id].column("trace_id").take(rows).to_pylist()]:
                    return False
        return True

    some: list[tuple[Condition, ...]] = [(), *(((Equals("service_name", (s,))),) for s in SERVICES)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(60)))
    assert (cache.held, cache.size <= 1_500_000) == (0, True)


def ranges(file: LeasedFile) -> str:
    return " OR ".join(f"file_row_number BETWEEN {first} AND {end - 1}" for first, end in file.rows or ()) or "true"


def test_columns_with_parts_are_there_with_all_of_them(tmp_path: Path, poison: None) -> None:
    """Spans, whose events are lists of structs with maps in them."""
    chance = random.Random(1)
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for n in range(6000):
        span = spans.add(trace_id=chance.randbytes(16), span_id=chance.randbytes(8), start_time_unix_nano=START + n)
        span.name = chance.randbytes(60).hex()
        if n % 50 == 0:
            event = span.events.add(name=f"event {n}", time_unix_nano=START)
            event.attributes.add(key="k").value.int_value = n
    data = request.SerializeToString()
    (tmp_path / "store").mkdir()
    store = CountingStore(tmp_path / "store")
    raw = Raw(SourceObject("b", "spans", "etag", len(data), 0), memoryview(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "ROW_GROUP_BYTES", 100_000)
        (segment,) = make_segments(TRACES, OWN, "default", [raw], store.put).segments
    one = spans[4321].trace_id.hex()
    asking = Asking(SegmentCache(store, tmp_path / "cache", 1 << 30), tmp_path)
    scan = Scan("s", "traces", ALL_TIME, ("events",), ids=("trace_id",), conditions=(Equals("trace_id", (one,)),))
    sql = f"SELECT len(events) AS n FROM s WHERE \"{id_column('s', 'trace_id')}\" = from_hex('{one}')"
    found, account = asking.ask(scan, sql, [segment])
    assert found.to_pydict() == {"n": [0]}
    assert account.row_groups_pruned == {"statistics": account.row_groups - 1}
    scan = replace(scan, ids=(), conditions=())
    sql = "SELECT events[1].name AS name, events[1].attributes['k'] AS k FROM s WHERE len(events) > 0"
    found, account = asking.ask(scan, sql, [segment])
    assert sorted(found.to_pylist(), key=lambda row: int(row["k"])) == [
        {"name": f"event {n}", "k": str(n)} for n in range(0, 6000, 50)
    ]
    assert account.bytes_fetched < segment.bytes / 3


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_holes_are_never_read_and_no_row_is_lost(
    data: st.DataObject, lake: RealLake, linked: Asking, poison: None
) -> None:
    check_any(data, lake, linked)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_however_many_questions_are_asked(data: st.DataObject, lake: RealLake, linked: Asking, poison: None) -> None:
    check_any(data, lake, linked)
