"""The API of raw objects, and the command that asks it: rejects, dismissal, filters; each organization its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from lakerunner.api.admin.objects_api import ObjectsApi
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.key_cache import Ages, KeyCache
from lakerunner.api.server import HttpServer, bind
from lakerunner.cli import cli
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.sources import Arrival
from lakerunner.model.errors import NotFound
from lakerunner.model.organization import Role
from lakerunner.model.source import Findings, Note, Reject, Rejects, SourceObject
from suites.pushed import ACME, OTHER

APP, CUT = "otel-raw/acme/files/app.jsonl", "otel-raw/acme/files/cut.binpb.gz"
REJECT = Reject(3, 70, "column 1: not JSON", "no\ufffd")
FOUND = Findings(Rejects(1, 1000, (REJECT,)), (Note("no service", 999, 1, "no column is the service"),), 999)


class Served:
    def __init__(self, index: Index) -> None:
        cache = KeyCache(index.keys.find, Ages(3600, 3600), lambda: 0.0)
        api = ObjectsApi(index.sources, Authenticator(cache.caller, None), len)
        self.server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda reason: None)
        self.keys = {
            one.name: index.keys.create(one.id, "k", frozenset({Role.READ, Role.WRITE})) for one in (ACME, OTHER)
        }

    def ask(self, method: str, path: str, whose: str = "acme") -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[whose]}"}
        return httpx.request(method, f"{self.server.url}/api/v1/objects{path}", headers=headers, timeout=30)

    def command(self, *arguments: str) -> str:
        given = ["objects", *arguments, "--url", self.server.url, "--key", self.keys["acme"]]
        found = CliRunner().invoke(cli, given, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output


@pytest.fixture
def served(index: Index) -> Iterator[Served]:
    opened = Served(index)
    sources = [SourceObject("lake", key, "e", 10, 5) for key in (APP, CUT)]
    index.sources.announce([Arrival(one, ACME.id, "files", "logs", "t", b"m") for one in sources])
    index.commit(
        Commit((), (sources[0],), ((sources[1], "the gzip file is cut short"),), findings=((sources[0], FOUND),))
    )
    opened.server.start()
    yield opened
    opened.server.stop()


def test_what_was_found_is_listed_filtered_and_shown(served: Served) -> None:
    cut, app = served.ask("GET", "").json()["objects"]
    assert (app["state"], app["rows"], app["rejected"], app["notes"]) == (
        "partial",
        999,
        1,
        [{"kind": "no service", "count": 999, "line": 1, "text": "no column is the service"}],
    )
    assert (cut["state"], cut["rows"], cut["rejected"], cut["notes"]) == ("failed", None, 0, [])
    for query, keys in (
        ("?state=partial", [APP]),
        ("?key=otel-raw/acme/files/", [CUT, APP]),
        ("?key=*.jsonl", [APP]),
        ("?key=app.jsonl", []),
    ):
        assert [one["key"] for one in served.ask("GET", query).json()["objects"]] == keys
    assert served.ask("GET", "?key=a%00b").status_code == 400
    assert "1 line rejected" in served.command("--state", "partial", "--path", "*.jsonl")
    assert json.loads(served.command("--format", "json", "--state", "failed"))["objects"] == [cut]


def test_rejects_are_listed_to_their_own_organization(served: Served) -> None:
    listed = served.ask("GET", f"/rejects?key={APP}").json()
    assert listed == {"key": APP, "etag": "e", "lines": 1000, "rejected": 1, "rejects": [vars(REJECT)]}
    nothing: dict[str, Any] = {"etag": None, "lines": 0, "rejected": 0, "rejects": []}
    assert served.ask("GET", f"/rejects?key={CUT}").json() == {"key": CUT, **nothing}
    assert served.ask("GET", f"/rejects?key={APP}", "other").json() == {"key": APP, **nothing}
    assert served.ask("GET", "/rejects").status_code == 400
    assert "column 1: not JSON" in served.command("rejects", APP)
    with pytest.raises(NotFound, match=f"key app.jsonl: did you mean {APP}"):
        served.command("rejects", "app.jsonl")
    with pytest.raises(NotFound, match="no object has the key b: `lakerunner objects` lists keys"):
        served.command("dismiss", "b")
    assert served.command("rejects", CUT) == f"no line of {CUT} was rejected\n"


def test_dismissing_ends_objects_of_its_own_organization(served: Served) -> None:
    assert served.ask("POST", f"/dismiss?key={CUT}", "other").json() == {"dismissed": 0}
    assert served.ask("POST", "/dismiss").status_code == 400
    assert served.ask("POST", f"/dismiss?key={CUT}").json() == {"dismissed": 1}
    assert served.command("dismiss", APP) == f"dismissed {APP}\n"
    assert served.command("dismiss", APP) == f"nothing to dismiss: {APP} is neither failed nor partial\n"
    assert served.ask("GET", "").json()["counts"] == {"seen": 0, "done": 1, "partial": 0, "failed": 0, "dismissed": 1}
