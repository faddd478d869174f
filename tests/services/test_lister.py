"""The lister covers every prefix of the routes, finds each object once, and a key that cannot be read hides little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.source import Prefix, Routes
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services.announce import BATCH, Announcer, Lister, Newcomers
from servers.aws import AwsServer, aws
from suites.recorded import asked_for, memory_store, recorded

ROUTES = Routes((Prefix("exports/{collector}/", organization="acme"), Prefix("otel-raw/logs/deep/", collector="deep")))
KEYS = [
    "exports/gate/x.binpb",
    "otel-raw/acme/edge/x.binpb",
    "otel-raw/logs/x.binpb",
    "otel-raw/logs/deep/x.binpb",
    "logs-raw/x.binpb",
]
STRAYS = ["db/acme/edge/x.parquet", "exports/x.binpb", "other/x.binpb", "logs-raw-not/x.binpb"]


def lister(index: Index, store: ObjectStore, settle_ns: int = 0) -> Lister:
    announcer = Announcer(index, store, ROUTES.route_of)
    return Lister(Newcomers(index, store), announcer, ROUTES.roots, settle_ns)


def test_every_prefix_is_listed_and_each_object_announced_once(index: Index) -> None:
    store = memory_store()
    for key in [*KEYS, *STRAYS]:
        store.put(key, b"x")
    first = lister(index, store)
    assert [first.poll(0), first.poll(0), lister(index, store).poll(0)] == [5, 0, 0]
    assert recorded(index, store) == {
        KEYS[0]: ("acme", "gate", "seen"),
        KEYS[1]: ("acme", "edge", "seen"),
        KEYS[2]: ("default", "default", "seen"),
        KEYS[3]: ("default", "deep", "seen"),
        KEYS[4]: ("default", "default", "seen"),
    }
    store.put("logs-raw/later.binpb", b"x")
    assert first.poll(0) == 1
    assert len(asked_for(index, store)) == 6


def test_more_objects_than_one_batch(index: Index) -> None:
    store = memory_store()
    for number in range(BATCH + 1):
        store.put(f"logs-raw/{number}.binpb", b"x")
    assert lister(index, store).poll(0) == BATCH + 1


def test_a_young_local_file_is_left_for_the_next_poll(index: Index, tmp_path: Path) -> None:
    store = open_store(StoreAddress(tmp_path.as_uri()))
    store.put("logs-raw/x.binpb", str(tmp_path).encode())
    changed_ns = (tmp_path / "logs-raw" / "x.binpb").stat().st_mtime_ns
    looking = lister(index, store, settle_ns=1000)
    assert looking.poll(changed_ns + 999) == 0
    assert looking.poll(changed_ns + 1000) == 1


@pytest.fixture(scope="module")
def server() -> Iterator[AwsServer]:
    with aws() as started:
        yield started


@pytest.mark.parametrize("before", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_foreign_key_with_an_empty_part_hides_its_own_directory_only_and_is_named(
    server: AwsServer, index: Index, before: int
) -> None:
    """obstore cannot represent such a key, nor pass over it; with 1000 `before` it, it is not on the first page."""
    bucket = f"odd-keys-{before}"
    store = open_store(server.bucket(bucket))
    found = ["logs-raw/a.binpb", "logs-raw/a/b/x.binpb", "logs-raw/z/y/x.binpb", "otel-raw/acme/edge/x.binpb"]
    for key in [*found, "logs-raw/a/bad/x.binpb"]:
        store.put(key, b"x")
    for number in range(before):
        store.put(f"logs-raw/0/{number}.binpb", b"x")
    server.client("s3").put_object(Bucket=bucket, Key="logs-raw/a/bad//b.binpb", Body=b"x")
    looking = lister(index, store)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r'"logs-raw/a/bad//b.binpb".*Delete or rename that object'):
            looking.poll(0)
    known = recorded(index, store)
    assert sorted(key for key in known if "/0/" not in key) == found
    assert len(known) == before + len(found)
    server.client("s3").delete_object(Bucket=bucket, Key="logs-raw/a/bad//b.binpb")
    assert looking.poll(0) == 1
    assert "logs-raw/a/bad/x.binpb" in recorded(index, store)
