"""The Pub/Sub door against a server that speaks the documented REST (tests/servers/pubsub.py says what that proves)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lakerunner.api.push.events import WatchedBucket
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.source import Routes
from lakerunner.objects.store import ObjectStore
from lakerunner.services.announce import Announcer
from lakerunner.services.pubsub_gcp import PubsubQueue
from lakerunner.services.queue_door import QueueDoor
from servers.pubsub import SUBSCRIPTION, PubsubServer, pubsub
from suites.recorded import asked_for, memory_store, recorded

KEY = "otel-raw/acme/edge/a b+ü.binpb"


@pytest.fixture
def server() -> Iterator[PubsubServer]:
    with pubsub() as started:
        yield started


def created(store: ObjectStore, key: str) -> dict[str, str]:
    return {"eventType": "OBJECT_FINALIZE", "bucketId": store.bucket, "objectId": key, "payloadFormat": "NONE"}


def door(index: Index, store: ObjectStore, queue: PubsubQueue) -> QueueDoor:
    announcer = Announcer(index, store, Routes().route_of)
    return QueueDoor(queue, announcer.keys, WatchedBucket(store.bucket, "", Routes()), threading.Event())


def test_what_is_published_is_recorded_then_acknowledged(server: PubsubServer, index: Index) -> None:
    store = memory_store()
    store.put(KEY, b"x")
    queue = PubsubQueue(SUBSCRIPTION, server.endpoint)
    numbers = [server.publish(b"", **created(store, KEY)) for _ in range(10)]
    numbers += [
        server.publish(b"", **created(store, "db/x.parquet")),
        server.publish(b"", **created(store, "a/gone.binpb")),
    ]
    pulled = queue.receive()
    assert server.acknowledged == []
    door(index, store, queue).take(pulled)
    assert server.acknowledged == numbers
    assert recorded(index, store) == {KEY: ("acme", "edge", "seen")}
    assert asked_for(index, store) == [KEY]


def test_an_empty_subscription_answers_with_nothing(server: PubsubServer) -> None:
    assert PubsubQueue(SUBSCRIPTION, server.endpoint).receive() == []


@pytest.mark.parametrize("counts", [False, True])
def test_poison_goes_to_the_dead_letter_topic_where_there_is_one(
    server: PubsubServer, index: Index, counts: bool
) -> None:
    server.counts = counts
    store = memory_store()
    queue = PubsubQueue(SUBSCRIPTION, server.endpoint)
    number = server.publish(b"not ours", some="attribute")
    door(index, store, queue).take(queue.receive())
    assert server.acknowledged == ([] if counts else [number])


def test_errors_of_the_service_are_unavailable(server: PubsubServer) -> None:
    queue = PubsubQueue(SUBSCRIPTION, server.endpoint)
    server.failing = 1
    with pytest.raises(Unavailable, match=r"pubsub raw returned 503 for pull: .*try again later"):
        queue.receive()
    with pytest.raises(Unavailable, match="pubsub other returned 404 for pull"):
        PubsubQueue("projects/shop/subscriptions/other", server.endpoint).receive()
    with pytest.raises(Unavailable, match="cannot reach pubsub raw"):
        PubsubQueue(SUBSCRIPTION, "http://127.0.0.1:9").receive()
