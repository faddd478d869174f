"""What every ObjectStore must do: each sentence of objects/store.py. A test class inherits this one and gives the
fixture `store`, an empty store of its own for each test."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakerunner.model.errors import Absent, Conflict, Corrupt, TooLarge, UserError
from lakerunner.objects.store import ObjectMeta, ObjectStore

LIMIT = 64 << 20
MORE_THAN_A_PAGE = 1100

NOT_KEYS = ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\nb", "a\0b", "\ud800", "k" * 1025]
ODD_KEYS = [
    "a b",
    "a%20b",
    "a%2Fb",
    "a#1",
    "a+b&c=d?e",
    "~a*b",
    "...",
    ".hidden",
    "-",
    "day=2026-11-15/hour=07/ü-日本-🚚.binpb.gz",
    "k" * 200 + "/" + "k" * 200,
]


class ObjectStoreSuite:
    def test_bucket_is_a_name(self, store: ObjectStore) -> None:
        assert store.bucket
        assert "/" not in store.bucket

    @pytest.mark.parametrize("key", NOT_KEYS)
    def test_what_is_no_key_is_refused_by_every_call(self, store: ObjectStore, key: str) -> None:
        store.put("a", b"stays")
        calls = (
            lambda: store.put(key, b""),
            lambda: store.put_file(key, Path(__file__)),
            lambda: store.get(key, max_bytes=LIMIT),
            lambda: store.fetch(key, max_bytes=LIMIT),
            lambda: store.get_range(key, 0, 1),
            lambda: store.get_range(key, 0, 0),
            lambda: store.local_path(key),
            lambda: store.head(key),
            lambda: store.delete([key]),
        )
        for call in calls:
            with pytest.raises(UserError, match="invalid object key"):
                call()
        assert keys(store) == ["a"]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_every_key_comes_back_as_it_went_in(self, store: ObjectStore, key: str) -> None:
        store.put(key, key.encode(), if_absent=True)
        assert bytes(store.get(key, max_bytes=LIMIT)) == key.encode()
        assert store.head(key).key == key
        assert keys(store) == [key]
        store.delete([key])
        assert keys(store) == []

    @pytest.mark.parametrize("size", [0, 1, 100_000, 12 << 20])
    def test_put_writes_the_whole_object(self, store: ObjectStore, size: int) -> None:
        data = bytes(range(251)) * (size // 251 + 1)
        store.put("some/where", memoryview(data)[:size])
        assert store.get("some/where", max_bytes=LIMIT) == data[:size]
        assert store.head("some/where").size == size

    @pytest.mark.parametrize("if_absent", [False, True])
    def test_put_returns_what_head_says_or_nothing(self, store: ObjectStore, if_absent: bool) -> None:
        meta = store.put("some/where", memoryview(b"content"), if_absent=if_absent)
        assert meta in (None, store.head("some/where"))

    @pytest.mark.parametrize("size", [0, 1, 100_000, 8 << 20, 21 << 20])
    def test_put_file_writes_the_whole_file(self, store: ObjectStore, tmp_path: Path, size: int) -> None:
        file = tmp_path / "file"
        file.write_bytes(os.urandom(size))
        store.put_file("some/where", file)
        assert store.get("some/where", max_bytes=LIMIT) == file.read_bytes()
        assert keys(store) == ["some/where"]
        file.write_bytes(b"")
        assert store.head("some/where").size == size

    def test_put_file_replaces_at_once(self, store: ObjectStore, tmp_path: Path) -> None:
        contents = [bytes([value]) * (9 << 20) for value in range(3)]
        files = [tmp_path / f"{number}" for number in range(3)]
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)
        store.put_file("a", files[0])
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(lambda: [store.put_file("a", file) for file in files * 2])
            seen = {bytes(store.get("a", max_bytes=LIMIT))}
            while not writing.done():
                seen.add(bytes(store.get("a", max_bytes=LIMIT)))
            writing.result()
        assert seen <= set(contents)
        assert store.get("a", max_bytes=LIMIT) == contents[2]
        assert keys(store) == ["a"]

    def test_a_file_that_is_not_there_is_no_object(self, store: ObjectStore, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            store.put_file("a", tmp_path / "nothing")
        assert keys(store) == []

    def test_put_takes_any_flat_buffer(self, store: ObjectStore) -> None:
        store.put("signed", memoryview(b"\xff\x01").cast("b"))
        assert store.get("signed", max_bytes=2) == b"\xff\x01"

    def test_put_replaces(self, store: ObjectStore) -> None:
        store.put("a/b", b"a longer first text")
        store.put("a/b", b"second")
        assert store.get("a/b", max_bytes=LIMIT) == b"second"

    def test_put_is_atomic(self, store: ObjectStore) -> None:
        contents = [bytes([value]) * 300_000 for value in range(8)]
        store.put("a", contents[0])
        with ThreadPoolExecutor(2) as pool:
            writing = pool.submit(lambda: [store.put("a", content) for content in contents * 4])
            seen = [bytes(store.get("a", max_bytes=LIMIT))]
            while not writing.done():
                seen.append(bytes(store.get("a", max_bytes=LIMIT)))
            writing.result()
        assert set(seen) <= set(contents)
        assert keys(store) == ["a"]

    def test_conditional_put_never_replaces(self, store: ObjectStore) -> None:
        store.put("a/b", b"first", if_absent=True)
        with pytest.raises(Conflict, match="a/b"):
            store.put("a/b", b"second", if_absent=True)
        assert store.get("a/b", max_bytes=LIMIT) == b"first"
        store.delete(["a/b"])
        store.put("a/b", b"third", if_absent=True)
        assert store.get("a/b", max_bytes=LIMIT) == b"third"

    def test_of_many_conditional_puts_exactly_one_wins(self, store: ObjectStore) -> None:
        def attempt(writer: int) -> int | None:
            try:
                store.put("race/key", b"%d" % writer * 50_000, if_absent=True)
            except Conflict:
                return None
            return writer

        with ThreadPoolExecutor(8) as pool:
            winners = [writer for writer in pool.map(attempt, range(8)) if writer is not None]
        assert len(winners) == 1
        assert store.get("race/key", max_bytes=LIMIT) == b"%d" % winners[0] * 50_000
        assert keys(store) == ["race/key"]

    def test_get_is_bounded(self, store: ObjectStore) -> None:
        store.put("ten", b"0123456789")
        assert store.get("ten", max_bytes=10) == b"0123456789"
        with pytest.raises(TooLarge, match=r"ten .*has 10 bytes, more than the 9 allowed"):
            store.get("ten", max_bytes=9)

    def test_fetch_is_bounded(self, store: ObjectStore) -> None:
        store.put("ten", b"0123456789")
        with pytest.raises(TooLarge, match=r"ten .*has 10 bytes, more than the 9 allowed"):
            store.fetch("ten", max_bytes=9)

    @pytest.mark.parametrize("size", [0, 1, 3 << 20])
    def test_fetch_gives_the_bytes_and_what_head_says_of_them(self, store: ObjectStore, size: int) -> None:
        store.put("a/b", b"x" * size)
        meta, data = store.fetch("a/b", max_bytes=size)
        assert data == b"x" * size
        assert meta == store.head("a/b")

    def test_fetch_never_mixes_two_versions(self, store: ObjectStore) -> None:
        contents = [bytes([value]) * 300_000 for value in range(8)]
        store.put("a", contents[0])
        with ThreadPoolExecutor(2) as pool:
            writing = pool.submit(lambda: [store.put("a", content) for content in contents * 4])
            seen = [store.fetch("a", max_bytes=LIMIT)]
            while not writing.done():
                seen.append(store.fetch("a", max_bytes=LIMIT))
            writing.result()
        by_etag = {meta.etag: bytes(data) for meta, data in seen}
        assert set(by_etag.values()) <= set(contents)
        assert [by_etag[meta.etag] == data for meta, data in seen] == [True] * len(seen)

    @pytest.mark.parametrize(("start", "length"), [(0, 10), (0, 1), (3, 4), (9, 1), (0, 0), (10, 0)])
    def test_get_range_gives_these_bytes_exactly(self, store: ObjectStore, start: int, length: int) -> None:
        store.put("ten", b"0123456789")
        assert store.get_range("ten", start, length) == b"0123456789"[start : start + length]

    @pytest.mark.parametrize(("start", "length"), [(0, 11), (9, 2), (10, 1), (50, 5), (11, 0), (0, 1 << 50)])
    def test_get_range_of_a_shorter_object_is_corrupt(self, store: ObjectStore, start: int, length: int) -> None:
        store.put("ten", b"0123456789")
        with pytest.raises(Corrupt, match="ten") as raised:
            store.get_range("ten", start, length)
        assert not isinstance(raised.value, Absent)

    @pytest.mark.parametrize(("start", "length"), [(-1, 5), (5, -1)])
    def test_get_range_wants_a_range(self, store: ObjectStore, start: int, length: int) -> None:
        store.put("ten", b"0123456789")
        with pytest.raises(UserError, match="not a range"):
            store.get_range("ten", start, length)

    @pytest.mark.parametrize("key", ["nothing", "a", "a/b", "a/b/c/d", "no/such/directory"])
    def test_reading_what_is_not_there_is_absent(self, store: ObjectStore, key: str) -> None:
        store.put("a/b/c", b"is there")
        calls = (
            lambda: store.get(key, max_bytes=LIMIT),
            lambda: store.fetch(key, max_bytes=LIMIT),
            lambda: store.get_range(key, 0, 1),
            lambda: store.get_range(key, 0, 0),
            lambda: store.head(key),
        )
        for call in calls:
            with pytest.raises(Absent, match=key):
                call()

    def test_a_local_path_is_the_object_or_none(self, store: ObjectStore) -> None:
        store.put("a/b", b"content")
        path = store.local_path("a/b")
        assert path is None or path.read_bytes() == b"content"
        if path is not None:
            for key in ("a", "a/c", "b/c"):
                with pytest.raises(Absent, match=key):
                    store.local_path(key)

    def test_head_says_what_is_there_now(self, store: ObjectStore) -> None:
        before = time.time_ns()
        store.put("a/b", b"first")
        first = store.head("a/b")
        assert (first.key, first.size) == ("a/b", 5)
        # Some stores count whole seconds.
        assert before - 2_000_000_000 < first.modified_ns < time.time_ns() + 2_000_000_000
        assert first.etag
        assert '"' not in first.etag
        assert store.head("a/b") == first
        store.put("a/b", b"other")
        assert store.head("a/b").etag not in (None, first.etag)

    def test_list_tells_the_same_as_head(self, store: ObjectStore) -> None:
        store.put("a/b", b"first")
        (listed,) = store.list("")
        head = store.head("a/b")
        assert (listed.key, listed.size, listed.modified_ns) == (head.key, head.size, head.modified_ns)
        assert listed.etag in (None, head.etag)
        assert isinstance(listed, ObjectMeta)

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["db/a", "otel-raw/o/c/1", "otel-raw/o/c/12", "otel-raw/o/c-2/1", "otel-raw/o2/c/1", "otel.txt"]),
            ("otel", ["otel-raw/o/c/1", "otel-raw/o/c/12", "otel-raw/o/c-2/1", "otel-raw/o2/c/1", "otel.txt"]),
            ("otel-raw/o", ["otel-raw/o/c/1", "otel-raw/o/c/12", "otel-raw/o/c-2/1", "otel-raw/o2/c/1"]),
            ("otel-raw/o/", ["otel-raw/o/c/1", "otel-raw/o/c/12", "otel-raw/o/c-2/1"]),
            ("otel-raw/o/c/1", ["otel-raw/o/c/1", "otel-raw/o/c/12"]),
            ("otel-raw/o/c/12", ["otel-raw/o/c/12"]),
            ("otel-raw/o/c/12/", []),
            ("otel-raw/o/c/3", []),
            ("no/such/directory/", []),
            ("/", []),
            ("/otel", []),
            ("otel-raw//o", []),
            ("../", []),
            ("otel-raw/../db/", []),
        ],
    )
    def test_list_takes_any_prefix(self, store: ObjectStore, prefix: str, expected: list[str]) -> None:
        for key in ("db/a", "otel-raw/o/c/1", "otel-raw/o/c/12", "otel-raw/o/c-2/1", "otel-raw/o2/c/1", "otel.txt"):
            store.put(key, b"x")
        assert keys(store, prefix) == sorted(expected)

    def test_an_empty_store_lists_nothing(self, store: ObjectStore) -> None:
        assert keys(store) == []

    def test_list_leaves_out_what_is_not_after(self, store: ObjectStore) -> None:
        """In the order of the whole key: a server that orders by directory would put a/1 before "a b"."""
        there = sorted(["a b", "a-2/1", "a/1", "a/1-x", "a/2/y", "a0", "b", "é"])
        for key in there:
            store.put(key, b"x")
        for after in ("", "a", "a b", "a-", "a-2", "a-2/1", "a/", "a/1", "a/2", "a/2/y", "a/3", "b", "z", "é", "ü"):
            assert keys(store, after=after) == [key for key in there if key > after]
        assert keys(store, "a/", after="a/1") == ["a/1-x", "a/2/y"]

    def test_many_objects_are_listed_and_deleted(self, store: ObjectStore) -> None:
        there = [f"many/{number % 3}/{number:05}" for number in range(MORE_THAN_A_PAGE)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), there))
        assert keys(store, "many/") == sorted(there)
        store.delete(key for key in there)
        assert keys(store, "many/") == []

    def test_delete_leaves_the_others(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "a/3", "b"):
            store.put(key, b"x")
        store.delete(["a/1", "a/3"])
        assert keys(store) == ["a/2", "b"]

    def test_deleting_what_is_absent_is_no_error(self, store: ObjectStore) -> None:
        store.put("a/1", b"x")
        store.put("a/2", b"x")
        store.delete([])
        store.delete(["nothing", "a", "a/1", "a/1/deeper", "no/such/directory", "a/2"])
        store.delete(["a/1"])
        assert keys(store) == []


def keys(store: ObjectStore, prefix: str = "", after: str | None = None) -> list[str]:
    """Sorted, for the order is unspecified; a key listed twice would stand here twice."""
    return sorted(meta.key for meta in store.list(prefix, after=after))
