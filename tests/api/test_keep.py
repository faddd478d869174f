"""A pushed request is kept once, whoever dies when. Doors that die do so by SIGKILL, in processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lakerunner.api.push.push_store import PUSH_FORMATS, Origin, PushStore
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict, LakerunnerError, Unavailable
from lakerunner.model.source import Routes
from lakerunner.objects.open import StoreAddress
from lakerunner.objects.store import ObjectStore
from lakerunner.services.announce import Announcer, Lister, Newcomers
from suites.pushed import ACME, LOGS, NOW_NS, OTHER, pushed_lines, pushed_objects, requests
from suites.requests import request_of

DYING_DOOR = Path(__file__).resolve().parents[1] / "suites" / "dying_door.py"


@dataclass(frozen=True)
class Doors:
    """Starts doors that die."""

    index: Index
    address: StoreAddress

    def die(self, moment: str, *lines: str) -> None:
        order = {"moment": moment, "lines": lines, "index": self.index.url}
        store = {"store": self.address.url, "options": self.address.options}
        command = [sys.executable, str(DYING_DOOR), json.dumps(order | store)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stdout + ended.stderr


@pytest.fixture
def doors(index: Index, address: StoreAddress) -> Doors:
    return Doors(index, address)


def announced(index: Index, store: ObjectStore) -> set[str]:
    """The keys that the index knows after the lister has looked."""
    announcer = Announcer(index, store, Routes().route_of)
    Lister(Newcomers(index, store), announcer, Routes().roots, settle_ns=0).poll(time.time_ns())
    return {record.source.key for record in index.sources.list(None, limit=1000)}


def test_keys_are_in_the_order_of_their_time() -> None:
    """Ingest takes objects in the order of their keys, so that lines of equal time keep the order of their requests."""
    keys = [LOGS.new_key(NOW_NS + number) for number in range(20)]
    assert keys == sorted(keys)
    assert LOGS.new_key(NOW_NS) != LOGS.new_key(NOW_NS)


def test_an_object_holds_its_requests_under_a_key_that_says_whose_they_are(
    index: Index, store: ObjectStore, keeper: PushStore
) -> None:
    assert keeper.keep(LOGS, requests("a", "b"), NOW_NS) == {}
    ((key, data),) = pushed_objects(store).items()
    assert data == request_of("a") + request_of("b")
    assert key.startswith(f"otel-raw/{ACME.id}/otlp/20251224/12/logs_")
    assert key.endswith(".binpb.zst")
    (record,) = index.sources.list(None)
    assert (record.source.key, record.organization, record.signal) == (key, ACME.id, "logs")
    # As a listing shows it: otherwise the lister would take it for another object.
    assert announced(index, store) == {key}
    meta = store.head(key)
    assert (record.source.etag, record.source.size, record.source.modified_ns) == (
        meta.etag,
        meta.size,
        meta.modified_ns,
    )


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_a_store_that_says_what_it_wrote_is_not_asked_again(
    index: Index, store: ObjectStore, keeper: PushStore
) -> None:
    class Headless:
        def __getattr__(self, name: str) -> Any:
            assert name != "head"
            return getattr(store, name)

    silent = replace(keeper, store=Headless())
    assert silent.keep(LOGS, requests("a"), NOW_NS) == {}
    assert [record.source.key for record in index.sources.list(None)] == list(pushed_objects(store))


@pytest.mark.parametrize("form", sorted(PUSH_FORMATS))
@pytest.mark.parametrize("signal_name", ["logs", "metrics", "traces"])
def test_every_key_says_its_signal_and_its_door(form: str, signal_name: str) -> None:
    route = Routes().route_of(Origin(ACME.id, signal_name, form).new_key(NOW_NS))
    assert route is not None
    assert (route.organization, route.collector, route.signal) == (
        str(ACME.id),
        PUSH_FORMATS[form].collector,
        signal_name,
    )


def test_framed_requests_have_their_length_before_them() -> None:
    framed = PUSH_FORMATS["lokipb"].joined([b"abc", b"x" * 300])
    assert framed == b"\x03abc" + b"\xac\x02" + b"x" * 300


def test_what_was_kept_is_not_kept_again_but_for_another_organization_or_signal(
    store: ObjectStore, keeper: PushStore
) -> None:
    assert keeper.keep(LOGS, requests("a", "b"), NOW_NS) == {}
    assert keeper.keep(LOGS, requests("b", "c"), NOW_NS) == {}
    assert keeper.keep(LOGS, requests("a", "b", "c"), NOW_NS) == {}
    assert pushed_lines(store) == {"a": 1, "b": 1, "c": 1}
    assert len(pushed_objects(store)) == 2
    assert keeper.keep(replace(LOGS, organization=OTHER.id), requests("a"), NOW_NS) == {}
    assert keeper.keep(replace(LOGS, signal="traces"), requests("a"), NOW_NS) == {}
    assert pushed_lines(store)["a"] == 3


FIRST = ["before claim", "after claim", "before put", "after put", "after metas", "before stored", "after stored"]
FIRST_OF_ALL = [("local", moment) for moment in FIRST] + [("s3", "before put"), ("s3", "after put")]
SECOND = ["after close", "before take_over", "after take_over", "before put", "after put"]
SECOND_OF_ALL = [("local", moment) for moment in SECOND] + [("s3", "after close")]


@pytest.mark.parametrize(("address", "moment"), FIRST_OF_ALL, indirect=["address"])
def test_a_door_that_dies_loses_and_doubles_nothing_that_is_sent_again(
    index: Index, store: ObjectStore, doors: Doors, keeper: PushStore, moment: str
) -> None:
    doors.die(moment, "a", "b")
    assert keeper.keep(LOGS, requests("b", "c"), NOW_NS) == {}  # in another company than before
    assert keeper.keep(LOGS, requests("a"), NOW_NS) == {}
    assert pushed_lines(store) == {"a": 1, "b": 1, "c": 1}
    assert announced(index, store) == set(pushed_objects(store))


@pytest.mark.parametrize(("address", "moment"), SECOND_OF_ALL, indirect=["address"])
def test_a_door_that_dies_while_it_takes_over_from_a_dead_one(
    index: Index, store: ObjectStore, doors: Doors, keeper: PushStore, moment: str
) -> None:
    doors.die("before put", "a", "b")
    doors.die(moment, "a", "b")
    assert keeper.keep(LOGS, requests("a", "b", "c"), NOW_NS) == {}
    assert pushed_lines(store) == {"a": 1, "b": 1, "c": 1}
    assert announced(index, store) == set(pushed_objects(store))


def test_a_request_that_may_still_be_on_its_way_is_not_taken_over(
    store: ObjectStore, doors: Doors, keeper: PushStore
) -> None:
    doors.die("before put", "a")
    patient = replace(keeper, claim_seconds=3600)
    errors = patient.keep(LOGS, requests("a", "b"), NOW_NS)
    assert [type(error) for error in errors.values()] == [Unavailable]
    assert errors.keys() == requests("a").keys()
    assert pushed_lines(store) == {"b": 1}


class Wrapped:
    """A store whose `put` is another."""

    def __init__(self, store: ObjectStore, put: Callable[..., None]) -> None:
        self.store, self.put = store, put

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def with_put(keeper: PushStore, put: Callable[..., None]) -> PushStore:
    return replace(keeper, store=Wrapped(keeper.store, put))


def only(errors: Mapping[bytes, LakerunnerError]) -> LakerunnerError:
    (error,) = set(errors.values())
    return error


def test_a_write_that_comes_late_finds_its_key_closed(store: ObjectStore, keeper: PushStore) -> None:
    late: list[Callable[[], object]] = []

    def lost(key: str, data: bytes, *, if_absent: bool) -> None:
        late.append(lambda: store.put(key, data, if_absent=if_absent))
        raise Unavailable("the store does not answer")

    assert isinstance(only(with_put(keeper, lost).keep(LOGS, requests("a", "b"), NOW_NS)), Unavailable)
    assert keeper.keep(LOGS, requests("a", "b"), NOW_NS) == {}
    with pytest.raises(Conflict):
        late[0]()  # the first write arrives at last
    assert pushed_lines(store) == {"a": 1, "b": 1}


def test_a_live_door_whose_requests_were_taken_over_says_no_and_they_are_kept_once(
    store: ObjectStore, keeper: PushStore
) -> None:
    def slow(key: str, data: bytes, *, if_absent: bool) -> None:
        assert keeper.keep(LOGS, requests("a"), NOW_NS) == {}  # another door, in the meantime
        store.put(key, data, if_absent=if_absent)

    assert isinstance(only(with_put(keeper, slow).keep(LOGS, requests("a", "b"), NOW_NS)), Unavailable)
    assert pushed_lines(store) == {"a": 1}
    assert keeper.keep(LOGS, requests("a", "b"), NOW_NS) == {}
    assert pushed_lines(store) == {"a": 1, "b": 1}


def test_a_write_whose_answer_was_lost_counts(store: ObjectStore, keeper: PushStore) -> None:
    def twice(key: str, data: bytes, *, if_absent: bool) -> None:
        store.put(key, data, if_absent=if_absent)
        store.put(key, data, if_absent=if_absent)  # as the client of a store tries again by itself

    assert with_put(keeper, twice).keep(LOGS, requests("a"), NOW_NS) == {}
    assert pushed_lines(store) == {"a": 1}


def test_the_store_or_the_index_away_is_no_yes(store: ObjectStore, keeper: PushStore) -> None:
    def away(*_arguments: Any, **_named: Any) -> None:
        raise Unavailable("away")

    assert isinstance(only(with_put(keeper, away).keep(LOGS, requests("a"), NOW_NS)), Unavailable)
    assert isinstance(only(replace(keeper, announce=away).keep(LOGS, requests("b"), NOW_NS)), Unavailable)
    assert pushed_lines(store) == {"b": 1}  # durable, but nobody could be told
    assert keeper.keep(LOGS, requests("a", "b"), NOW_NS) == {}
    assert pushed_lines(store) == {"a": 1, "b": 1}
