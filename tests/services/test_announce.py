"""Whatever tells of an object, and however often and in whatever order: it is recorded and asked for exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from lakerunner.api.push.events import WatchedBucket
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import Prefix, Routes, SourceState
from lakerunner.objects.store import ObjectStore
from lakerunner.services import announce
from lakerunner.services.announce import Announced, Announcer
from lakerunner.services.ground import create_organization
from lakerunner.services.queue_door import Message, QueueDoor
from suites.notifications import azure_event, event_bridge, gcp_event, s3_event, sns
from suites.recorded import ACME, asked_for, memory_store, recorded

ROUTES = Routes((Prefix("exports/{collector}/", organization="acme", signal="logs"),))
# Every object of the store, and what must become of it once it is told of; None: nothing.
WORLD = {
    "otel-raw/acme/edge/logs 1+2.binpb": ("acme", "edge", "seen"),
    "otel-raw/acme/edge/ü/日本/😀.binpb": ("acme", "edge", "seen"),
    "otel-raw/acme/edge/100%25 & more=?#.binpb": ("acme", "edge", "seen"),
    f"otel-raw/{ACME.id}/edge/by-id.binpb": ("acme", "edge", "seen"),
    "otel-raw/logs/plain.binpb": ("default", "default", "seen"),
    "logs-raw/plain.binpb": ("default", "default", "seen"),
    "exports/gate/x.binpb": ("acme", "gate", "seen"),
    "otel-raw/nobody/edge/logs.binpb": ("?", "edge", "failed"),
    "otel-raw/acme/too-high.binpb": ("acme", None, "failed"),
    "db/acme/edge/20260101/logs/00/tbl_x.parquet": None,
    "elsewhere/logs.binpb": None,
    "otel-raw/acme/edge/.hidden": None,
}
KEYS = list(WORLD)
WRITERS: dict[str, Callable[[str, str], object]] = {
    "s3": lambda key, bucket: s3_event(key, bucket=bucket),
    "s3 %2F": lambda key, bucket: s3_event(key, bucket=bucket, slash=""),
    "s3 sns": lambda key, bucket: sns(s3_event(key, bucket=bucket)),
    "s3 bridge": lambda key, bucket: event_bridge(key, bucket=bucket),
    "gcp": lambda key, bucket: gcp_event(key, bucket=bucket),
    "azure": lambda key, bucket: azure_event(key, container=bucket),
}


class ListQueue:
    """A queue whose messages a test holds."""

    def __init__(self, provider: str) -> None:
        self.name, self.provider = f"list of {provider}", provider
        self.deleted: list[str] = []

    def receive(self) -> list[Message]:
        return []

    def event(self, message: Message) -> object:
        return json.loads(message.body)

    def delete(self, messages: Sequence[Message]) -> None:
        self.deleted += [message.id for message in messages]


def doors(index: Index, store: ObjectStore) -> dict[str, QueueDoor]:
    announcer = Announcer(index, store, ROUTES.route_of)
    notified = WatchedBucket(store.bucket, "", ROUTES)
    return {
        provider: QueueDoor(ListQueue(provider), announcer.keys, notified, threading.Event())
        for provider in ("s3", "gcp", "azure")
    }


def filled() -> ObjectStore:
    store = memory_store()
    for key in KEYS:
        store.put(key, key.encode())
    return store


TOLD = st.tuples(st.sampled_from(sorted(WRITERS)), st.sampled_from([*KEYS, "otel-raw/acme/edge/gone.binpb"]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(TOLD, max_size=6), max_size=6))
def test_each_object_is_recorded_exactly_once(index: Index, batches: list[list[tuple[str, str]]]) -> None:
    store = filled()
    by_provider = doors(index, store)
    for batch in batches:
        for number, (writer, key) in enumerate(batch):
            body = json.dumps(WRITERS[writer](key, store.bucket))
            by_provider[writer.split()[0]].take([Message(str(number), "r", body, 1)])
    told = {key for batch in batches for _, key in batch}
    expected = {key: WORLD[key] for key in told if WORLD.get(key)}
    assert recorded(index, store) == expected
    assert asked_for(index, store) == sorted(key for key, fate in expected.items() if fate and fate[2] == "seen")


def test_one_message_naming_everything_ten_times_in_any_form(index: Index) -> None:
    store = filled()
    found = doors(index, store)
    for _ in range(10):
        found["s3"].take([Message("1", "r", json.dumps(s3_event(*KEYS, *reversed(KEYS), bucket=store.bucket)), 1)])
    assert recorded(index, store) == {key: fate for key, fate in WORLD.items() if fate}
    assert len(asked_for(index, store)) == 7


def test_an_object_that_changed_is_another_object(index: Index) -> None:
    store = memory_store()
    announcer = Announcer(index, store, ROUTES.route_of)
    for content in (b"1", b"22"):
        store.put("logs-raw/x.binpb", content)
        assert [announcer.keys(["logs-raw/x.binpb"]) for _ in range(3)] == [1, 0, 0]
    assert asked_for(index, store) == ["logs-raw/x.binpb"] * 2


def test_what_became_of_a_batch_is_counted(index: Index) -> None:
    store = filled()
    announcer = Announcer(index, store, ROUTES.route_of)
    before = REGISTRY.get_sample_value("lakerunner_objects_announced_total", {"signal": "logs"}) or 0
    metas = [store.head(key) for key in KEYS]
    assert announcer.metas(metas) == Announced(new=7, known=0, set_aside=2, passed_over=3)
    assert announcer.metas(metas) == Announced(new=0, known=7, set_aside=2, passed_over=3)
    assert REGISTRY.get_sample_value("lakerunner_objects_announced_total", {"signal": "logs"}) == before + 7


def test_a_key_that_cannot_be_asked_for_is_set_aside(index: Index) -> None:
    store = memory_store()
    announcer = Announcer(index, store, ROUTES.route_of)
    keys = ["logs-raw/a//b.binpb", "logs-raw/../b.binpb", "logs-raw/nul\0.binpb", "logs-raw/" + "x" * 1100]
    assert announcer.keys(keys) == 0
    assert announcer.keys(keys) == 0
    failed = {
        record.source.key: record
        for record in index.sources.list(SourceState.FAILED, organization=DEFAULT_ORGANIZATION.id)
        if record.source.bucket == store.bucket
    }
    assert sorted(failed) == sorted(key.replace("\0", "�") for key in keys)
    assert failed["logs-raw/a//b.binpb"].reason == (
        "invalid object key 'logs-raw/a//b.binpb': use 1 to 1024 bytes, '/' only between "
        "parts, no part empty, '.' or '..', no control characters. Write the object again "
        "under another key"
    )
    assert asked_for(index, store) == []


def test_keys_that_cannot_be_asked_for_fill_no_table(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue's messages are not refused: so many are recorded, of one call and of an organization."""
    store = memory_store()
    name = f"flooded-{store.bucket}"
    flooded = create_organization(index, name, None)
    announcer = Announcer(index, store, ROUTES.route_of)
    monkeypatch.setattr(announce, "UNREADABLE_KEPT", 150)
    for expected in (100, 150, 150):
        keys = [f"otel-raw/{name}/edge//{expected}-{n}-{uuid4()}.binpb" for n in range(1000)]
        good = f"otel-raw/{name}/edge/{uuid4()}.binpb"
        store.put(good, b"x")
        assert announcer.keys([*keys, good]) == 1
        found = index.sources.list(SourceState.FAILED, organization=flooded.id, limit=1000)
        assert len(found) == expected
    assert announcer.keys(["logs-raw/other//organization.binpb"]) == 0
    failed = index.sources.list(SourceState.FAILED, organization=DEFAULT_ORGANIZATION.id, limit=1000)
    assert "logs-raw/other//organization.binpb" in {record.source.key for record in failed}


def test_a_set_aside_object_goes_again_once_its_organization_is_known(index: Index) -> None:
    store = memory_store()
    name = f"late-{store.bucket}"
    store.put(f"otel-raw/{name}/edge/x.binpb", b"x")
    announcer = Announcer(index, store, ROUTES.route_of)
    announcer.keys([f"otel-raw/{name}/edge/x.binpb"])
    failed = [one for one in index.sources.list(SourceState.FAILED, limit=1000) if one.source.bucket == store.bucket]
    assert announcer.again(failed) == 0
    create_organization(index, name, None)
    assert announcer.again(failed) == 1
    assert recorded(index, store) == {f"otel-raw/{name}/edge/x.binpb": (name, "edge", "seen")}


@pytest.mark.parametrize(("receives", "deleted"), [(1, False), (4, False), (5, True), (6, True), (None, True)])
@pytest.mark.parametrize("body", ['{"Records": [{}]}', '"x"', "[]"])
def test_a_message_that_is_no_notification_goes_after_five_receives(
    index: Index, receives: int | None, deleted: bool, body: str
) -> None:
    store = filled()
    queue = ListQueue("s3")
    announcer = Announcer(index, store, ROUTES.route_of)
    door = QueueDoor(queue, announcer.keys, WatchedBucket(store.bucket, "", ROUTES), threading.Event())
    before = REGISTRY.get_sample_value("lakerunner_notifications_poison_total", {"provider": "s3"}) or 0
    good = Message("good", "r", json.dumps(s3_event(KEYS[0], bucket=store.bucket)), receives)
    door.take([Message("bad", "r", body, receives), good])
    assert queue.deleted == (["bad", "good"] if deleted else ["good"])
    assert list(recorded(index, store)) == [KEYS[0]]
    assert REGISTRY.get_sample_value("lakerunner_notifications_poison_total", {"provider": "s3"}) == before + 1


def test_objects_of_other_buckets_are_counted_and_their_message_deleted(index: Index) -> None:
    store = filled()
    queue = ListQueue("gcp")
    announcer = Announcer(index, store, ROUTES.route_of)
    door = QueueDoor(queue, announcer.keys, WatchedBucket(store.bucket, "", ROUTES), threading.Event())
    before = REGISTRY.get_sample_value("lakerunner_notifications_foreign_total", {"provider": "gcp"}) or 0
    door.take([Message("1", "r", json.dumps(gcp_event(KEYS[0], bucket="someone-else")), None)])
    assert queue.deleted == ["1"]
    assert recorded(index, store) == {}
    assert REGISTRY.get_sample_value("lakerunner_notifications_foreign_total", {"provider": "gcp"}) == before + 1


def test_a_message_stays_until_its_objects_are_recorded(index: Index) -> None:
    store = filled()
    queue = ListQueue("azure")

    def away(_keys: list[str]) -> int:
        raise ConnectionError("the index is away")

    door = QueueDoor(queue, away, WatchedBucket(store.bucket, "", ROUTES), threading.Event())
    with pytest.raises(ConnectionError):
        door.take([Message("1", "r", json.dumps(azure_event(KEYS[0], container=store.bucket)), 1)])
    assert queue.deleted == []
