"""The bus on Kafka: an idempotent producer with acks=all; kafka_member.py has the consumer groups.

Comes in: the brokers' addresses and a prefix for topic names. Missing topics are created with the brokers' own
replication factor. Payloads have no key, because no reader depends on their partition.

What always holds: publish returns after all in-sync replicas have acknowledged every payload, or raises Unavailable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakerunner.bus.kafka_member import KafkaMember, kafka_errors
from lakerunner.bus.topics import MAX_BYTES
from lakerunner.model.errors import Unavailable

_LOGGER = logging.getLogger(__name__)  # for librdkafka's messages, which would go to stderr
_ADMIN_SECONDS = 10
_DELIVERY_SECONDS = 30  # the longest time that a publish tries
_REPORT_SECONDS = 40  # by then librdkafka has reported the outcome of every message
_PROBE_SECONDS = 1.0
_FRAME_BYTES = 1 << 20  # more than Kafka adds around a payload

_CLIENT: dict[str, Any] = {
    "client.id": "lakerunner",
    "log_level": 2,  # critical: lesser problems, which it repeats without end, reach our callers as Unavailable
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
}
_PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    # One request at a time. The leader of a new partition may refuse a first request, because it does not know the
    # partition yet, and accept the second: it accepts any sequence number from a new producer. librdkafka then counts
    # the first request, which it keeps for a retry, as acknowledged along with the second, and its messages are lost.
    "max.in.flight.requests.per.connection": 1,
    "delivery.timeout.ms": _DELIVERY_SECONDS * 1000,
    "linger.ms": 1,
    "sticky.partitioning.linger.ms": 0,  # else a burst of boxes goes to one partition, and so to one member
    "compression.type": "zstd",
    "message.max.bytes": MAX_BYTES + _FRAME_BYTES,
}


class KafkaBus:
    def __init__(self, servers: str, topic_prefix: str = "", *, partitions: int = 8) -> None:
        self._client = _CLIENT | {"bootstrap.servers": servers}
        self._prefix = topic_prefix
        self._partitions = partitions
        self._admin = AdminClient(self._client, logger=_LOGGER)
        self._sender = _Sender(self._client)
        self._present: set[str] = set()
        self._subscriptions: list[KafkaMember] = []
        self._closed = False

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        if self._closed:
            raise Unavailable("the bus is closed")
        if not messages:
            return
        sender = self._sender
        with kafka_errors("publishing"):
            self._create_missing(topic for topic, _ in messages)
            try:
                sender.send([(self._prefix + topic, payload) for topic, payload in messages])
            except KafkaException as error:
                self._present.clear()  # a topic may have been deleted
                if error.args[0].fatal() and sender is self._sender:  # this producer cannot send any more
                    self._sender = _Sender(self._client)
                    sender.close()
                raise

    def subscribe(self, topics: Sequence[str], group: str) -> KafkaMember:
        if self._closed:
            raise Unavailable("the bus is closed")
        with kafka_errors("subscribing"):
            self._create_missing(topics)
            subscription = KafkaMember(self._client | {"group.id": group}, self._prefix, topics, _LOGGER)
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
    """A producer, and the thread that passes its delivery reports to the callers that wait for them."""

    def __init__(self, client: dict[str, Any]) -> None:
        self._producer = Producer(client | _PRODUCER, logger=_LOGGER)
        self._stop = Event()
        self._thread = Thread(target=self._serve, name="kafka-reports", daemon=True)
        self._thread.start()

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Return when all are acknowledged; raise KafkaException with the first refusal."""
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
    """Count the delivery reports of one publish; several threads may bring them."""

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
