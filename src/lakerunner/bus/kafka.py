"""The bus on Kafka: an idempotent producer with acks=all, consumer groups, commits by hand.

Comes in: the brokers' addresses and a prefix for topic names. Topics that are missing are created with the
brokers' own replication factor. Payloads have no key: which partition they go to does not matter to anyone.

What always holds: publish returns after every payload is acknowledged by all in-sync replicas; the committed
offset of a partition never passes a message that was not finished, in whatever order the finishing comes.

Assignment is cooperative-sticky. A member may work on one box for many minutes without asking for more: with
the eager assignors (range, roundrobin) the whole group would stand still for it whenever a member comes or goes,
and everything held would come again. Here only the partitions that move are given up, and the others go on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import MAX_BYTES
from lakerunner.model.errors import Unavailable

_LOGGER = logging.getLogger(__name__)  # librdkafka's own words, which would go to stderr
_ADMIN_SECONDS = 10
_DELIVERY_SECONDS = 30  # the longest a publish tries
_REPORT_SECONDS = 40  # by then librdkafka has said of every message how it ended
_PROBE_SECONDS = 1.0
_FRAME_BYTES = 1 << 20  # more than Kafka adds around a payload

_CLIENT: dict[str, Any] = {
    "client.id": "lakerunner",
    "log_level": 2,  # critical: lesser trouble, which it repeats without end, reaches our callers as Unavailable
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
}
_PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.timeout.ms": _DELIVERY_SECONDS * 1000,
    "linger.ms": 1,
    "sticky.partitioning.linger.ms": 0,  # else a burst of boxes goes to one partition, and so to one member
    "compression.type": "zstd",
    "message.max.bytes": MAX_BYTES + _FRAME_BYTES,
}
_CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "max.poll.interval.ms": 30 * 60 * 1000,  # one box may take that long
    "session.timeout.ms": 10_000,  # then a dead member's partitions move; heartbeats have a thread of their own
    "heartbeat.interval.ms": 2_000,
    "fetch.max.bytes": 4 * MAX_BYTES,
}
# The group is being divided anew. Of the partitions that stay ours the offset is committed again afterwards.
_REBALANCING = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}


@contextmanager
def _unavailable(doing: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        raise Unavailable(f"Kafka, {doing}: {reason.str()} ({reason.name()})") from error


class KafkaBus:
    def __init__(self, servers: str, topic_prefix: str = "", *, partitions: int = 8) -> None:
        self._client = _CLIENT | {"bootstrap.servers": servers}
        self._prefix = topic_prefix
        self._partitions = partitions
        self._admin = AdminClient(self._client, logger=_LOGGER)
        self._sender = _Sender(self._client)
        self._present: set[str] = set()
        self._subscriptions: list[_KafkaSubscription] = []
        self._closed = False

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        if self._closed:
            raise Unavailable("the bus is closed")
        if not messages:
            return
        sender = self._sender
        with _unavailable("publishing"):
            self._create_missing(topic for topic, _ in messages)
            try:
                sender.send([(self._prefix + topic, payload) for topic, payload in messages])
            except KafkaException as error:
                self._present.clear()  # a topic may have been deleted
                if error.args[0].fatal() and sender is self._sender:  # it will not send anything any more
                    self._sender = _Sender(self._client)
                    sender.close()
                raise

    def subscribe(self, topics: Sequence[str], group: str) -> _KafkaSubscription:
        if self._closed:
            raise Unavailable("the bus is closed")
        with _unavailable("subscribing"):
            self._create_missing(topics)
            subscription = _KafkaSubscription(self._client | {"group.id": group}, self._prefix, topics)
        self._subscriptions.append(subscription)
        return subscription

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for subscription in self._subscriptions:
                subscription.close()
            self._sender.close()

    def _create_missing(self, topics: Iterable[str]) -> None:
        wanted = {self._prefix + topic for topic in topics} - self._present
        if not wanted:
            return
        there = self._admin.list_topics(timeout=_ADMIN_SECONDS).topics
        limit = {"max.message.bytes": str(MAX_BYTES + _FRAME_BYTES)}
        missing = [
            NewTopic(name, num_partitions=self._partitions, replication_factor=-1, config=limit)
            for name in sorted(wanted - there.keys())
        ]
        made = self._admin.create_topics(missing, request_timeout=_ADMIN_SECONDS) if missing else {}
        for future in made.values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                    raise
        self._present |= wanted


class _Sender:
    """A producer, and the thread that hands its delivery reports to those who wait for them."""

    def __init__(self, client: dict[str, Any]) -> None:
        self._producer = Producer(client | _PRODUCER, logger=_LOGGER)
        self._stop = Event()
        self._thread = Thread(target=self._serve, name="kafka-reports", daemon=True)
        self._thread.start()

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Returns when all are acknowledged; KafkaException with the first refusal."""
        receipt = _Receipt(len(messages))
        for topic, payload in messages:
            self._enqueue(topic, payload, receipt.report)
        if not receipt.complete.wait(_REPORT_SECONDS):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no delivery report"))
        if receipt.errors:
            raise KafkaException(receipt.errors[0])

    def close(self) -> None:
        self._producer.flush(_PROBE_SECONDS)
        self._stop.set()
        self._thread.join()

    def _enqueue(self, topic: str, payload: bytes, report: Callable[[KafkaError | None, Message], None]) -> None:
        try:
            self._producer.produce(topic, payload, on_delivery=report)
        except BufferError:  # the queue is full: let it drain once, within the time that its messages have
            self._producer.flush(_DELIVERY_SECONDS)
            try:
                self._producer.produce(topic, payload, on_delivery=report)
            except BufferError as error:
                raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "the producer's queue is full")) from error

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.1)


@dataclass
class _Receipt:
    """Counts the delivery reports of one publish; several threads may bring them."""

    missing: int
    errors: list[KafkaError] = field(default_factory=list)
    complete: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def report(self, error: KafkaError | None, _message: Message) -> None:
        with self.lock:
            if error is not None:
                self.errors.append(error)
            self.missing -= 1
            if not self.missing:
                self.complete.set()


@dataclass
class _Partition:
    """What was delivered of one partition and is not all finished. Offsets may have gaps."""

    open: deque[int] = field(default_factory=deque)  # ascending
    finished: set[int] = field(default_factory=set)
    next: int = -1  # everything before it is finished
    committed: int = -1

    def finish(self, offset: int) -> None:
        if self.open and offset >= self.open[0]:
            self.finished.add(offset)
        while self.open and self.open[0] in self.finished:
            self.finished.remove(self.open[0])
            self.next = self.open.popleft() + 1


class _KafkaSubscription:
    def __init__(self, config: dict[str, Any], prefix: str, topics: Sequence[str]) -> None:
        self._prefix = prefix
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._trouble: KafkaError | None = None
        self._owed = False  # a commit was turned away by a rebalance
        self._closed = False
        self._consumer = Consumer(config | _CONSUMER | {"error_cb": self._note}, logger=_LOGGER)
        self._consumer.subscribe([prefix + topic for topic in topics], on_revoke=self._forget, on_lost=self._forget)

    def take(self, limit: int, wait_seconds: float) -> list[Delivery]:
        self._require_open()
        with _unavailable("taking"):
            if self._owed:
                self._save()
            first = self._consumer.poll(wait_seconds)
            if first is None:
                self._probe()
                return []
            if (error := first.error()) is not None:
                raise KafkaException(error)
        deliveries = [self._delivered(first)]
        with suppress(KafkaException):  # the first is in hand; lasting trouble shows at the next take
            rest = self._consumer.consume(limit - 1, 0) if limit > 1 else []
            deliveries += [self._delivered(message) for message in rest if message.error() is None]
        return deliveries

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """What belongs to partitions that moved to another member is left to it."""
        self._require_open()
        for delivery in deliveries:
            number, offset = delivery.position
            if partition := self._partitions.get((delivery.topic, number)):
                partition.finish(offset)
        with _unavailable("committing"):
            self._save()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._owed:
                with suppress(KafkaException):  # then these come once more
                    self._save()
            self._consumer.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the subscription is closed")

    def _delivered(self, message: Message) -> Delivery:
        topic = (message.topic() or "").removeprefix(self._prefix)
        number, offset = message.partition() or 0, message.offset() or 0
        self._partitions.setdefault((topic, number), _Partition()).open.append(offset)
        return Delivery(topic, message.value() or b"", (number, offset))

    def _save(self) -> None:
        """Commit the offset of every partition in which more is finished than is committed."""
        moved = {name: part for name, part in self._partitions.items() if part.next > part.committed}
        errors: list[KafkaError] = []
        if moved:
            offsets = [TopicPartition(self._prefix + topic, n, part.next) for (topic, n), part in moved.items()]
            try:
                answers = self._consumer.commit(offsets=offsets, asynchronous=False)
                errors = [answer.error for answer in answers if answer.error is not None]
            except KafkaException as error:
                errors = [error.args[0]]
        self._owed = any(error.code() in _REBALANCING for error in errors)
        if errors and not self._owed:
            raise KafkaException(errors[0])
        if not errors:
            for part in moved.values():
                part.committed = part.next

    def _forget(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._partitions.pop((partition.topic.removeprefix(self._prefix), partition.partition), None)

    def _note(self, error: KafkaError) -> None:
        """librdkafka says once that it has lost all brokers, and not when it has found one again."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def _probe(self) -> None:
        if self._trouble is not None:
            try:
                self._consumer.list_topics(timeout=_PROBE_SECONDS)
            except KafkaException:
                raise KafkaException(self._trouble) from None
            self._trouble = None
