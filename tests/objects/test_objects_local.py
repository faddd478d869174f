"""What is particular to a store of local files: etags of the content, links, strays, durability."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from lakerunner.model.errors import Absent, LakerunnerError, Unavailable, UserError
from lakerunner.objects.local import LocalStore

LIMIT = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    directory.mkdir()
    return directory


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def keys(store: LocalStore, prefix: str = "") -> list[str]:
    return sorted(meta.key for meta in store.list(prefix))


def test_the_identity_of_an_object_survives_touching_copying_and_moving(store: LocalStore, root: Path) -> None:
    store.put("otel-raw/o/c/1.binpb", b"telemetry" * 100_000)
    before = store.head("otel-raw/o/c/1.binpb")
    assert before.etag == blake2b(b"telemetry" * 100_000, digest_size=16).hexdigest()

    os.utime(root / before.key, (1_000_000_000, 1_000_000_000))
    touched = store.head(before.key)
    assert (touched.etag, touched.modified_ns) == (before.etag, 1_000_000_000 * 10**9)

    copied = LocalStore(Path(shutil.copytree(root, root.with_name("copied"))))
    moved = LocalStore(root.rename(root.with_name("moved")))
    for other in (copied, moved):
        assert other.head(before.key).etag == before.etag
        assert other.bucket == store.bucket == "local"


def test_new_content_of_the_same_size_and_time_is_another_object(store: LocalStore, root: Path) -> None:
    store.put("a", b"first")
    first = store.head("a")
    store.put("a", b"other")
    os.utime(root / "a", ns=(first.modified_ns, first.modified_ns))
    second = store.head("a")
    assert (second.size, second.modified_ns) == (first.size, first.modified_ns)
    assert second.etag != first.etag


def test_a_listing_does_not_pay_for_etags(store: LocalStore) -> None:
    store.put("a", b"text")
    assert [meta.etag for meta in store.list("")] == [None]


def test_files_that_others_drop_are_objects(store: LocalStore, root: Path) -> None:
    for name in ("logs 1.binpb", "logs#2.binpb", "logs#3", "100%.binpb", "back\\slash"):
        (root / "otel-raw").mkdir(exist_ok=True)
        (root / "otel-raw" / name).write_bytes(name.encode())
    for name in ("logs 1.binpb", "logs#2.binpb", "logs#3", "100%.binpb", "back\\slash"):
        assert store.get(f"otel-raw/{name}", max_bytes=LIMIT) == name.encode()
    assert len(keys(store)) == 5


def test_no_link_is_followed(store: LocalStore, root: Path) -> None:
    outside = root.with_name("outside")
    outside.mkdir()
    (outside / "secret").write_bytes(b"not ours")
    store.put("inside/there", b"ours")
    (root / "file").symlink_to(outside / "secret")
    (root / "directory").symlink_to(outside)
    (root / "inner").symlink_to(root / "inside")
    (root / "broken").symlink_to(root / "nowhere")

    assert keys(store) == ["inside/there"]
    assert keys(store, "directory/") == keys(store, "inner/") == []
    for key in ("file", "directory/secret", "inner/there", "broken"):
        for read in (store.head, lambda key: store.get(key, max_bytes=LIMIT), lambda key: store.get_range(key, 0, 1)):
            with pytest.raises(Absent):
                read(key)
    with pytest.raises(UserError, match="a directory, file or link is in its place"):
        store.put("directory/new", b"x")
    store.delete(["directory/secret"])
    assert [path.name for path in outside.iterdir()] == ["secret"]

    store.put("file", b"replaces the link, not its target")
    assert (outside / "secret").read_bytes() == b"not ours"
    assert not (root / "file").is_symlink()


def test_the_root_itself_may_be_a_link(store: LocalStore, root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)
    LocalStore(link).put("a/b", b"x")
    assert keys(store) == keys(LocalStore(link)) == ["a/b"]


def test_what_is_no_object_is_not_listed_and_stops_nobody(store: LocalStore, root: Path) -> None:
    store.put("a/fine", b"x")
    os.mkfifo(root / "a" / "pipe")
    (root / "a" / "new\nline").write_bytes(b"x")
    (root / "a" / ".lakerunner-put-0123456789abcdef").write_bytes(b"half")
    (root / "a" / "empty directory").mkdir()
    with open(os.fsencode(root / "a") + b"/not-utf8-\xff", "wb"):
        pass
    assert keys(store) == ["a/fine"]
    for key in ("a/pipe", "a/empty directory"):
        with pytest.raises(Absent):
            store.get(key, max_bytes=LIMIT)
    with pytest.raises(UserError, match="are reserved"):
        store.put("a/.lakerunner-put-x", b"")


@pytest.mark.parametrize("if_absent", [False, True])
def test_a_put_is_on_disk_before_it_is_seen(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, if_absent: bool
) -> None:
    (root / "a").mkdir()
    steps: list[str] = []

    def watched(name: str, what: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            steps.append(f"{name} {what(*args)}")
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    def synced(descriptor: int) -> str:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "content"
        (found,) = (path for path in root.rglob("*") if os.path.samestat(path.stat(), os.fstat(descriptor)))
        return found.name

    watched("fsync", synced)
    watched("replace", lambda _, target: target)
    watched("link", lambda _, target: target)
    store.put("a/b/c", b"x", if_absent=if_absent)
    publish = "link c" if if_absent else "replace c"
    assert steps == ["fsync a", "fsync content", publish, "fsync b"]  # a, for it has a new directory
    assert [path.name for path in (root / "a" / "b").iterdir()] == ["c"]


def test_a_put_that_fails_leaves_nothing(store: LocalStore, root: Path) -> None:
    store.put("a/b", b"x")
    with pytest.raises(UserError, match="in its place"):
        store.put("a", b"y")
    with pytest.raises(UserError, match="in its place"):
        store.put("a/b/c", b"y")
    with pytest.raises(UserError, match="too long"):
        store.put("a/" + "n" * 300, b"y")
    assert keys(store) == ["a/b"]
    assert sorted(path.name for path in root.rglob("*")) == ["a", "b"]


def test_written_files_are_plain_ones(store: LocalStore, root: Path) -> None:
    umask = os.umask(0o027)
    try:
        store.put("a", b"x")
    finally:
        os.umask(umask)
    assert (root / "a").stat().st_mode & 0o777 == 0o640


def test_a_store_that_has_gone_is_unavailable_not_empty(store: LocalStore, root: Path) -> None:
    store.put("a", b"x")
    root.rename(root.with_name("elsewhere"))
    calls = (
        lambda: keys(store),
        lambda: store.get("a", max_bytes=LIMIT),
        lambda: store.head("a"),
        lambda: store.put("a", b"x"),
        lambda: store.delete(["a"]),
    )
    for call in calls:
        with pytest.raises(Unavailable, match="cannot be opened: No such file"):
            call()
    assert not root.exists()


def test_no_descriptor_is_left_open(store: LocalStore, root: Path) -> None:
    """Of files and directories of the store; others of this process come and go as they like."""

    def opened() -> list[str]:
        found = []
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # that of the listing itself
                found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return [path for path in found if path.startswith(str(root.resolve()))]

    with (root / "seen").open("w"):
        assert len(opened()) == 1
    store.put("a/b/c", b"x")
    store.put("a/b/d", b"x")
    for _ in range(20):
        store.put("a/b/c", b"x")
        store.get("a/b/c", max_bytes=1)
        store.head("a/b/c")
        next(store.list(""))  # and no further
        store.delete(["a/b/absent", "no/such"])
        for key in ("a/b", "a/b/c/d", "nothing"):
            with pytest.raises(Absent):
                store.head(key)
    assert opened() == []


def test_messages_name_the_object_and_no_directory_of_the_server(store: LocalStore, root: Path) -> None:
    store.put("db/a", b"1234")
    said = []
    for action in (
        lambda: store.get("db/b", max_bytes=LIMIT),
        lambda: store.get("db/a", max_bytes=1),
        lambda: store.get_range("db/a", 2, 4),
        lambda: store.put("db/a", b"", if_absent=True),
        lambda: store.put("db/a/b", b""),
        lambda: LocalStore(root / "away").head("db/a"),
    ):
        with pytest.raises(LakerunnerError) as caught:
            action()
        said.append(str(caught.value))
    assert said == [
        "the local store holds no object db/b",
        "object db/a of the local store has 4 bytes, more than the 1 allowed",
        "object db/a of the local store has 4 bytes, shorter than the requested 6 bytes",
        "object db/a of the local store exists already",
        "the local store cannot hold object db/a/b: a directory, file or link is in its place",
        "the local store cannot be opened: No such file or directory",
    ]
