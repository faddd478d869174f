"""What every bus does. A test module takes the suite by subclassing it and giving the fixture `bus`.

`BusSuite` is for any bus; `ServerBusSuite` adds what needs a second process, and the fixture `bus_address` for it.
`exact` says that a message is delivered once where nobody crashes or leaves; Kafka promises at least once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import Timer
from uuid import uuid4

import pytest

from lakerunner.bus.bus import Bus, Delivery, Subscription
from lakerunner.model.errors import Unavailable

PATIENCE = 120  # seconds until a test gives up on something that must come


def unique(name: str) -> str:
    """Tests share a server: each has topics and groups of its own."""
    return f"{name}.{uuid4().hex[:12]}"


def payloads(deliveries: Iterable[Delivery]) -> list[str]:
    return sorted(delivery.payload.decode() for delivery in deliveries)


def numbers(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


def publish(bus: Bus, topic: str, texts: Iterable[str]) -> None:
    bus.publish([(topic, text.encode()) for text in texts])


def take_until(subscription: Subscription, enough: Callable[[list[Delivery]], bool]) -> list[Delivery]:
    """Everything taken until there is enough, then until nothing more comes at once."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(taken):
        assert time.monotonic() < deadline, f"only {len(taken)} deliveries came: {payloads(taken)}"
        taken += subscription.take(1000, 1.0)
    return taken + subscription.take(1000, 0)


def take_all(subscription: Subscription, texts: Iterable[str]) -> list[Delivery]:
    wanted = set(texts)
    return take_until(subscription, lambda taken: wanted <= set(payloads(taken)))


def nothing_comes_but_news(bus: Bus, topics: list[str], group: str) -> None:
    """A new member of the group gets what is published now, and nothing of what was there before."""
    member = bus.subscribe(topics, group)
    publish(bus, topics[0], ["news"])
    assert payloads(take_all(member, ["news"]) + member.take(10, 0.5)) == ["news"]


def settle(bus: Bus, topic: str, members: list[Subscription]) -> None:
    """Until every member of the group gets its share of the topic, and nothing is left in it."""
    published, served, seen = 0, set[int](), set[tuple[int, int]]()
    deadline = time.monotonic() + PATIENCE
    while len(served) < len(members) or len(seen) < published:
        assert time.monotonic() < deadline, f"{len(seen)} of {published} came, to the members {served}"
        if len(served) < len(members):
            publish(bus, topic, ["warm-up"] * 32)
            published += 32
        for place, member in enumerate(members):
            deliveries = member.take(8, 0.2)
            member.commit(deliveries)
            seen.update(delivery.position for delivery in deliveries)
            if deliveries:
                served.add(place)


class BusSuite:
    exact = True

    @pytest.fixture
    def topic(self) -> str:
        return unique("topic")

    @pytest.fixture
    def group(self) -> str:
        return unique("group")

    def test_what_is_published_is_taken_and_once_committed_is_gone(self, bus: Bus, topic: str, group: str) -> None:
        wire = [b"", b"\x00\xff", b"x" * 100_000]
        bus.publish([(topic, payload) for payload in wire])
        member = bus.subscribe([topic], group)
        taken = take_until(member, lambda taken: len(taken) >= 3)
        assert sorted(delivery.payload for delivery in taken) == sorted(wire)
        assert {delivery.topic for delivery in taken} == {topic}
        member.commit(taken)
        assert member.take(10, 0.5) == []
        member.close()
        nothing_comes_but_news(bus, [topic], group)

    def test_publishing_and_committing_nothing_is_fine(self, bus: Bus, topic: str, group: str) -> None:
        bus.publish([])
        member = bus.subscribe([topic], group)
        member.commit([])
        assert member.take(1, 0) == []

    def test_take_returns_when_a_message_comes(self, bus: Bus, topic: str, group: str) -> None:
        member = bus.subscribe([topic], group)
        settle(bus, topic, [member])
        timer = Timer(0.5, publish, [bus, topic, ["now"]])
        start = time.monotonic()
        timer.start()
        assert payloads(member.take(10, PATIENCE)) == ["now"]
        assert 0.4 < time.monotonic() - start < PATIENCE / 2
        timer.join()

    def test_take_waits_no_longer_than_told(self, bus: Bus, topic: str, group: str) -> None:
        member = bus.subscribe([topic], group)
        settle(bus, topic, [member])
        for wait, most in ((0.0, 1.0), (0.3, 1.5), (1.2, 2.5)):
            seconds: list[float] = []
            while len(seconds) < 10 and (not seconds or min(seconds) >= most):  # the machine may be busy now and then
                start = time.monotonic()
                assert member.take(10, wait) == []
                seconds.append(time.monotonic() - start)
            assert wait - 0.05 < min(seconds) < most

    def test_a_limit_holds_and_what_is_held_does_not_come_again(self, bus: Bus, topic: str, group: str) -> None:
        publish(bus, topic, numbers(10))
        member = bus.subscribe([topic], group)
        taken: list[Delivery] = []
        deadline = time.monotonic() + PATIENCE
        while len(taken) < 10 and time.monotonic() < deadline:
            few = member.take(3, 1.0)
            assert len(few) <= 3
            taken += few
        assert payloads(taken + member.take(3, 0.5)) == numbers(10)

    def test_every_group_gets_everything(self, bus: Bus, topic: str, group: str) -> None:
        first, second = bus.subscribe([topic], group), bus.subscribe([topic], unique("group"))
        publish(bus, topic, numbers(20))
        taken = take_all(first, numbers(20))
        first.commit(taken)
        assert payloads(taken) == numbers(20)
        assert payloads(take_all(second, numbers(20))) == numbers(20)

    def test_members_of_a_group_share_and_hold_nothing_twice(self, bus: Bus, topic: str, group: str) -> None:
        members = [bus.subscribe([topic], group) for _ in range(2)]
        settle(bus, topic, members)
        publish(bus, topic, numbers(400))
        taken = [member.take(7, PATIENCE) for member in members]
        assert all(taken)
        deadline = time.monotonic() + PATIENCE

        def take_share(place: int) -> None:
            while sum(map(len, taken)) < 400 and time.monotonic() < deadline:
                taken[place] += members[place].take(7, 0.2)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(take_share, range(2)))
        assert payloads(taken[0] + taken[1]) == numbers(400)
        for member, mine in zip(members, taken, strict=True):
            member.commit(mine)
            assert member.take(10, 0.2) == []

    def test_what_was_not_committed_comes_again_after_close(self, bus: Bus, topic: str, group: str) -> None:
        publish(bus, topic, numbers(20))
        member = bus.subscribe([topic], group)
        taken = take_all(member, numbers(20))
        done, rest = taken[:12], taken[12:]
        member.commit(done)
        member.close()
        member.close()
        again = take_all(bus.subscribe([topic], group), payloads(rest))
        assert payloads(again) == payloads(rest)  # here also Kafka: the done ones come first in their partitions

    def test_commits_in_any_order_lose_nothing(self, bus: Bus, topic: str, group: str) -> None:
        publish(bus, topic, numbers(40))
        member = bus.subscribe([topic], group)
        taken = take_all(member, numbers(40))
        done, rest = taken[1::2], taken[::2]
        for delivery in reversed(done):
            member.commit([delivery])
        member.close()
        again = take_all(bus.subscribe([topic], group), payloads(rest))
        assert set(payloads(again)) >= set(payloads(rest))
        if self.exact:
            assert payloads(again) == payloads(rest)

    def test_once_the_oldest_is_committed_too_nothing_comes_again(self, bus: Bus, topic: str, group: str) -> None:
        publish(bus, topic, numbers(40))
        member = bus.subscribe([topic], group)
        for delivery in reversed(take_all(member, numbers(40))):
            member.commit([delivery])
        member.close()
        nothing_comes_but_news(bus, [topic], group)

    def test_a_new_group_starts_at_the_oldest_message(self, bus: Bus, topic: str, group: str) -> None:
        publish(bus, topic, numbers(5))
        first = bus.subscribe([topic], group)
        taken = take_all(first, numbers(5))
        first.commit(taken[:-1])  # one is left, so its group keeps something too
        later = bus.subscribe([topic], unique("group"))
        assert set(payloads(take_all(later, payloads(taken[-1:])))) >= set(payloads(taken[-1:]))

    def test_one_subscription_serves_several_topics(self, bus: Bus, group: str) -> None:
        topics = [unique(name) for name in ("one", "two", "three")]
        member = bus.subscribe(topics, group)
        bus.publish([(topic, str(number).encode()) for number in range(10) for topic in topics])
        taken = take_until(member, lambda taken: len(taken) >= 30)
        assert {topic: payloads(d for d in taken if d.topic == topic) for topic in topics} == {
            topic: numbers(10) for topic in topics
        }
        member.commit(taken)
        member.close()
        nothing_comes_but_news(bus, topics, group)

    def test_many_messages_of_many_publishers_arrive(self, bus: Bus, topic: str, group: str) -> None:
        member = bus.subscribe([topic], group)
        batches = [[f"{start + n}" for n in range(10)] for start in range(0, 5000, 10)]
        counts: Counter[str] = Counter()
        deadline = time.monotonic() + PATIENCE
        with ThreadPoolExecutor(4) as publishers:
            sent = [publishers.submit(publish, bus, topic, batch) for batch in batches]
            while len(counts) < 5000 and time.monotonic() < deadline:
                deliveries = member.take(500, 1.0)
                counts.update(payloads(deliveries))
                member.commit(deliveries)
            for each in sent:
                each.result()
        counts.update(payloads(member.take(500, 0.5)))
        assert sorted(counts) == numbers(5000)
        if self.exact:
            assert set(counts.values()) == {1}

    def test_a_closed_bus_closes_its_subscriptions(self, bus: Bus, topic: str, group: str) -> None:
        member = bus.subscribe([topic], group)
        bus.close()
        bus.close()
        member.close()
        for call in (
            lambda: bus.publish([(topic, b"")]),
            lambda: bus.subscribe([topic], group),
            lambda: member.take(1, 0),
            lambda: member.commit([Delivery(topic, b"", (0, 0))]),
        ):
            with pytest.raises(Unavailable, match="closed"):
                call()


@dataclass(frozen=True)
class BusAddress:
    """How another process opens the same bus."""

    bus: str
    url: str = ""
    topic_prefix: str = ""


# Takes until it has so many, commits those at the given places one by one, says what it holds, and waits for its end.
_MEMBER = """
import json, sys
from psycopg_pool import ConnectionPool
from lakerunner.bus.open import open_bus

job = json.loads(sys.argv[1])
pool = ConnectionPool(job["url"], open=False)
bus = open_bus(job["bus"], pool=pool, url=job["url"], topic_prefix=job["topic_prefix"])
member = bus.subscribe([job["topic"]], job["group"])
taken = []
while len(taken) < job["count"]:
    taken += member.take(100, 1.0)
for place in job["commit"]:
    member.commit([taken[place]])
print(json.dumps([delivery.payload.decode() for delivery in taken]), flush=True)
sys.stdin.read()
"""


class ServerBusSuite(BusSuite):
    def test_what_a_killed_process_held_comes_again(
        self, bus: Bus, bus_address: BusAddress, topic: str, group: str
    ) -> None:
        publish(bus, topic, numbers(20))
        commit = [19, 3, 11, 7, 0]
        job = asdict(bus_address) | {"topic": topic, "group": group, "count": 20, "commit": commit}
        with subprocess.Popen(
            [sys.executable, "-c", _MEMBER, json.dumps(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                held = json.loads(process.stdout.readline())
            finally:
                process.kill()
        rest = sorted(text for place, text in enumerate(held) if place not in commit)
        member = bus.subscribe([topic], group)
        again = payloads(take_all(member, rest))
        assert set(again) >= set(rest)
        if self.exact:
            assert again == rest
