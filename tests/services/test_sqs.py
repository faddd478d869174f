"""S3 notifies SQS, the door reads it, the index has the objects: over the real protocols, served by moto."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from lakerunner.api.push.events import WatchedBucket
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.source import Routes
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services import sqs
from lakerunner.services.announce import Announcer
from lakerunner.services.queue_door import Message, QueueDoor
from lakerunner.services.queues import open_queues
from lakerunner.services.runtime import Runtime
from lakerunner.services.sqs import SqsQueue
from lakerunner.settings import load_settings
from servers.aws import AwsServer, aws
from servers.lake import wait_until
from suites.notifications import s3_event, sns
from suites.recorded import asked_for, recorded

KEYS = ["otel-raw/acme/edge/a b+c.binpb", "otel-raw/acme/edge/ü/😀.binpb", "logs-raw/x.binpb"]


@pytest.fixture(scope="module")
def server() -> Iterator[AwsServer]:
    with aws() as started:
        yield started


@pytest.fixture(autouse=True)
def short_poll(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """An empty queue is waited on for a second; only the test of the loop waits as long as the real door."""
    if "long_poll" not in request.node.name:
        monkeypatch.setattr(sqs, "LONG_POLL_SECONDS", 1)


class Notifying:
    """A bucket, the queue that it notifies, and the door that reads it."""

    def __init__(self, server: AwsServer, index: Index, **attributes: str) -> None:
        self.server, self.index = server, index
        self.name = f"raw-{uuid4().hex[:12]}"
        self.store: ObjectStore = open_store(server.bucket(self.name))
        self.url = server.queue(self.name, **attributes)
        server.notify(self.name, self.name)
        self.queue = SqsQueue(self.url, server.queue_options)
        self.stopping = threading.Event()
        announcer = Announcer(index, self.store, Routes().route_of)
        self.door = QueueDoor(self.queue, announcer.keys, WatchedBucket(self.name, "", Routes()), self.stopping)

    def send(self, body: str) -> None:
        self.server.client("sqs").send_message(QueueUrl=self.url, MessageBody=body)

    def drain(self) -> None:
        """Take until the queue is empty of what it shows."""
        while self.server.waiting(self.url) and (messages := self.queue.receive()):
            self.door.take(messages)


@pytest.fixture
def notifying(server: AwsServer, index: Index) -> Notifying:
    return Notifying(server, index)


def test_what_is_put_is_recorded_and_the_queue_is_empty(notifying: Notifying) -> None:
    for key in [*KEYS, "db/acme/edge/x.parquet", "elsewhere/x"]:
        notifying.store.put(key, key.encode())
    assert notifying.server.waiting(notifying.url) == 6  # S3's test event too
    notifying.drain()
    assert recorded(notifying.index, notifying.store) == {
        KEYS[0]: ("acme", "edge", "seen"),
        KEYS[1]: ("acme", "edge", "seen"),
        KEYS[2]: ("default", "default", "seen"),
    }
    assert notifying.server.waiting(notifying.url) == 0


def test_ten_events_of_one_file_and_a_fan_out_of_sns(notifying: Notifying) -> None:
    notifying.store.put(KEYS[0], b"x")
    for _ in range(10):
        notifying.send(json.dumps(s3_event(KEYS[0], bucket=notifying.name)))
        notifying.send(json.dumps(sns(s3_event(KEYS[0], bucket=notifying.name))))
    notifying.drain()
    assert asked_for(notifying.index, notifying.store) == [KEYS[0]]
    assert notifying.server.waiting(notifying.url) == 0


def test_a_message_comes_again_until_its_objects_are_recorded(server: AwsServer, index: Index) -> None:
    notifying = Notifying(server, index, VisibilityTimeout="1")
    notifying.drain()
    notifying.store.put(KEYS[0], b"x")
    taken = notifying.queue.receive()
    assert [message.receives for message in taken] == [1]  # and this taker dies here
    wait_until(lambda: bool(taken_again := notifying.queue.receive()) and taken_again[0].receives == 2, "again", 30)
    assert recorded(index, notifying.store) == {}
    time.sleep(1.1)  # hidden once more
    notifying.drain()
    assert list(recorded(index, notifying.store)) == [KEYS[0]]


def test_poison_is_left_to_the_dead_letter_queue(server: AwsServer, index: Index) -> None:
    dead = f"dead-{uuid4().hex[:12]}"
    dead_url = server.queue(dead)
    redrive = json.dumps({"deadLetterTargetArn": server.arn(dead), "maxReceiveCount": 2})
    notifying = Notifying(server, index, VisibilityTimeout="0", RedrivePolicy=redrive)
    notifying.drain()
    notifying.send("not JSON")
    for _ in range(3):
        notifying.drain()
    assert server.waiting(notifying.url) == 0
    assert server.waiting(dead_url) == 1


def test_poison_without_a_dead_letter_queue_is_deleted_at_the_fifth_receive(server: AwsServer, index: Index) -> None:
    notifying = Notifying(server, index, VisibilityTimeout="0")
    notifying.drain()
    notifying.send("not JSON")
    receives = []
    while server.waiting(notifying.url):
        messages = notifying.queue.receive()
        receives += [message.receives for message in messages]
        notifying.door.take(messages)
    assert receives == [1, 2, 3, 4, 5]


def test_the_loop_records_what_comes_and_stops_in_a_long_poll(notifying: Notifying) -> None:
    runtime = Runtime("test")
    notifying.door = QueueDoor(
        notifying.queue,
        Announcer(notifying.index, notifying.store, Routes().route_of).keys,
        WatchedBucket(notifying.name, "", Routes()),
        runtime.stopping,
    )
    runtime.loop("sqs", notifying.door.step)
    notifying.store.put(KEYS[0], b"x")
    wait_until(lambda: bool(recorded(notifying.index, notifying.store)), "the object", 30)
    wait_until(lambda: notifying.server.waiting(notifying.url) == 0, "the message is deleted", 30)
    time.sleep(1.5)  # now it polls an empty queue, for twenty seconds
    started = time.monotonic()
    assert runtime.shut_down() == 0
    assert time.monotonic() - started < 15


def test_a_queue_that_is_away_or_not_there_is_unavailable(server: AwsServer) -> None:
    absent = SqsQueue(f"{server.endpoint}/123456789012/absent", server.queue_options)
    with pytest.raises(Unavailable, match=r"sqs absent: .*NonExistentQueue"):
        absent.receive()
    nowhere = SqsQueue("http://127.0.0.1:9/1/q", server.queue_options | {"endpoint": "http://127.0.0.1:9"})
    with pytest.raises(Unavailable, match="sqs q: Could not connect"):
        nowhere.delete([Message("1", "r", "", 1)])


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SQS_QUEUE_URL": "raw"}, "sqs_queue_url 'raw' is not the URL of a queue"),
        (
            {"SQS_QUEUE_URL": "https://h/1/q", "QUEUE_OPTIONS": "regoin=x"},
            "queue_options: unknown option 'regoin'; known options: acc",
        ),
        (
            {"QUEUE_OPTIONS": "region=x"},
            "queue_options: unknown option 'region'; known options: none, because no queue",
        ),
        (
            {"PUBSUB_SUBSCRIPTION": "raw"},
            "setting pubsub_subscription 'raw': write projects/PROJECT/subscriptions/NAME",
        ),
        ({"AZURE_QUEUE_URL": "https://a.queue.core.windows.net"}, "write https://ACCOUNT"),
        (
            {"AZURE_QUEUE_URL": "https://a/q"},
            "azure queue q: no credentials: set account_key or sas_token in queue_options",
        ),
        ({"AZURE_QUEUE_URL": "https://a/q", "QUEUE_OPTIONS": "account_key=*"}, "account_key is not base64"),
    ],
)
def test_settings_that_are_wrong_are_named(variables: dict[str, str], message: str) -> None:
    settings = load_settings({f"LAKERUNNER_{name}": value for name, value in variables.items()})
    with pytest.raises(UserError, match=message):
        open_queues(settings)


def test_no_queue_is_the_default() -> None:
    assert open_queues(load_settings({})) == []
    urls = {"LAKERUNNER_SQS_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/1/raw"}
    assert [queue.name for queue in open_queues(load_settings(urls))] == ["sqs raw"]
