"""The bus on a real Kafka broker."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from lakerunner.bus.bus import Bus, Delivery
from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.kafka_member import KafkaMember
from lakerunner.bus.topics import MAX_BYTES
from lakerunner.model.errors import Unavailable
from servers.kafka import KafkaBroker
from servers.lake import wait_until
from suites.bus import (
    PATIENCE,
    BusAddress,
    ServerBusSuite,
    nothing_comes_but_news,
    numbers,
    payloads,
    publish,
    settle,
    take_all,
    take_until,
    unique,
)

PREFIX = "lake-1."


@pytest.fixture
def bus(kafka: KafkaBroker) -> Iterator[KafkaBus]:
    bus = KafkaBus(kafka.servers, PREFIX, partitions=4)
    yield bus
    bus.close()


class TestKafkaBus(ServerBusSuite):
    exact = False

    @pytest.fixture
    def bus_address(self, kafka: KafkaBroker) -> BusAddress:
        return BusAddress(f"kafka://{kafka.servers}", topic_prefix=PREFIX)

    @pytest.mark.slow  # the group waits ten seconds for the dead member's heartbeat
    def test_what_a_killed_process_held_comes_again(
        self, bus: Bus, bus_address: BusAddress, topic: str, group: str
    ) -> None:
        super().test_what_a_killed_process_held_comes_again(bus, bus_address, topic, group)


def test_topics_are_created_with_the_prefix(bus: KafkaBus, kafka: KafkaBroker) -> None:
    published, subscribed = unique("published"), unique("subscribed")
    publish(bus, published, ["x"])
    bus.subscribe([subscribed], unique("group"))
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    made = {PREFIX + published, PREFIX + subscribed}
    # What the controller has made the broker knows of a moment later.
    wait_until(lambda: made <= admin.list_topics(timeout=PATIENCE).topics.keys(), f"topics {made}", PATIENCE)
    topics = admin.list_topics(timeout=PATIENCE).topics
    assert [len(topics[name].partitions) for name in made] == [4, 4]
    assert {published, subscribed}.isdisjoint(topics)


def test_the_largest_message_passes(bus: KafkaBus) -> None:
    topic = unique("topic")
    payload = random.Random(1).randbytes(MAX_BYTES)
    bus.publish([(topic, payload)])
    taken = take_until(bus.subscribe([topic], unique("group")), lambda taken: len(taken) == 1)
    assert taken[0].payload == payload


def test_a_burst_is_spread_over_the_partitions(bus: KafkaBus) -> None:
    topic = unique("topic")
    publish(bus, topic, ["first"])  # the producer knows the partitions from here on
    publish(bus, topic, numbers(200))
    taken = take_all(bus.subscribe([topic], unique("group")), numbers(200))
    shares = Counter(delivery.position[0] for delivery in taken)
    assert sorted(shares) == [0, 1, 2, 3]
    assert min(shares.values()) > 20


def test_what_moved_to_another_member_is_left_to_it(bus: KafkaBus) -> None:
    topic, group = unique("topic"), unique("group")
    publish(bus, topic, numbers(40))
    first = bus.subscribe([topic], group)
    held = take_all(first, numbers(40))
    second = bus.subscribe([topic], group)
    moved: list[Delivery] = []
    deadline = time.monotonic() + PATIENCE
    while len({delivery.position[0] for delivery in moved}) < 2 and time.monotonic() < deadline:
        assert first.take(10, 0.2) == []
        moved += second.take(100, 0.2)
    places = {delivery.position[0] for delivery in moved}
    expected = payloads(d for d in held if d.position[0] in places)
    moved += take_all(second, set(expected) - set(payloads(moved)))  # they come in pieces
    assert payloads(moved) == expected
    first.commit(held)
    second.close()
    first.close()
    third = bus.subscribe([topic], group)
    again = take_all(third, payloads(moved))
    assert payloads(again) == payloads(moved)  # not the ones of the partitions that the first member kept
    third.commit(again)
    third.close()
    nothing_comes_but_news(bus, [topic], group)


@pytest.mark.slow
def test_a_member_at_work_does_not_hold_the_others_up(bus: KafkaBus) -> None:
    """It neither takes nor commits while others come, take, commit and go."""
    topic, group = unique("topic"), unique("group")
    busy = bus.subscribe([topic], group)
    settle(bus, topic, [busy])
    publish(bus, topic, numbers(80))
    held = take_all(busy, numbers(80))
    for _ in range(2):
        other = bus.subscribe([topic], group)
        publish(bus, topic, numbers(80))
        other.commit(take_until(other, lambda taken: len(taken) > 0))
        other.close()
    busy.commit(held)


@pytest.mark.slow
def test_a_new_topic_keeps_what_was_acknowledged(bus: KafkaBus, kafka: KafkaBroker) -> None:
    """The first requests come while its leader is still getting ready: with several in flight about one topic in three
    lost some that were acknowledged."""
    topics = [unique("topic") for _ in range(25)]
    for topic in topics:
        with ThreadPoolExecutor(4) as publishers:
            list(publishers.map(bus.publish, [[(topic, b"x")] * 10] * 60))
    looker = Consumer({"bootstrap.servers": kafka.servers, "group.id": unique("group")})
    kept = {
        topic: sum(looker.get_watermark_offsets(TopicPartition(PREFIX + topic, number))[1] for number in range(4))
        for topic in topics
    }
    looker.close()
    assert kept == dict.fromkeys(topics, 600)


@pytest.mark.slow
def test_a_full_member_goes_on_when_others_come_and_go(bus: KafkaBus) -> None:
    """It has stopped fetching, and then keeps some partitions, loses others and gets them back."""
    topic, group = unique("topic"), unique("group")
    member = bus.subscribe([topic], group)
    settle(bus, topic, [member])
    publish(bus, topic, numbers(20_000))
    taken = take_until(member, lambda taken: len(taken) > 0)
    for _ in range(2):
        other = bus.subscribe([topic], group)
        taken += take_until(other, lambda taken: len(taken) > 0)
        taken += member.take(1000, 1.0)
        other.close()
        taken += member.take(1000, 1.0)
    wanted = set(numbers(20_000)) - set(payloads(taken))
    taken += take_all(member, wanted)
    assert set(payloads(taken)) == set(numbers(20_000))


def test_a_member_whose_thread_has_ended_says_so(kafka: KafkaBroker) -> None:
    """It would go on in the group, with partitions that nobody reads."""

    class Broken(KafkaMember):
        def _throttle(self) -> None:
            raise ZeroDivisionError("a bug")

    config = {"bootstrap.servers": kafka.servers, "group.id": unique("group")}
    member = Broken(config, PREFIX, [unique("topic")], logging.getLogger("test"))
    for call in (lambda: member.take(1, PATIENCE), lambda: member.commit([Delivery("x", b"", (0, 0))])):
        with pytest.raises(RuntimeError, match="the member's thread has ended") as raised:
            call()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
    member.close()


def test_more_than_is_read_ahead_arrives_once(bus: KafkaBus) -> None:
    topic = unique("topic")
    member = bus.subscribe([topic], unique("group"))
    settle(bus, topic, [member])
    publish(bus, topic, numbers(20_000))
    taken: list[Delivery] = []
    deadline = time.monotonic() + PATIENCE
    while len(taken) < 20_000 and time.monotonic() < deadline:
        taken += member.take(1500, 1.0)
        time.sleep(0.1)  # so that it gets ahead, and pauses
    assert payloads(taken + member.take(10, 0.5)) == numbers(20_000)


@pytest.mark.slow
def test_while_the_broker_is_away_calls_say_so_and_then_go_on(bus: KafkaBus, kafka: KafkaBroker) -> None:
    topic, group = unique("topic"), unique("group")
    member = bus.subscribe([topic], group)
    settle(bus, topic, [member])
    publish(bus, topic, numbers(10))
    taken = take_all(member, numbers(10))
    kafka.kill()
    try:
        for _ in range(2):
            with pytest.raises(Unavailable, match="Kafka, taking: _ALL_BROKERS_DOWN"):
                member.take(1, 0.5)
        with pytest.raises(Unavailable, match="Kafka, committing"):
            member.commit(taken)
        with pytest.raises(Unavailable, match="Kafka, publishing"):
            bus.publish([(unique("topic"), b"")])
    finally:
        kafka.start()
    publish(bus, topic, ["back"])
    assert set(payloads(take_all(member, ["back"]))) <= {"back", *numbers(10)}
    member.commit(taken)
    member.close()


@pytest.mark.slow
def test_a_broker_killed_while_publishing_loses_nothing(bus: KafkaBus, kafka: KafkaBroker) -> None:
    topic, group = unique("topic"), unique("group")
    member = bus.subscribe([topic], group)
    sent: list[str] = []

    def publish_all() -> None:
        for number in range(2000):
            publish(bus, topic, [str(number)])
            sent.append(str(number))

    publisher = Thread(target=publish_all)
    publisher.start()
    while len(sent) < 500:
        time.sleep(0.01)
    kafka.kill()
    assert len(sent) < 2000
    kafka.start()
    seen: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while len(seen) < 2000 and time.monotonic() < deadline:
        try:
            deliveries = member.take(500, 1.0)
            seen.update(payloads(deliveries))
            member.commit(deliveries)
        except Unavailable:
            continue
    publisher.join()
    assert sorted(sent) == sorted(seen) == numbers(2000)
