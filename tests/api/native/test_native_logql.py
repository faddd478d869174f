"""LogQL in the native API: lines and points as events, and the check of a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from api.loki.loki_lake import KEYS, LINES, NOW, SECOND, lines_lake
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.limits import Capacity, QueryLimits
from lakerunner.api.native.logs_api import NativeLogsApi
from lakerunner.api.query_service import QueryService
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.organization import EVERY_ROLE, Caller
from query.sample_lake import START

RANGE = {"s": START // 10**6, "e": NOW // 10**6}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lake = lines_lake(tmp_path_factory.mktemp("native_logql"))
    who = Authenticator({key: Caller(one, key, EVERY_ROLE) for key, one in KEYS.items()}.get, None)
    service = QueryService(who, QueryLimits(Capacity(4, 1000.0, 4), lambda: 0.0), lambda: NOW)
    server = HttpServer(build_app(NativeLogsApi(lake.engine().engine, service).routes()), bind("127.0.0.1", 0), print)
    server.start()
    yield server.url
    server.stop()
    lake.close()


def post(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/api/v1/{path}", json=body, headers={"x-api-key": "own"}, timeout=60)


def events(url: str, **body: Any) -> list[dict[str, Any]]:
    answer = post(url, "logs/query", RANGE | body)
    assert answer.status_code == 200, answer.text
    found = [orjson.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    return [one for one in found if one["type"] not in ("progress", "heartbeat")]


def test_lines_with_tags_newest_first(url: str) -> None:
    *results, done = events(url, q='{app="cart"} | logfmt', limit=2, fields=["level", "app", "trace_id"])
    assert [one["data"] for one in results] == [
        {
            "timestamp": (START + second * SECOND) // 10**6,
            "timestamp_ns": str(START + second * SECOND),
            "message": LINES[number].text,
            "tags": {"app": "cart", "level": level, "trace_id": trace},
        }
        for second, number, level, trace in ((3, 3, "info", "t1"), (2, 1, "error", "t2"))
    ]
    assert (done["type"], done["data"]["status"], done["data"]["complete"]) == ("done", "ok", True)
    oldest, _ = events(url, q='{app="cart"}', limit=1, reverse=False)
    assert oldest["data"]["message"] == LINES[0].text


def test_points_are_named_as_counts(url: str) -> None:
    *results, done = events(url, q='sum by (app) (count_over_time({env="prod"}[1h]))', s=NOW // 10**6 - 1, step="1h")
    assert [(one["data"]["tags"], one["data"]["value"]) for one in results] == [
        ({"__name__": "__logql_logs_total", "app": "cart"}, 3),
        ({"__name__": "__logql_logs_total", "app": "pay"}, 2),
    ]
    assert {one["data"]["timestamp"] for one in results} == {NOW // 10**6 - 1}
    assert done["type"] == "done"


def test_errors_come_as_status_or_as_the_last_event(url: str) -> None:
    for body, words in (
        ({"q": "{"}, "parse error at line 1, col 2"),
        ({}, "`q` is not LogQL"),
        ({"q": "{a=`b`}", "limit": 5001}, "`limit` must be a number of lines from 1 to 5000"),
        ({"q": "{a=`b`}", "fields": "x"}, "`fields` must be a list"),
    ):
        refused = post(url, "logs/query", RANGE | body)
        assert (refused.status_code, words in refused.json()["error"]["message"]) == (400, True), refused.text
    (failed,) = events(url, q='sum_over_time({app="cart"} | logfmt | unwrap path [1h])')
    assert failed["type"] == "error"


def test_a_text_is_checked(url: str) -> None:
    assert post(url, "logql/validate", {"q": '{a="b"}|="c"'}).json() == {
        "valid": True,
        "kind": "logs",
        "query": '{a="b"} |= "c"',
    }
    assert post(url, "logql/validate", {"q": 'rate({a="b"}[1m])'}).json()["kind"] == "metrics"
    wrong = post(url, "logql/validate", {"q": '{a="b"} | nonsense ('}).json()
    assert (wrong["valid"], "parse error" in wrong["error"]["message"]) == (False, True)
