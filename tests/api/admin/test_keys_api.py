"""Roles at every endpoint, and keys over HTTP, on real sockets and a real index: to each organization its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import combinations
from uuid import UUID

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.api.admin.keys_api import BODY_LIMIT, KeysApi
from lakerunner.api.admin.objects_api import ObjectsApi
from lakerunner.api.admin.work_api import WorkApi
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.key_cache import Ages, KeyCache
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.push.events import EventsApi, WatchedBucket
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.sql.sql_api import SqlApi
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION, EVERY_ROLE, Role, role_names
from lakerunner.model.source import Routes
from lakerunner.query.contract.account import Account
from lakerunner.services.tending import Requeue
from suites.doors import Doors
from suites.pushed import ACME, OTHER
from suites.requests import request_of

ROLE_SETS = [frozenset(roles) for size in (1, 2, 3) for roles in combinations(Role, size)]


class WhoseEngine:
    """Answers every query with the organization it was asked for."""

    def sql(self, organization: UUID, _question: object) -> Whose:
        return Whose(organization)


class Whose:
    schema = pa.schema([("organization", pa.string())])
    account = Account()

    def __init__(self, organization: UUID) -> None:
        self.organization = organization

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([str(self.organization)])], self.schema)

    def close(self) -> None:
        pass


class Lake:
    """Query, objects, events and keys on one port, with a cache that holds for an hour."""

    def __init__(self, index: Index, keyless: bool = False) -> None:
        self.index = index
        cache = KeyCache(index.keys.find, Ages(3600, 3600), lambda: 0.0)
        who = Authenticator(cache.caller, DEFAULT_ORGANIZATION if keyless else None)
        limits = QueryLimits(Capacity(8, 1e6, 6), lambda: 0.0)
        sql = SqlApi(WhoseEngine(), QueryService(who, limits, lambda: 0))  # type: ignore[arg-type]
        self.server = HttpServer(
            build_app(
                sql.routes(),
                ObjectsApi(index.sources, who, len).routes(),
                EventsApi(len, who, WatchedBucket("lake", "", Routes())).routes(),
                KeysApi(index.keys, who, cache.forget).routes(),
                WorkApi(index.tending, who, Requeue(index.tending)).routes(),
            ),
            bind("127.0.0.1", 0),
            lambda reason: None,
        )
        self.http = httpx.Client(base_url=self.server.url, timeout=30)

    def call(self, secret: str, method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        return self.http.request(method, path, json=body, headers=headers)


@pytest.fixture
def lake(index: Index) -> Iterator[Lake]:
    opened = Lake(index)
    opened.server.start()
    yield opened
    opened.http.close()
    opened.server.stop()


ENDPOINTS: list[tuple[Role, str, str, object]] = [
    (Role.READ, "POST", "/api/v1/sql", {"query": "select 1"}),
    (Role.READ, "GET", "/api/v1/objects", None),
    (Role.READ, "GET", "/api/v1/objects/rejects?key=a", None),
    (Role.WRITE, "POST", "/api/v1/objects/dismiss?key=a", None),
    (Role.WRITE, "POST", "/api/v1/objects/retry", None),
    (Role.WRITE, "POST", "/api/v1/events/s3", {"Records": []}),
    (Role.ADMIN, "GET", "/api/v1/keys", None),
    (Role.ADMIN, "POST", "/api/v1/keys", {"name": "new", "roles": ["read"]}),
    (Role.ADMIN, "POST", "/api/v1/keys/new/rotate", None),
    (Role.ADMIN, "DELETE", "/api/v1/keys/new", None),
    (Role.READ, "GET", "/api/v1/work", None),
    (Role.ADMIN, "POST", "/api/v1/requeue", None),
]


def test_every_endpoint_lets_in_who_has_its_role_and_nobody_else(lake: Lake) -> None:
    index = lake.index
    index.keys.create(OTHER.id, "hidden-name", EVERY_ROLE)
    for number, roles in enumerate(ROLE_SETS):
        secret = index.keys.create(ACME.id, f"key-{number}", roles)
        for role, method, path, body in ENDPOINTS:
            if path == "/api/v1/keys" and body:
                body = {"name": f"new-{number}", "roles": ["read"]}
            answer = lake.call(secret, method, path.replace("new", f"new-{number}"), body)
            if role in roles or Role.ADMIN in roles:
                assert answer.status_code in (200, 201, 204), (roles, path, answer.text)
                continue
            assert answer.status_code == 403, (roles, path)
            message = answer.json()["error"]["message"]
            assert message.startswith(f"this needs role {role}, key key-{number} has {', '.join(role_names(roles))}")
            assert not any(word in answer.text for word in ("lrk_", "hidden-name", str(OTHER.id)))
    for _role, method, path, body in ENDPOINTS:
        assert lake.call("", method, path, body).status_code == 401
        assert lake.call("lrk_guess", method, path, body).status_code == 401


@pytest.mark.parametrize("address", ["local"], indirect=True)
def test_push_doors_need_the_role_write(doors: Doors) -> None:
    headers = {"api-key": "lrk_reader", "content-type": "application/x-protobuf"}
    for path in ("/v1/logs", "/loki/api/v1/push", "/api/v1/write"):
        answer = httpx.post(doors.url + path, content=request_of("x"), headers=headers, timeout=30)
        assert answer.status_code == 403
        assert b"this needs role write, key grafana has read" in answer.content
        assert b"lrk_" not in answer.content


def admin(lake: Lake, organization: UUID = ACME.id, name: str = "admin") -> str:
    return lake.index.keys.create(organization, name, frozenset({Role.ADMIN}))


def test_a_key_is_made_used_rotated_and_revoked_over_http(lake: Lake) -> None:
    root = admin(lake)
    made = lake.call(root, "POST", "/api/v1/keys", {"name": "grafana", "roles": ["write", "read"]})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    assert {**made.json(), "secret": None} == {"name": "grafana", "roles": ["read", "write"], "secret": None}
    first = made.json()["secret"]
    assert asked_as(lake, first) == str(ACME.id)
    rotated = lake.call(root, "POST", "/api/v1/keys/grafana/rotate")
    assert (rotated.status_code, rotated.headers["cache-control"]) == (200, "no-store")
    second = rotated.json()["secret"]
    assert asked_as(lake, first) == asked_as(lake, second) == str(ACME.id)
    key = next(key for key in lake.call(root, "GET", "/api/v1/keys").json()["keys"] if key["name"] == "grafana")
    assert moment(key["previous_until"]) - moment(key["rotated_at"]) == timedelta(days=1)
    third = lake.call(root, "POST", "/api/v1/keys/grafana/rotate", {"grace": "0s"}).json()["secret"]
    assert [asked_as(lake, secret) for secret in (first, second, third)] == [None, None, str(ACME.id)]
    assert lake.call(root, "DELETE", "/api/v1/keys/grafana").status_code == 204
    assert asked_as(lake, third) is None
    listed = lake.call(root, "GET", "/api/v1/keys")
    assert [(key["name"], key["roles"], key["revoked_at"] is None) for key in listed.json()["keys"]] == [
        ("admin", ["admin"], True),
        ("grafana", ["read", "write"], False),
    ]
    assert "lrk_" not in listed.text


def asked_as(lake: Lake, secret: str) -> str | None:
    answer = lake.call(secret, "POST", "/api/v1/sql", {"query": "select 1"})
    if answer.status_code == 401:
        return None
    rows: list[dict[str, str]] = answer.json()["rows"]
    return rows[0]["organization"]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_an_admin_reaches_no_key_of_another_organization(lake: Lake) -> None:
    ours, theirs = admin(lake), admin(lake, OTHER.id, "their-admin")
    user = lake.index.keys.create(OTHER.id, "their-user", EVERY_ROLE)
    assert asked_as(lake, user) == str(OTHER.id)
    for method, path in (("POST", "/api/v1/keys/their-user/rotate"), ("DELETE", "/api/v1/keys/their-user")):
        answer = lake.call(ours, method, path)
        assert answer.status_code == 404
        assert str(OTHER.id) not in answer.text
    assert [key["name"] for key in lake.call(ours, "GET", "/api/v1/keys").json()["keys"]] == ["admin"]
    for wish in ({"organization": str(OTHER.id)}, {"org": "other"}):
        body = {"name": "spy", "roles": ["read"], **wish}
        assert lake.call(ours, "POST", "/api/v1/keys", body).status_code == 400
    same_name = lake.call(ours, "POST", "/api/v1/keys", {"name": "their-user", "roles": ["read"]})
    assert same_name.status_code == 201
    assert asked_as(lake, same_name.json()["secret"]) == str(ACME.id)
    assert lake.call(ours, "DELETE", "/api/v1/keys/their-user").status_code == 204
    assert asked_as(lake, user) == str(OTHER.id)
    assert lake.call(theirs, "GET", "/api/v1/keys").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("", {"name": "x", "roles": []}, 400, "a key needs at least one role"),
        ("", {"name": "x", "roles": ["root"]}, 400, "unknown role 'root': use one of read, write, admin"),
        ("", {"name": "x", "roles": [["read"]]}, 400, "unknown role ['read']"),
        ("", {"name": "x", "roles": "read"}, 400, "the body must be"),
        ("", {"name": "x"}, 400, "the body must be"),
        ("", {"name": "a b", "roles": ["read"]}, 400, "key name 'a b' is invalid"),
        ("", {"name": "admin", "roles": ["read"]}, 409, "a key named admin exists or existed"),
        (
            "",
            {"name": "x" * BODY_LIMIT.bytes, "roles": ["read"]},
            413,
            "65536 bytes (the limit of a request about keys)",
        ),
        ("/admin/rotate", {"grace": "soon"}, 400, "grace 'soon' is not a duration: write 90s, 15m, 24h or 7d"),
        ("/admin/rotate", {"grace": "91d"}, 400, "grace must be between 0 and 90 days"),
        ("/admin/rotate", {"grace": 5}, 400, "the body must be"),
        ("/admin/rotate", {"until": "1h"}, 400, "the body must be"),
        ("/nobody/rotate", {}, 404, "cannot rotate key 'nobody'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(lake: Lake, path: str, body: object, status: int, words: str) -> None:
    root = admin(lake)
    answer = lake.call(root, "POST", f"/api/v1/keys{path}", body)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text
    assert lake.call(root, "GET", "/api/v1/keys").status_code == 200


def test_without_a_key_where_none_is_needed_and_with_one(index: Index) -> None:
    index.organizations.create(DEFAULT_ORGANIZATION)
    lake = Lake(index, keyless=True)
    lake.server.start()
    try:
        assert asked_as(lake, "") == str(DEFAULT_ORGANIZATION.id)
        for method, path in (("GET", ""), ("POST", ""), ("POST", "/first/rotate"), ("DELETE", "/first")):
            refused = lake.call("", method, f"/api/v1/keys{path}", {"name": "first", "roles": ["read"]})
            assert refused.status_code == 401, path
            assert "HOME/token" in refused.json()["error"]["message"]
        secret = index.keys.create(DEFAULT_ORGANIZATION.id, "first", frozenset({Role.READ}))
        assert asked_as(lake, secret) == str(DEFAULT_ORGANIZATION.id)
        assert lake.call(secret, "GET", "/api/v1/keys").status_code == 403
    finally:
        lake.http.close()
        lake.server.stop()


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_keys_of_any_organizations(lake: Lake, made: Callable[[], str], data: st.DataObject) -> None:
    """Let in if and only if the role is there, always as its own; refusals name nobody else."""
    owners = data.draw(st.lists(st.tuples(st.sampled_from([ACME, OTHER]), st.sampled_from(ROLE_SETS)), max_size=4))
    keys = []
    for owner, roles in owners:
        name = made()
        keys.append((owner, roles, name, lake.index.keys.create(owner.id, name, roles)))
    for owner, roles, name, secret in keys:
        role, method, path, body = data.draw(st.sampled_from(ENDPOINTS[:5]))
        answer = lake.call(secret, method, path, body)
        assert (answer.status_code == 200) == (role in roles or Role.ADMIN in roles)
        strangers = {word for other, _, other_name, _ in keys if other != owner for word in (other_name, str(other.id))}
        secrets = {other_secret for *_, other_secret in keys}
        assert not any(word in answer.text for word in strangers | secrets)
        if path == "/api/v1/sql" and answer.status_code == 200:
            assert answer.json()["rows"] == [{"organization": str(owner.id)}]
        if answer.status_code != 200:
            assert name in answer.json()["error"]["message"]


@pytest.fixture
def made() -> Callable[[], str]:
    """Names that were not given before."""
    names = (f"drawn-{number:06}-key" for number in range(10**6))
    return lambda: next(names)
