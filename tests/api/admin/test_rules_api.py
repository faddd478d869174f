"""Rules over HTTP, on a real socket and a real index: roles, what is refused, each organization on its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from lakerunner.api.admin.rules_api import PATH, RULE_LIMIT, RULES_LIMIT, RulesApi
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.key_cache import Ages, KeyCache
from lakerunner.api.server import HttpServer, bind
from lakerunner.index.index import Index
from lakerunner.model.organization import EVERY_ROLE, Role
from lakerunner.services.metric_rules import CheckedRules
from suites.pushed import ACME, OTHER
from suites.rules import ERRORS, rule

BODY = {name: value for name, value in ERRORS.to_json().items() if name != "name"}
STORED = ERRORS.to_json() | {"version": 1, "paused": "", "state": "active", "since": ""}


class Rules:
    """The endpoints of rules on a port, with a key of each organization."""

    def __init__(self, index: Index) -> None:
        self.index = index
        who = Authenticator(KeyCache(index.keys.find, Ages(3600, 3600), lambda: 0.0).caller, None)
        api = RulesApi(index.metric_rules, CheckedRules(index.metric_rules), who, index.rule_history)
        self.server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda _: None)
        self.http = httpx.Client(base_url=self.server.url, timeout=30)
        self.admin = index.keys.create(ACME.id, "admin", frozenset({Role.ADMIN}))
        self.theirs = index.keys.create(OTHER.id, "admin", EVERY_ROLE)

    def call(self, method: str, path: str = "", body: object = None, key: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {key or self.admin}"}
        return self.http.request(method, f"{PATH}{path}", json=body, headers=headers)


@pytest.fixture
def rules(index: Index) -> Iterator[Rules]:
    opened = Rules(index)
    opened.server.start()
    yield opened
    opened.http.close()
    opened.server.stop()


def test_a_rule_is_put_read_switched_and_dropped(rules: Rules) -> None:
    put = rules.call("PUT", "/errors", BODY)
    assert (put.status_code, put.json()) == (200, STORED)
    assert rules.call("PUT", "/errors", ERRORS.to_json()).json() == STORED
    assert rules.call("GET").json() == {"rules": [STORED]}
    assert rules.call("GET", "/errors").json() == STORED
    assert rules.call("PUT", "/errors", BODY | {"dimensions": []}).json()["version"] == 2
    assert rules.call("POST", "/errors/disable").json()["enabled"] is False
    rules.index.metric_rules.pause(rules.index.metric_rules.find(ACME.id, "errors").id, "too many series")
    assert rules.call("GET", "/errors").json()["paused"] == "too many series"
    enabled = rules.call("POST", "/errors/enable").json()
    assert (enabled["enabled"], enabled["paused"]) == (True, "")
    assert rules.call("DELETE", "/errors").status_code == 204
    assert rules.call("GET").json() == {"rules": []}


def test_a_rule_covers_stored_data_from_then_on(rules: Rules) -> None:
    rules.call("PUT", "/errors", BODY)
    none = {"segments": 0, "rows": 0, "covered_segments": 0, "covered_rows": 0, "unreadable_segments": 0}
    found = rules.call("POST", "/errors/backfill", {"since": "2026-01-31T12:00:00Z"})
    covering = STORED | {"since": "2026-01-31T12:00:00.000000000Z"}
    assert (found.status_code, found.json()) == (200, {"rule": covering} | none)
    assert rules.call("GET", "/errors").json() == covering
    for body in ({}, {"since": 5}, {"since": "30d", "until": "1d"}, {"since": "soon"}, {"since": "2999-01-01"}):
        assert rules.call("POST", "/errors/backfill", body).status_code == 400
    assert rules.call("POST", "/nobody/backfill", {"since": "30d"}).status_code == 404
    assert rules.call("POST", "/errors/backfill", {"since": "30d"}, key=rules.theirs).status_code == 404
    assert rules.call("GET", "/errors").json() == covering
    rules.call("PUT", "/spans", {"signal": "traces", "selector": "{}", "measure": "count", "metric": "spans"})
    refused = rules.call("POST", "/spans/backfill", {"since": "30d"})
    assert (refused.status_code, "reads traces: only rules over logs" in refused.text) == (400, True)


def test_a_list_is_applied_as_a_whole(rules: Rules) -> None:
    wanted = {"rules": [ERRORS.to_json(), rule("b").to_json()]}
    added = {"changes": [{"name": "b", "change": "add"}, {"name": "errors", "change": "add"}]}
    assert rules.call("POST", "/apply?dry_run=true", wanted).json() == added
    assert rules.call("GET").json() == {"rules": []}
    assert rules.call("POST", "/apply?dry_run=false", wanted).json() == added
    assert rules.call("POST", "/apply", wanted).json() == {"changes": []}
    changed = {"rules": [rule("b", max_series=5, selector='{a="b"}').to_json()]}
    assert rules.call("POST", "/apply", changed).json()["changes"] == [
        {"name": "b", "change": "change", "fields": ["selector", "max_series"], "new_version": True},
        {"name": "errors", "change": "drop"},
    ]
    assert [one["name"] for one in rules.call("GET").json()["rules"]] == ["b"]


ENDPOINTS: list[tuple[Role, str, str, object]] = [
    (Role.READ, "GET", "", None),
    (Role.READ, "GET", "/errors", None),
    (Role.ADMIN, "PUT", "/errors", BODY),
    (Role.ADMIN, "POST", "/apply", {"rules": []}),
    (Role.ADMIN, "POST", "/apply?dry_run=true", {"rules": []}),
    (Role.ADMIN, "POST", "/errors/enable", None),
    (Role.ADMIN, "POST", "/errors/disable", None),
    (Role.ADMIN, "DELETE", "/errors", None),
]


@pytest.mark.parametrize("role", [Role.READ, Role.WRITE])
def test_keys_without_the_role_see_and_change_nothing(rules: Rules, role: Role) -> None:
    rules.index.metric_rules.put(ACME.id, ERRORS)
    key = rules.index.keys.create(ACME.id, "some", frozenset({role}))
    for needed, method, path, body in ENDPOINTS:
        answer = rules.call(method, path, body, key)
        assert answer.status_code == (200 if needed is role else 403), (method, path)
        assert rules.call(method, path, body, "lrk_guess").status_code == 401
    assert [one.rule for one in rules.index.metric_rules.current(ACME.id)] == [ERRORS]


def test_nobody_reaches_rules_of_another_organization(rules: Rules) -> None:
    rules.index.metric_rules.put(OTHER.id, rule("hidden"))
    for _, method, path, _body in ENDPOINTS:
        if "errors" in path and method != "PUT":
            answer = rules.call(method, path.replace("errors", "hidden"))
            assert (answer.status_code, str(OTHER.id) in answer.text) == (404, False)
    assert rules.call("GET").json() == {"rules": []}
    assert rules.call("PUT", "/hidden", BODY).json()["version"] == 1
    assert rules.call("POST", "/apply", {"rules": []}).status_code == 200
    for wish in ({"organization": str(OTHER.id)}, {"org": "other"}):
        assert rules.call("PUT", "/errors", BODY | wish).status_code == 400
    assert [one["name"] for one in rules.call("GET", key=rules.theirs).json()["rules"]] == ["hidden"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("PUT", "/errors", BODY | {"name": "other"}, 400, "the body names rule 'other', the path 'errors'"),
        ("PUT", "/errors", BODY | {"name": 5}, 400, "the body names rule '5'"),
        ("PUT", "/a%20b", BODY, 400, "rule name 'a b' is invalid"),
        ("PUT", "/errors", {}, 400, "a rule lacks signal, selector, measure, metric"),
        ("PUT", "/errors", [], 400, "the body must be a JSON object"),
        ("PUT", "/errors", BODY | {"colour": 1}, 400, "unknown keys ['colour']"),
        ("PUT", "/errors", BODY | {"selector": "{"}, 400, "rule 'errors': "),
        ("PUT", "/errors", BODY | {"selector": '{a="b"} # ' + "x" * 9000}, 400, "use 8192 at most"),
        ("PUT", "/errors", BODY | {"description": "\0"}, 400, "cannot be stored"),
        ("PUT", "/errors", BODY | {"max_series": True}, 400, "max_series of a rule is a whole number"),
        ("PUT", "/errors", BODY | {"max_series": 10**15}, 400, "at most 1000000"),
        (
            "PUT",
            "/errors",
            BODY | {"dimensions": ["a"] * 20_000},
            413,
            f"{RULE_LIMIT.bytes} bytes (the limit of a rule)",
        ),
        ("POST", "/apply", {"rules": [rule("a").to_json()] * 2}, 400, "rule 'a' appears 2 times"),
        ("POST", "/apply", {"rules": [5]}, 400, "the body must be"),
        ("POST", "/apply", {"rules": [], "org": "x"}, 400, "the body must be"),
        ("POST", "/apply?dry_run=yes", {"rules": []}, 400, "dry_run must be true or false, not 'yes'"),
        ("POST", "/apply", {"rules": [], "x": "x" * RULES_LIMIT.bytes}, 413, "(the limit of a list of rules)"),
        ("POST", "/apply", {"rules": [rule(f"r{n}").to_json() for n in range(1001)]}, 413, "1001 rules are more than"),
        ("POST", "/errors/enable", None, 404, "rule 'errors' not found"),
        ("GET", "/%00", None, 400, "rule name"),
        ("DELETE", "/errors", None, 404, "rule 'errors' not found"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    rules: Rules, method: str, path: str, body: object, status: int, words: str
) -> None:
    answer = rules.call(method, path, body)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text
    assert rules.call("GET").json() == {"rules": []}


def test_a_position_is_that_in_the_selector(rules: Rules) -> None:
    error = rules.call("PUT", "/errors", BODY | {"selector": '{a="b"}\n| json |'}).json()["error"]
    assert (error["kind"], error["position"]["line"]) == ("UserError", 2)


def test_the_body_must_be_json(rules: Rules) -> None:
    headers = {"authorization": f"Bearer {rules.admin}", "content-type": "text/plain"}
    for method, path in (("PUT", "/errors"), ("POST", "/apply")):
        answer = rules.http.request(method, f"{PATH}{path}", content=b"{}", headers=headers)
        assert answer.status_code == 415
