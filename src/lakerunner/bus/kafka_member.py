"""One member of a Kafka consumer group: the bus's subscription on Kafka.

Comes in: a consumer's settings and topics. Goes out: deliveries, and offsets committed for what is finished.

The consumer belongs to a thread that serves it all the time. When a group rebalances, every member must answer before
any commit succeeds; a caller that works on a box for minutes could not, its thread does. What is held of a partition
that moves is then delivered to its new owner as well.

What always holds: the committed offset of a partition never passes a message that was handed out and is not
finished. The thread commits offsets and retries until it succeeds: a commit that ended with Unavailable is
completed later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakerunner.bus.bus import Delivery
from lakerunner.bus.topics import MAX_BYTES
from lakerunner.model.errors import Unavailable

_CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # The eager assignors (range, roundrobin) take all partitions from all members whenever one joins or leaves, and
    # everything held is delivered again. This one moves only what has to move.
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,  # then a dead member's partitions move
    "heartbeat.interval.ms": 1_000,  # how soon the others learn that the group rebalances
    "max.poll.interval.ms": 30_000,  # how long the others wait for a member whose thread does not answer
    "fetch.max.bytes": 4 * MAX_BYTES,
    "queued.max.messages.kbytes": 32 << 10,
}
_TURN_SECONDS = 0.05  # of the thread: the longest that a commit waits to be sent
_PROBE_SECONDS = 1.0
_COMMIT_SECONDS = 20.0
_BATCH = 500
_MOST_READY = 2000  # messages, or _MOST_BYTES, that wait to be taken; beyond it fetching pauses
_MOST_BYTES = 64 << 20

# The group rebalances: what stays ours is committed again afterwards.
_REBALANCING = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}


@dataclass
class _Partition:
    """What was handed out of one partition of ours and is not finished. Offsets may have gaps."""

    open: deque[int] = field(default_factory=deque)  # ascending
    finished: set[int] = field(default_factory=set)
    next: int = -1  # everything handed out before it is finished
    committed: int = -1

    def finish(self, offset: int) -> None:
        if self.open and offset >= self.open[0]:
            self.finished.add(offset)
        while self.open and self.open[0] in self.finished:
            self.finished.remove(self.open[0])
            self.next = self.open.popleft() + 1


class KafkaMember:
    def __init__(self, config: dict[str, Any], prefix: str, topics: Sequence[str], logger: logging.Logger) -> None:
        self._prefix = prefix
        self._changed = Condition()  # guards everything from here to _closed
        self._ready: deque[Delivery] = deque()
        self._partitions: dict[tuple[str, int], _Partition] = {}  # exactly those that are ours
        self._away: KafkaError | None = None  # while no broker can be reached
        self._trouble: KafkaError | None = None  # of fetching, reported once
        self._refused: KafkaError | None = None  # of committing
        self._ended: Exception | None = None  # the exception that ended the thread: a bug
        self._closed = False
        self._committing = False  # only the thread uses this and the next
        self._paused: bool | None = False  # None: some may be
        callbacks = {"error_cb": self._note, "on_commit": self._on_commit}
        self._consumer = Consumer(config | _CONSUMER | callbacks, logger=logger)
        names = [prefix + topic for topic in topics]
        self._consumer.subscribe(names, on_assign=self._own, on_revoke=self._forget, on_lost=self._forget)
        self._stop = Event()
        self._thread = Thread(target=self._serve, name=f"kafka {config['group.id']}", daemon=True)
        self._thread.start()

    def take(self, limit: int, wait_seconds: float) -> list[Delivery]:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ended or self._ready, wait_seconds)
            self._require_open()
            trouble = self._away or self._trouble
            if not self._ready and trouble is not None:
                self._trouble = None
                raise unavailable("taking", trouble)
            taken = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
            for delivery in taken:
                number, offset = delivery.position
                self._partitions[delivery.topic, number].open.append(offset)
        return taken

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """Finish these deliveries. Those of partitions that moved to another member are left to it."""
        with self._changed:
            self._require_open()
            for delivery in deliveries:
                number, offset = delivery.position
                if (delivery.topic, number) in self._partitions:
                    self._partitions[delivery.topic, number].finish(offset)
            self._refused = None
            self._changed.wait_for(self._settled, _COMMIT_SECONDS)
            self._require_open()
            if self._behind():
                silence = KafkaError(KafkaError._TIMED_OUT, "the group does not answer")
                raise unavailable("committing", self._refused or self._away or silence)

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the subscription is closed")
        if self._ended is not None:
            raise RuntimeError("the member's thread has ended") from self._ended

    def _settled(self) -> bool:
        """Whether a commit need not wait any longer."""
        return bool(self._closed or self._ended or self._refused or self._away or not self._behind())

    def _behind(self) -> list[TopicPartition]:
        """Return the offsets that are still to be committed."""
        return [
            TopicPartition(self._prefix + topic, number, partition.next)
            for (topic, number), partition in self._partitions.items()
            if partition.next > partition.committed
        ]

    def _key(self, name: str | None, number: int | None) -> tuple[str, int]:
        return (name or "").removeprefix(self._prefix), number or 0

    def _serve(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn()
        except Exception as error:  # noqa: BLE001 - reported: the caller's next call raises it
            with self._changed:
                self._ended = error
                self._changed.notify_all()

    def _turn(self) -> None:
        try:
            self._send_commit()
            self._throttle()
            first = self._consumer.poll(_TURN_SECONDS)  # the callbacks below are called from in here
            if first is not None:
                self._receive([first])
                self._receive(self._consumer.consume(_BATCH, 0))
            self._probe()
        except KafkaException as error:
            with self._changed:
                self._trouble = error.args[0]
            self._stop.wait(_TURN_SECONDS)

    def _receive(self, messages: Sequence[Message]) -> None:
        with self._changed:
            for message in messages:
                topic, number = self._key(message.topic(), message.partition())
                if message.error() is not None:
                    self._trouble = message.error()
                elif (topic, number) in self._partitions:
                    self._ready.append(Delivery(topic, message.value() or b"", (number, message.offset() or 0)))
            self._changed.notify_all()

    def _throttle(self) -> None:
        """Fetch no more than the caller is likely to take soon."""
        with self._changed:
            load = max(len(self._ready) / _MOST_READY, sum(len(d.payload) for d in self._ready) / _MOST_BYTES)
        if load >= 1 and self._paused is not True:
            self._consumer.pause(self._consumer.assignment())
            self._paused = True
        elif load <= 0.5 and self._paused is not False:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False

    def _send_commit(self) -> None:
        with self._changed:
            behind = self._behind()
        if behind and not self._committing:
            self._consumer.commit(offsets=behind, asynchronous=True)
            self._committing = True

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._committing = False
        errors = [error] if error is not None else [p.error for p in partitions if p.error is not None]
        with self._changed:
            if not errors:
                for each in partitions:
                    owned = self._partitions.get(self._key(each.topic, each.partition))
                    if owned is not None:
                        owned.committed = each.offset
            elif errors[0].code() not in _REBALANCING:
                self._refused = errors[0]
            self._changed.notify_all()

    def _own(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._paused:  # the new partitions are not paused
            self._paused = None
        with self._changed:
            self._partitions.update((self._key(p.topic, p.partition), _Partition()) for p in partitions)

    def _forget(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._changed:
            for each in partitions:
                self._partitions.pop(self._key(each.topic, each.partition), None)
            self._ready = deque(d for d in self._ready if (d.topic, d.position[0]) in self._partitions)
            self._changed.notify_all()

    def _note(self, error: KafkaError) -> None:
        """Record that no broker can be reached. librdkafka reports this once, and does not report when a broker is
        back."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            with self._changed:
                self._away = error
                self._changed.notify_all()

    def _probe(self) -> None:
        if self._away is not None:
            with suppress(KafkaException):
                self._consumer.list_topics(timeout=_PROBE_SECONDS)
                with self._changed:
                    self._away = None


def unavailable(doing: str, error: KafkaError) -> Unavailable:
    return Unavailable(f"Kafka, {doing}: {error.name()}", detail=error.str())


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Turn Kafka's errors into Unavailable."""
    try:
        yield
    except KafkaException as error:
        raise unavailable(doing, error.args[0]) from error
