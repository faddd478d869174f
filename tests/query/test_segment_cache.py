"""The cache fetches once, keeps what is held, stays within its size and survives a restart. Small segments, which it
fetches whole; test_chunk_cache.py has larger ones."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.model.errors import Absent, Corrupt, TooLarge, UserError
from lakerunner.model.segment import Segment
from lakerunner.model.time import ALL_TIME
from lakerunner.objects.local import LocalStore
from lakerunner.plan.scan import Scan
from lakerunner.query.segment_cache.cache import SegmentCache
from query.sample_lake import START, Elsewhere, Lake, Record, removed


class CountingStore(Elsewhere):
    """Counts what is read, and lets a test hold reads back until it has looked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        self.reads.append(key)
        assert self.go.wait(10)
        return super().get_range(key, start, length)


@pytest.fixture
def segments(tmp_path: Path) -> list[Segment]:
    lake = Lake(tmp_path)
    return [lake.add([Record(START + n, message="x" * 100)]) for n in range(4)]


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "store")


SCAN = Scan("scan_1", "logs", ALL_TIME, ("message",))


def cache_of(store: LocalStore, tmp_path: Path, max_bytes: int = 1 << 30) -> SegmentCache:
    return SegmentCache(store, tmp_path / "cache", max_bytes)


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "cache").iterdir() if path.is_file()}


def name(segment: Segment) -> str:
    return f"{segment.organization}_{segment.id}.parquet"


def test_a_segment_is_fetched_once_and_whole(segments: list[Segment], store: CountingStore, tmp_path: Path) -> None:
    cache = cache_of(store, tmp_path)
    for _ in range(2):
        with cache.hold(SCAN, segments) as paths:
            for segment in segments:
                assert paths.files[segment.id].path.read_bytes() == store.get(segment.path, max_bytes=1 << 30)
    assert sorted(store.reads) == sorted(segment.path for segment in segments)
    assert cache.size == sum(segment.bytes for segment in segments)


def test_concurrent_wanters_wait_for_one_fetch(segments: list[Segment], store: CountingStore, tmp_path: Path) -> None:
    cache = cache_of(store, tmp_path)
    store.go.clear()

    def read() -> bytes:
        with cache.hold(SCAN, segments[:1]) as paths:
            return paths.files[segments[0].id].path.read_bytes()

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read) for _ in range(8)]
        store.go.set()
        assert len({reader.result(10) for reader in readers}) == 1
    assert store.reads == [segments[0].path]


def test_the_least_recently_held_goes_first(segments: list[Segment], store: CountingStore, tmp_path: Path) -> None:
    size = max(segment.bytes for segment in segments)
    cache = cache_of(store, tmp_path, 3 * size)
    for segment in (*segments[:3], segments[0], segments[3]):
        with cache.hold(SCAN, [segment]):
            pass
    assert files(tmp_path) == {name(segments[n]) for n in (0, 2, 3)}
    assert cache.size <= 3 * size


def test_held_files_stay_though_there_is_no_room(segments: list[Segment], store: CountingStore, tmp_path: Path) -> None:
    size = max(segment.bytes for segment in segments)
    cache = cache_of(store, tmp_path, 2 * size)
    with cache.hold(SCAN, segments[:2]) as held, cache.hold(SCAN, segments[2:]) as others:
        assert all(one.path.exists() for one in (*held.files.values(), *others.files.values()))
        assert cache.size > 2 * size
    assert cache.size <= 2 * size
    assert len(files(tmp_path)) == 2


def test_a_file_held_twice_stays_until_both_let_go(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    cache = cache_of(store, tmp_path, max(segment.bytes for segment in segments))
    with cache.hold(SCAN, segments[:1]) as paths:
        with cache.hold(SCAN, segments[:1]):
            pass
        with cache.hold(SCAN, segments[1:2]):
            pass
        assert paths.files[segments[0].id].path.exists()
        assert files(tmp_path) == {name(segments[0])}


def test_one_query_that_cannot_fit_is_refused(segments: list[Segment], store: CountingStore, tmp_path: Path) -> None:
    need = sum(segment.bytes for segment in segments)
    with cache_of(store, tmp_path, need).hold(SCAN, segments):
        pass
    cache = cache_of(store, tmp_path, need - 1)
    with pytest.raises(TooLarge, match=f"{need} bytes of segments, more than cache_max_bytes {need - 1}"):
        cache.hold(SCAN, segments).__enter__()


def test_a_restart_keeps_whole_files_and_clears_the_rest(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    first = cache_of(store, tmp_path)
    with first.hold(SCAN, segments):
        pass
    first.close()
    (tmp_path / "cache" / "whole" / name(segments[0])).unlink()  # as if killed before
    (tmp_path / "cache" / "whole" / "of_none.parquet").write_text("db/none")
    store.reads.clear()
    cache = cache_of(store, tmp_path)
    assert files(tmp_path) == {name(segment) for segment in segments[1:]}
    assert not (tmp_path / "cache" / "whole" / "of_none.parquet").exists()
    assert cache.size == sum(segment.bytes for segment in segments[1:])
    with cache.hold(SCAN, segments) as held:
        assert held.account.bytes_fetched == segments[0].bytes
    assert store.reads == [segments[0].path]
    cache.close()
    assert cache_of(store, tmp_path, segments[0].bytes).size <= segments[0].bytes


def test_a_file_of_another_size_is_fetched_anew(segments: list[Segment], store: CountingStore, tmp_path: Path) -> None:
    (tmp_path / "cache" / "whole").mkdir(parents=True)
    (tmp_path / "cache" / name(segments[0])).write_bytes(b"short")
    (tmp_path / "cache" / "whole" / name(segments[0])).write_text(segments[0].path)
    with cache_of(store, tmp_path).hold(SCAN, segments[:1]) as paths:
        assert paths.files[segments[0].id].path.read_bytes() == store.get(segments[0].path, max_bytes=1 << 30)


@pytest.mark.parametrize("by", [-1, 1])
def test_an_object_of_another_size_is_corrupt(
    by: int, segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    stated = replace(segments[0], bytes=segments[0].bytes + by)
    cache = cache_of(store, tmp_path)
    with pytest.raises(Corrupt, match=stated.path):
        cache.hold(SCAN, [stated, segments[1]]).__enter__()
    assert files(tmp_path) == {name(segments[1])}
    assert cache.size == segments[1].bytes
    with cache.hold(SCAN, segments[:1]):
        pass


def test_an_absent_object_is_said_so_to_everyone_and_can_come_later(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    data = bytes(store.get(segments[0].path, max_bytes=1 << 30))
    store.delete([segments[0].path])
    cache = cache_of(store, tmp_path)
    for _ in range(2):
        with pytest.raises(Absent):
            cache.hold(SCAN, segments[:1]).__enter__()
    store.put(segments[0].path, data)
    with cache.hold(SCAN, segments[:1]) as paths:
        assert paths.files[segments[0].id].path.read_bytes() == data


def test_a_directory_that_duckdb_would_take_for_a_pattern_is_refused(store: CountingStore, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must not contain any of"):
        SegmentCache(store, tmp_path / "a*b", 1)


def test_many_queries_at_once_within_a_small_cache(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    """Whatever is fetched, evicted and fetched again: a held file is there and whole."""
    cache = cache_of(store, tmp_path, 2 * max(segment.bytes for segment in segments))

    def read(n: int) -> bool:
        wanted = [segments[n % 4], segments[(n + 1) % 4]]
        with cache.hold(SCAN, wanted) as paths:
            return all(paths.files[segment.id].path.stat().st_size == segment.bytes for segment in wanted)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))
    assert cache.size <= 2 * max(segment.bytes for segment in segments)


class TestLinks:
    """A store that is a directory of this machine: nothing is copied, but what is linked counts as if it were, since
    it would not go away if the store deleted it."""

    def test_the_file_is_the_objects_own(self, segments: list[Segment], tmp_path: Path) -> None:
        cache = cache_of(LocalStore(tmp_path / "store"), tmp_path, 1)
        bytes_ = sum(segment.bytes for segment in segments)
        with cache.hold(SCAN, segments) as held:
            for segment in segments:
                assert held.files[segment.id].path.samefile(tmp_path / "store" / segment.path)
                assert held.files[segment.id].path.parent == cache.directory
            assert (held.account.read, held.account.bytes_fetched, cache.size) == (4, 0, bytes_)
            assert held.account.bytes_cached > 0
            with cache.hold(SCAN, segments[:1]):
                pass
            assert files(tmp_path) == {name(segment) for segment in segments}
        assert files(tmp_path) == set()  # there is no room to keep them

    def test_a_deleted_segment_can_be_read_as_long_as_there_is_room(
        self, segments: list[Segment], tmp_path: Path
    ) -> None:
        store = LocalStore(tmp_path / "store")
        data = bytes(store.get(segments[0].path, max_bytes=1 << 30))
        cache = cache_of(store, tmp_path)
        with cache.hold(SCAN, segments[:1]) as held:
            store.delete([segments[0].path])
            assert held.files[segments[0].id].path.read_bytes() == data
        with cache.hold(SCAN, segments[:1]) as held:
            assert held.files[segments[0].id].path.read_bytes() == data
        with cache_of(store, tmp_path / "other").hold(SCAN, segments[1:2]), pytest.raises(Absent):
            cache_of(store, tmp_path / "third").hold(SCAN, segments[:1]).__enter__()

    @pytest.mark.parametrize("by", [-1, 1])
    def test_a_file_of_another_size_is_corrupt(self, by: int, segments: list[Segment], tmp_path: Path) -> None:
        cache = cache_of(LocalStore(tmp_path / "store"), tmp_path)
        stated = replace(segments[0], bytes=segments[0].bytes + by)
        with pytest.raises(Corrupt, match=f"{stated.path} has {segments[0].bytes} bytes, the index states"):
            cache.hold(SCAN, [stated]).__enter__()
        assert files(tmp_path) == set()

    def test_what_cannot_be_linked_is_copied(
        self, segments: list[Segment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where the cache is on another disk."""

        def refuse(*_: object, **__: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr("os.link", refuse)
        cache = cache_of(LocalStore(tmp_path / "store"), tmp_path)
        with cache.hold(SCAN, segments) as held:
            assert held.account.bytes_fetched == cache.size == sum(segment.bytes for segment in segments)

    def test_a_link_is_never_written_through(self, segments: list[Segment], tmp_path: Path) -> None:
        store = Elsewhere(tmp_path / "store")
        data = bytes(store.get(segments[0].path, max_bytes=1 << 30))
        cache = cache_of(store, tmp_path)
        (cache.directory / name(segments[0])).hardlink_to(store.root / segments[0].path)
        with cache.hold(SCAN, segments[:1]) as held:
            assert held.account.bytes_fetched == len(data)
            assert not held.files[segments[0].id].path.samefile(store.root / segments[0].path)
        assert store.get(segments[0].path, max_bytes=1 << 30) == data

    def test_links_that_a_killed_process_left_are_removed(self, segments: list[Segment], tmp_path: Path) -> None:
        cache = cache_of(LocalStore(tmp_path / "store"), tmp_path)
        cache.hold(SCAN, segments).__enter__()
        assert cache_of(LocalStore(tmp_path / "store"), tmp_path).size == 0
        assert files(tmp_path) == set()
        assert all((tmp_path / "store" / segment.path).stat().st_size == segment.bytes for segment in segments)


def test_files_that_someone_removes_are_fetched_again(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    cache = cache_of(store, tmp_path)
    with cache.hold(SCAN, segments):
        pass
    size, reads = cache.size, len(store.reads)
    (tmp_path / "cache" / name(segments[0])).unlink()
    with cache.hold(SCAN, segments) as held:
        assert held.files[segments[0].id].path.read_bytes() == (store.root / segments[0].path).read_bytes()
    assert store.reads[reads:] == [segments[0].path]
    removed(tmp_path / "cache")
    with cache.hold(SCAN, segments, checked=True) as held, cache.hold(SCAN, segments):
        assert [held.files[one.id].path.read_bytes() for one in segments] == [
            (store.root / one.path).read_bytes() for one in segments
        ]
    assert cache.size == size
    cache.close()
    assert len(list((tmp_path / "cache" / "whole").iterdir())) == len(segments)


def test_a_file_that_someone_removes_while_it_is_held_is_fetched_for_the_next(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    cache = cache_of(store, tmp_path)
    with cache.hold(SCAN, segments[:1]) as first:
        path = first.files[segments[0].id].path
        path.unlink()
        with cache.hold(SCAN, segments[:1]) as second:
            assert second.files[segments[0].id].path.read_bytes() == (store.root / segments[0].path).read_bytes()
    assert path.exists()
    assert (cache.size, cache.held) == (segments[0].bytes, 0)
    path.unlink()
    path.write_bytes(bytes(segments[0].bytes))  # another file in its place
    with cache.hold(SCAN, segments[:1], checked=True) as third:
        assert third.files[segments[0].id].path.read_bytes() == (store.root / segments[0].path).read_bytes()


def test_links_that_someone_removes_are_made_again(segments: list[Segment], tmp_path: Path) -> None:
    cache = cache_of(LocalStore(tmp_path / "store"), tmp_path)
    for _ in range(2):
        with cache.hold(SCAN, segments, checked=True) as held:
            assert all(held.files[one.id].path.stat().st_nlink == 2 for one in segments)
        removed(tmp_path / "cache")


def test_another_process_takes_the_next_directory(
    segments: list[Segment], store: CountingStore, tmp_path: Path
) -> None:
    """Two of one machine with the same settings: neither touches the other's files."""
    code = (
        "import sys; from pathlib import Path; from lakerunner.objects.local import LocalStore\n"
        "from lakerunner.query.segment_cache.cache import SegmentCache\n"
        "cache = SegmentCache(LocalStore(Path(sys.argv[1])), Path(sys.argv[2]), 1 << 30)\n"
        "print(cache.directory.name, flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store"), str(tmp_path / "cache")]
    cache = cache_of(store, tmp_path)
    with (
        cache.hold(SCAN, segments[:1]) as held,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "cache-2\n"
        assert held.files[segments[0].id].path.exists()
        other.communicate("\n")
    cache.close()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.communicate("\n")[0] == "cache\n"
    assert files(tmp_path) == {name(segments[0])}
