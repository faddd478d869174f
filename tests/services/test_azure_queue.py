"""The Azure Storage queue door against Azurite, a real server of that protocol."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lakerunner.api.push.events import WatchedBucket
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.source import Routes
from lakerunner.objects.store import ObjectStore
from lakerunner.services.announce import Announcer
from lakerunner.services.azure_queue import AzureQueue
from lakerunner.services.queue_door import Message, QueueDoor
from servers.azurite import VERSION, QueueServer, azurite
from suites.notifications import azure_event
from suites.recorded import asked_for, memory_store, recorded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KEY = "otel-raw/acme/edge/a b+ü.binpb"
CACHE = Path(__file__).resolve().parents[2] / ".cache"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueServer]:
    with azurite(tmp_path_factory.mktemp("azurite"), CACHE / f"azurite-{VERSION}") as started:
        yield started


@pytest.fixture
def url(server: QueueServer) -> str:
    return server.queue(f"raw-{uuid4().hex}")


def door(index: Index, store: ObjectStore, queue: AzureQueue) -> QueueDoor:
    announcer = Announcer(index, store, Routes().route_of)
    return QueueDoor(queue, announcer.keys, WatchedBucket(store.bucket, "", Routes()), threading.Event())


@pytest.mark.parametrize("shown", ["account_key", "sas_token"])
def test_what_event_grid_writes_is_recorded_then_deleted(
    server: QueueServer, index: Index, url: str, shown: str
) -> None:
    store = memory_store()
    store.put(KEY, b"x")
    queue = AzureQueue(url, server.options if shown == "account_key" else {"sas_token": "?" + server.sas("rpd")})
    event = json.dumps(azure_event(KEY, container=store.bucket))
    for _ in range(5):
        server.send(url, base64.b64encode(event.encode()).decode())
        server.send(url, event)
    messages = queue.receive()
    assert [message.receives for message in messages] == [1] * 10
    door(index, store, queue).take(messages)
    assert recorded(index, store) == {KEY: ("acme", "edge", "seen")}
    assert asked_for(index, store) == [KEY]
    assert server.waiting(url) == 0
    queue.delete(messages)  # once more: they are gone, and that is no error


def test_poison_stays_until_its_fifth_receive(server: QueueServer, index: Index, url: str) -> None:
    store = memory_store()
    queue = AzureQueue(url, server.options)
    for text in ("no <base64> & no JSON", base64.b64encode(b"{}").decode()):
        server.send(url, text)
    messages = queue.receive()
    door(index, store, queue).take(messages)
    assert server.waiting(url) == 2
    fifth = [replace(message, receives=5) for message in messages]
    door(index, store, queue).take(fifth)
    assert server.waiting(url) == 0
    assert recorded(index, store) == {}


def test_a_wrong_key_and_an_absent_queue_are_unavailable(server: QueueServer, url: str) -> None:
    wrong = AzureQueue(url, server.options | {"account_key": base64.b64encode(b"wrong").decode()})
    with pytest.raises(Unavailable, match=r"azure queue raw-\w+ answers 403 \w+ to GET"):
        wrong.receive()
    with pytest.raises(Unavailable, match="azure queue absent returned 404 QueueNotFound for GET"):
        AzureQueue(f"{server.endpoint}/absent", server.options).receive()
    with pytest.raises(Unavailable, match="cannot reach azure queue q"):
        AzureQueue("http://127.0.0.1:9/q", server.options).delete([Message("1", "r", "", 1)])
