"""The receiver: requests share objects, wait for them, and are refused one by one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from lakerunner.api.push.push_store import PushStore
from lakerunner.api.push.receiver import PushLimits, PushResult, Receiver
from lakerunner.index.index import Index
from lakerunner.model.errors import Busy, Unavailable, UserError
from lakerunner.model.organization import Organization
from lakerunner.objects.store import ObjectStore
from suites.pushed import ACME, OTHER, lines_of, pushed_lines, pushed_objects
from suites.requests import request_of

LIMITS = PushLimits(max_seconds=0.1, max_bytes=1 << 20, max_waiting_bytes=1 << 24, max_waiting_requests=1000)
HELD = replace(LIMITS, max_seconds=3600)
SIZE = len(request_of("a"))
THIRD, FOURTH = Organization(UUID(int=9), "third"), Organization(UUID(int=10), "fourth")
Open = Callable[..., Receiver]


@pytest.fixture
def opened(warmed: None) -> Iterator[Open]:
    """Opens receivers and stops them in the end; none of them may meet a bug."""
    receivers: list[Receiver] = []
    bugs: list[str] = []

    def start(keeper: PushStore, limits: PushLimits = LIMITS) -> Receiver:
        receivers.append(Receiver(keeper, limits, bugs.append))
        receivers[-1].start()
        return receivers[-1]

    yield start
    for receiver in receivers:
        receiver.stop()
    assert bugs == []


class Gate:
    """A store that lets nothing be written before it is opened."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self.open, self.reached = store, Event(), Event()

    def put(self, *arguments: Any, **named: Any) -> Any:
        self.reached.set()
        assert self.open.wait(30)
        return self._store.put(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def gated(keeper: PushStore) -> tuple[PushStore, Gate]:
    gate = Gate(keeper.store)
    return replace(keeper, store=gate), gate


def offer(receiver: Receiver, line: str, **named: Any) -> PushResult:
    return receiver.offer(named.get("organization", ACME), "logs", "otlp", request_of(line))


def test_yes_means_stored_and_announced(index: Index, store: ObjectStore, keeper: PushStore, opened: Open) -> None:
    receiver = opened(keeper)

    def push(number: int) -> bool:
        line = f"line {number}"
        receiver.offer(ACME, "logs", "otlp", request_of(line)).result()
        holding = {key for key, data in pushed_objects(store).items() if line in lines_of(data)}
        return len(holding) == 1 and holding <= {record.source.key for record in index.sources.list(None)}

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(push, range(16)))
    assert pushed_lines(store) == {f"line {number}": 1 for number in range(16)}
    assert len(pushed_objects(store)) < 16


def test_requests_of_one_kind_share_an_object_and_others_do_not(
    store: ObjectStore, keeper: PushStore, opened: Open
) -> None:
    receiver = opened(keeper, HELD)
    answers = [offer(receiver, line) for line in ("a", "b", "c")]
    answers += [offer(receiver, line, organization=OTHER) for line in ("a", "d")]
    assert not any(answer.done() for answer in answers)
    receiver.stop()
    assert [answer.result(0) for answer in answers] == [None] * 5
    found = {key.split("/")[1]: lines_of(data) for key, data in pushed_objects(store).items()}
    assert found == {str(ACME.id): ["a", "b", "c"], str(OTHER.id): ["a", "d"]}


def test_without_an_age_each_request_has_its_object(store: ObjectStore, keeper: PushStore, opened: Open) -> None:
    receiver = opened(keeper, replace(LIMITS, max_seconds=0))
    for answer in [offer(receiver, line) for line in ("a", "b", "c")]:
        answer.result(30)
    assert sorted(lines_of(data) for data in pushed_objects(store).values()) == [["a"], ["b"], ["c"]]


def test_an_object_is_closed_at_its_size_and_a_large_request_is_alone(
    store: ObjectStore, keeper: PushStore, opened: Open
) -> None:
    size = len(request_of("a"))
    receiver = opened(keeper, replace(HELD, max_bytes=3 * size))
    for answer in [offer(receiver, line) for line in "abc"]:
        answer.result(30)
    waiting = offer(receiver, "d")
    offer(receiver, "L" * 4 * size).result(30)
    waiting.result(30)  # what the large one found waiting went before it
    assert sorted(lines_of(data) for data in pushed_objects(store).values()) == [
        ["L" * 4 * size],
        ["a", "b", "c"],
        ["d"],
    ]


def test_the_same_request_at_the_same_time_and_later_counts_once(
    store: ObjectStore, keeper: PushStore, opened: Open
) -> None:
    slow, gate = gated(keeper)
    receiver = opened(slow)
    answers = [offer(receiver, "a") for _ in range(3)]
    assert gate.reached.wait(30)
    answers.append(offer(receiver, "a"))  # its object is being written now
    assert not any(answer.done() for answer in answers)
    gate.open.set()
    assert [answer.result(30) for answer in answers] == [None] * 4
    opened(keeper).offer(ACME, "logs", "otlp", request_of("a")).result()  # another process, later
    assert pushed_lines(store) == {"a": 1}


def test_what_cannot_be_read_is_refused_and_its_neighbours_are_kept(
    store: ObjectStore, keeper: PushStore, opened: Open
) -> None:
    receiver = opened(keeper, HELD)
    good = [offer(receiver, "a")]
    bad = receiver.offer(ACME, "logs", "otlp", b"\xff\xff")
    cut = receiver.offer(ACME, "logs", "otlp", request_of("cut")[:-3])
    good.append(offer(receiver, "b"))
    nothing = receiver.offer(ACME, "logs", "otlp", b"")
    receiver.stop()
    assert [answer.result(0) for answer in (*good, nothing)] == [None] * 3
    for answer in (bad, cut):
        with pytest.raises(UserError, match="not an OTLP logs request"):
            answer.result(0)
    (data,) = pushed_objects(store).values()
    assert lines_of(data) == ["a", "b"]


def test_text_that_is_not_utf_8_is_no_reason_to_refuse(store: ObjectStore, keeper: PushStore, opened: Open) -> None:
    data = request_of("caf\u00e9").replace("\u00e9".encode(), b"\xe9!")
    opened(keeper).offer(ACME, "logs", "otlp", data).result()
    assert list(pushed_objects(store).values()) == [data]


def test_signals_and_formats_that_are_not_read_are_refused(keeper: PushStore, opened: Open) -> None:
    receiver = opened(keeper)
    with pytest.raises(UserError, match="unknown signal 'profiles'"):
        receiver.offer(ACME, "profiles", "otlp", b"x").result()
    with pytest.raises(UserError, match="this version does not accept logs as prw1"):
        receiver.offer(ACME, "logs", "prw1", b"x").result()


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max_waiting_requests": 4}, "2 of the 4 requests that may wait to be stored (push_max_waiting_requests)"),
        (
            {"max_waiting_bytes": 4 * SIZE},
            f"{2 * SIZE} of the {4 * SIZE} bytes that may wait to be stored (push_max_waiting_bytes)",
        ),
    ],
)
@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_an_organization_may_have_as_much_waiting_as_it_leaves_free(
    index: Index, store: ObjectStore, keeper: PushStore, opened: Open, limit: dict[str, int], words: str
) -> None:
    index.organizations.create(THIRD)
    slow, gate = gated(keeper)
    receiver = opened(slow, replace(LIMITS, **limit))
    answers = [offer(receiver, line) for line in "ab"]
    with pytest.raises(Busy) as refused:
        offer(receiver, "c")
    own = f"your organization uses {words}, and may use as many as are free: send it again later"
    assert str(refused.value) == own
    assert offer(receiver, "a") is answers[0]  # it waits already
    answers.append(offer(receiver, "c", organization=OTHER))
    with pytest.raises(Busy, match="your organization uses"):
        offer(receiver, "d", organization=OTHER)
    answers.append(offer(receiver, "d", organization=THIRD))  # one that has nothing there may take the last
    with pytest.raises(Busy, match="all organizations together use"):
        offer(receiver, "e", organization=FOURTH)
    gate.open.set()
    for answer in answers:
        answer.result(30)
    offer(receiver, "c").result(30)
    offer(receiver, "L" * 1000).result(30)  # larger than all that may wait, but nothing does
    assert pushed_lines(store) == {"a": 1, "b": 1, "c": 2, "d": 1, "L" * 1000: 1}


def test_what_was_taken_is_kept_at_the_end_and_nothing_more_is_taken(
    store: ObjectStore, keeper: PushStore, opened: Open
) -> None:
    receiver = opened(keeper, HELD)
    answer = offer(receiver, "a")
    receiver.stop()
    assert answer.result(0) is None
    with pytest.raises(Unavailable, match="stopping"):
        offer(receiver, "b")
    assert pushed_lines(store) == {"a": 1}


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_a_store_that_is_away_is_no_yes_and_the_request_counts_once_when_it_is_back(
    store: ObjectStore, keeper: PushStore, opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = opened(keeper)
    shutil.move(tmp_path / "store", tmp_path / "away")
    for _ in range(2):
        with pytest.raises(Unavailable) as refused:
            receiver.offer(ACME, "logs", "otlp", request_of("a")).result()
        assert f"1 pushed requests are not stored: {refused.value}" in caplog.text  # who runs the lake sees it too
    shutil.move(tmp_path / "away", tmp_path / "store")
    for _ in range(2):
        receiver.offer(ACME, "logs", "otlp", request_of("a")).result()
    assert pushed_lines(store) == {"a": 1}


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_an_index_that_is_away_is_no_yes(index: Index, store: ObjectStore, keeper: PushStore, opened: Open) -> None:
    receiver = opened(keeper)
    index.close()
    with pytest.raises(Unavailable):
        receiver.offer(ACME, "logs", "otlp", request_of("a")).result()
    assert pushed_objects(store) == {}
