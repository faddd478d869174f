"""Failed work and segments set aside: listed over HTTP with their reasons, and sent on their way again."""

from __future__ import annotations

import io
from collections.abc import Iterator

import httpx
import pytest

from lakerunner.api.admin.work_api import WorkApi
from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.server import HttpServer, bind
from lakerunner.bus.topics import SegmentsCommitted
from lakerunner.commands.objects import show_work
from lakerunner.model.errors import NotFound
from lakerunner.model.organization import EVERY_ROLE, Caller, Share
from lakerunner.model.segment import Segment
from lakerunner.services.tending import Requeue
from suites.tending_lake import ACME, OTHER, Lake, segment

CALLERS = {one.name: Caller(one, "key", EVERY_ROLE, Share()) for one in (ACME, OTHER)}
THEIRS = {"authorization": "Bearer other"}


@pytest.fixture
def asked(tended: Lake) -> Iterator[httpx.Client]:
    """Keys are names of organizations here, and may do everything."""
    tending = tended.index.tending
    api = WorkApi(tending, Authenticator(CALLERS.get, None), Requeue(tending))
    server = HttpServer(build_app(api.routes()), bind("127.0.0.1", 0), lambda _: None)
    server.start()
    with httpx.Client(base_url=server.url, headers={"authorization": "Bearer acme"}, timeout=30) as client:
        yield client
    server.stop()


def given_up(lake: Lake) -> tuple[list[Segment], Segment]:
    """A merge of two that failed for good, and a segment that cannot be read."""
    made = lake.commit(segment("a"), segment("b"))
    (damaged,) = lake.commit(segment("m", signal="metrics"))
    lake.jobs.fail = {made[0].id}
    worker = lake.compaction(attempts=1)
    lake.box(*made)
    worker.step()
    worker.close()
    lake.index.tending.set_aside(ACME.id, [damaged.id], "page 3 is torn")
    lake.jobs.fail = set()
    return made, damaged


def test_what_failed_is_listed_with_its_reason(tended: Lake, asked: httpx.Client) -> None:
    made, damaged = given_up(tended)
    answer = asked.get("/api/v1/work").raise_for_status().json()
    (work,) = answer["work"]
    assert work["work"] == "compact"
    assert (work["state"], work["attempts"], work["reason"]) == ("aside", 1, "it does not work")
    assert (work["signal"], work["tier"], work["collector"]) == ("logs", "raw", "c")
    assert work["segments"] == sorted(str(one.id) for one in made)
    reasons = {one["id"]: one["reason"] for one in answer["segments"]}
    why = f"work {work['id']} was set aside after 1 attempt: it does not work"
    assert reasons == {str(damaged.id): "page 3 is torn"} | {str(one.id): why for one in made}
    theirs = asked.get("/api/v1/work", headers=THEIRS)
    assert theirs.json() == {"work": [], "segments": []}
    shown = io.StringIO()
    show_work(answer, "table", shown)
    assert work["id"] in shown.getvalue()
    assert "page 3 is torn" in shown.getvalue()
    assert shown.getvalue().endswith("0 waiting, 1 set aside, 3 segments set aside\n")


def test_all_of_it_goes_again(tended: Lake, asked: httpx.Client) -> None:
    _made, damaged = given_up(tended)
    assert asked.post("/api/v1/requeue").raise_for_status().json() == {"work": 1, "segments": 3}
    assert asked.get("/api/v1/work").json() == {"work": [], "segments": []}
    tended.relay()
    worker = tended.compaction()
    worker.step()
    assert tended.levels() == [(1, 2)]
    (told,) = tended.left("boxer.metrics.rollup", "boxer")
    assert isinstance(told, SegmentsCommitted)
    assert [one.id for one in told.segments] == [damaged.id]
    assert asked.post("/api/v1/requeue").json() == {"work": 0, "segments": 0}


def test_one_of_it_goes_again(tended: Lake, asked: httpx.Client) -> None:
    made, damaged = given_up(tended)
    (work,) = asked.get("/api/v1/work").json()["work"]
    refused = asked.post("/api/v1/requeue", params={"id": ["nonsense", work["id"]]})
    assert refused.status_code == 404
    assert "has the id 'nonsense'" in refused.json()["error"]["message"]
    theirs = asked.post(
        "/api/v1/requeue",
        params={"id": work["id"]},
        headers=THEIRS,
    )
    assert theirs.status_code == 404
    assert asked.post("/api/v1/requeue", params={"id": work["id"]}).json() == {"work": 1, "segments": 2}
    left = asked.get("/api/v1/work").json()
    assert (left["work"], [one["id"] for one in left["segments"]]) == ([], [str(damaged.id)])
    assert asked.post("/api/v1/requeue", params={"id": str(damaged.id)}).json() == {"work": 0, "segments": 1}
    assert {one.id for one in tended.index.tending.live(ACME.id, [one.id for one in made])} == {one.id for one in made}


def test_an_unknown_id_is_said(tended: Lake) -> None:
    with pytest.raises(NotFound, match="has the id 'x'"):
        Requeue(tended.index.tending)(ACME.id, ["x"])
