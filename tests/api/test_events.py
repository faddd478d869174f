"""The webhook over a real socket: every provider's events, each object once, of our bucket and organization only."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.push.events import EVENTS_LIMIT, EVENTS_MAX_OBJECTS, UNUSABLE_MAX, EventsApi, WatchedBucket
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Caller, Organization, Role
from lakerunner.model.source import Prefix, Routes
from suites.notifications import azure_event, gcp_event, s3_event, sns

ACME = Organization(uuid4(), "acme")
KEY = "otel-raw/acme/edge/a b+ü.binpb"


class Door:
    """A served webhook and what it announced."""

    def __init__(self, prefix: str = "", keyless: Organization | None = DEFAULT_ORGANIZATION) -> None:
        self.announced: list[list[str]] = []
        notified = WatchedBucket("lake", prefix, Routes((Prefix("exports/"),)))
        authenticator = Authenticator({"acme-key": Caller(ACME, "bucket", frozenset({Role.WRITE}))}.get, keyless)
        api = EventsApi(self._announce, authenticator, notified)
        self.server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)
        self.server.start()

    def _announce(self, keys: list[str]) -> int:
        self.announced.append(keys)
        return len(keys)

    def post(self, provider: str, body: object, **headers: str) -> httpx.Response:
        url = f"{self.server.url}/api/v1/events/{provider}"
        if isinstance(body, bytes):
            return httpx.post(url, content=body, headers={"content-type": "application/json"} | headers, timeout=30)
        return httpx.post(url, json=body, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def open_door() -> Iterator[Door]:
    door = Door()
    yield door
    door.server.stop()


@pytest.fixture
def door(open_door: Door) -> Door:
    open_door.announced.clear()
    return open_door


@pytest.mark.parametrize(
    ("provider", "event"),
    [
        ("s3", s3_event(KEY)),
        ("s3", sns(s3_event(KEY, slash=""))),
        ("gcp", gcp_event(KEY)),
        ("azure", [azure_event(KEY)]),
    ],
    ids=["s3", "sns", "gcp", "azure"],
)
def test_an_event_announces_its_object(door: Door, provider: str, event: object) -> None:
    answer = door.post(provider, event)
    assert (answer.status_code, answer.json()) == (200, {"objects": 1, "new": 1})
    assert door.announced == [[KEY]]


def test_one_file_named_ten_times_is_one_file(door: Door) -> None:
    assert door.post("s3", s3_event(*[KEY] * 10)).json() == {"objects": 1, "new": 1}
    assert door.post("azure", [azure_event(KEY)] * 10).json() == {"objects": 1, "new": 1}
    assert door.announced == [[KEY], [KEY]]


def test_our_own_segments_strays_and_deletions_are_ignored(door: Door) -> None:
    event = s3_event("db/acme/edge/x.parquet", "elsewhere/x", "exports/x.binpb", "logs-raw/y.binpb")
    assert door.post("s3", event).json() == {"objects": 2, "new": 2}
    assert door.announced == [["exports/x.binpb", "logs-raw/y.binpb"]]
    assert door.post("s3", s3_event(KEY, name="s3:ObjectRemoved:Delete")).json() == {"objects": 0, "new": 0}
    assert door.post("s3", {"Event": "s3:TestEvent"}).json() == {"objects": 0, "new": 0}


def test_the_handshake_of_event_grid(door: Door) -> None:
    ask = {"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {"validationCode": "512d"}}
    assert door.post("azure", [ask]).json() == {"validationResponse": "512d"}
    assert door.announced == []


@pytest.mark.parametrize(
    ("provider", "body", "status", "words"),
    [
        ("s3", s3_event(KEY, bucket="other"), 400, "is in bucket 'other', which this lake does not read"),
        ("gcp", gcp_event(KEY, bucket="other"), 400, "is in bucket 'other', which this lake does not read"),
        ("azure", [azure_event(KEY), azure_event(KEY, container="other")], 400, "is in bucket 'other'"),
        ("s3", {"Records": [{}]}, 400, "Records[0] has no s3.bucket.name"),
        ("s3", b"{", 400, "not JSON"),
        ("s3", b"[" + b" " * EVENTS_LIMIT.bytes + b"]", 413, "4194304 bytes (the limit of one notification)"),
        ("oci", s3_event(KEY), 404, "unknown provider of events 'oci': use one of s3, gcp, azure"),
    ],
)
def test_what_is_wrong_is_refused_by_name(door: Door, provider: str, body: object, status: int, words: str) -> None:
    answer = door.post(provider, body)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert door.announced == []


def test_keys_are_taken_below_the_prefix_of_the_store() -> None:
    door = Door(prefix="lakes/one/")
    try:
        door.post("s3", s3_event("lakes/one/otel-raw/acme/edge/x.binpb", "otel-raw/acme/edge/y.binpb"))
        assert door.announced == [["otel-raw/acme/edge/x.binpb"]]
    finally:
        door.server.stop()


@pytest.mark.parametrize("keyless", [None, DEFAULT_ORGANIZATION])
def test_a_key_opens_the_door_for_its_own_organization_only(keyless: Organization | None) -> None:
    door = Door(keyless=keyless)
    try:
        if keyless is None:
            assert door.post("s3", s3_event(KEY)).status_code == 401
        mine = s3_event(KEY, f"otel-raw/{ACME.id}/edge/x.binpb")
        assert door.post("s3", mine, authorization="Bearer acme-key").json() == {"objects": 2, "new": 2}
        for key in ("otel-raw/other/edge/x.binpb", "logs-raw/x.binpb"):
            answer = door.post("s3", s3_event(KEY, key), authorization="Bearer acme-key")
            assert answer.status_code == 403
            assert f"{key} does not belong to organization acme" in answer.json()["error"]["message"]
        assert len(door.announced) == 1
    finally:
        door.server.stop()


def test_what_one_request_may_name_is_bounded(door: Door) -> None:
    """Of 5,000 keys that cannot be, each was recorded as a failed object."""
    record = s3_event(KEY)["Records"][0]

    def event(keys: list[str]) -> dict[str, object]:
        return {"Records": [{**record, "s3": {"bucket": {"name": "lake"}, "object": {"key": key}}} for key in keys]}

    unusable = [f"otel-raw/acme/edge//{n}.binpb" for n in range(EVENTS_MAX_OBJECTS)]
    refused = door.post("s3", event(unusable))
    assert refused.status_code == 400
    assert "5000 of 5000 keys are not valid keys of objects, for example 'otel-raw/acme/edge//0.binpb'" in refused.text
    refused = door.post("s3", event([*unusable, "otel-raw/acme/edge/one-more.binpb"]))
    assert refused.status_code == 413
    assert "5001 objects, the limit is 5000" in refused.text
    assert door.announced == []
    few = unusable[:UNUSABLE_MAX]
    assert door.post("s3", event([*few, "otel-raw/acme/edge/x.binpb"])).json() == {"objects": 101, "new": 101}
