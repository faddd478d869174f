"""The SQL endpoint over a real socket, on answers that are slow, long or fail on the way."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.api.formats import row_formats
from lakerunner.api.formats import row_formats as json_module
from lakerunner.api.formats import row_formats as parquet_module
from lakerunner.api.formats.row_formats import FORMATS
from lakerunner.model.time import TimeRange
from lakerunner.query.contract.account import Account, Missing
from suites.leaving import leaving
from suites.scripted import FAILURE, Scripted, ScriptedEngine, events_of, sql_server

HOUR = TimeRange(1_704_067_200_000_000_000, 1_704_070_800_000_000_000)
LACKING = Account(considered=4, read=3, missing=(Missing(1, HOUR, "the store is away"),), rows=7)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine({})


@pytest.fixture
def answers(engine: ScriptedEngine) -> dict[str, Scripted]:
    return engine.answers  # type: ignore[return-value]


@pytest.fixture
def url(engine: ScriptedEngine) -> Iterator[str]:
    with sql_server(engine) as base:
        yield f"{base}/api/v1/sql"


def ask(url: str, query: str, format_: str, **body: Any) -> httpx.Response:
    return httpx.post(url, json={"query": query, "format": format_, **body}, timeout=60)


def kinds_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


@pytest.mark.parametrize("format_", ["ndjson", "csv", "sse"])
def test_rows_come_before_the_answer_is_whole(url: str, answers: dict[str, Scripted], format_: str) -> None:
    answers["slow"] = Scripted([1, "wait", 2])
    with httpx.stream("POST", url, json={"query": "slow", "format": format_}, timeout=60) as response:
        lines = (line for line in response.iter_lines() if "1" in line or "2" in line)
        assert "1" in next(lines)
        answers["slow"].go.set()
        assert "2" in next(lines)


def test_arrow_batches_come_before_the_answer_is_whole(url: str, answers: dict[str, Scripted]) -> None:
    answers["slow"] = Scripted([1, "wait", 2])
    with httpx.stream("POST", url, json={"query": "slow", "format": "arrow"}, timeout=60) as response:
        pieces = response.iter_bytes()
        first = next(pieces)
        answers["slow"].go.set()
        whole = b"".join([first, *pieces])
    assert pa.ipc.open_stream(first).read_next_batch().to_pylist() == [{"n": 1}]
    assert pa.ipc.open_stream(whole).read_all().to_pylist() == [{"n": 1}, {"n": 2}]
    assert whole.endswith(b"\xff\xff\xff\xff\0\0\0\0")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("script", [["wait"], [1, "wait"]])
def test_a_client_that_leaves_stops_the_query(
    url: str, answers: dict[str, Scripted], format_: str, script: list[Any]
) -> None:
    answers["endless"] = Scripted(script)
    with leaving(url, {"query": "endless", "format": format_}):
        assert answers["endless"].waits.wait(60)
    assert answers["endless"].closed.wait(60)


def test_a_client_that_leaves_in_the_middle_of_many_rows_stops_the_query(
    url: str, answers: dict[str, Scripted]
) -> None:
    """It does not even read: what waits to be sent is bounded, and the query is let go of when it closes."""
    answers["many"] = Scripted([*range(200_000), "wait"])
    address = urlsplit(url)
    body = json.dumps({"query": "many", "format": "sse"}).encode()
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(
            b"POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert not answers["many"].closed.is_set()
    assert answers["many"].closed.wait(60)


def test_events_of_a_failure_end_with_the_error(url: str, answers: dict[str, Scripted]) -> None:
    answers["events"] = Scripted([1, "fail"])
    events = events_of(ask(url, "events", "sse"))
    assert kinds_of(events) == ["schema", "result", "error"]
    assert events[-1]["error"] == {"kind": "TooLarge", "message": FAILURE}


@pytest.mark.parametrize("format_", ["ndjson", "csv", "arrow"])
def test_a_failure_on_the_way_cuts_the_response_off(url: str, answers: dict[str, Scripted], format_: str) -> None:
    answers["lines"] = Scripted([1, "fail"])
    pieces: list[bytes] = []
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", url, json={"query": "lines", "format": format_}, timeout=60) as response,
    ):
        pieces.extend(response.iter_bytes())
    got = b"".join(pieces)
    if format_ == "ndjson":
        assert [json.loads(line) for line in got.splitlines()] == [
            {"n": 1},
            {"error": {"kind": "TooLarge", "message": FAILURE}},
        ]
    if format_ == "csv":
        assert got == b"n\n1\n"
    if format_ == "arrow":
        assert not got.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    assert answers["lines"].closed.wait(60)


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_a_failure_on_the_way_of_a_whole_answer_is_its_status(
    url: str, answers: dict[str, Scripted], format_: str
) -> None:
    answers["whole"] = Scripted([1, "fail"])
    response = ask(url, "whole", format_)
    assert response.status_code == 413
    assert response.json()["error"] == {"kind": "TooLarge", "message": FAILURE}
    assert answers["whole"].closed.is_set()


@pytest.mark.parametrize("format_", [name for name in FORMATS if name != "sse"])
def test_a_query_that_fails_at_once_has_its_status(url: str, answers: dict[str, Scripted], format_: str) -> None:
    answers["lines"] = Scripted(["fail"])
    assert ask(url, "lines", format_).status_code == 413


@pytest.mark.parametrize("format_", FORMATS)
def test_a_bug_shows_no_details(url: str, answers: dict[str, Scripted], format_: str) -> None:
    answers["bug"] = Scripted(["bug"])
    response = ask(url, "bug", format_)
    assert "secret" not in response.text
    assert "an internal error" in response.text


@pytest.mark.parametrize("format_", FORMATS)
def test_an_answer_without_rows_has_its_columns(url: str, answers: dict[str, Scripted], format_: str) -> None:
    answers["none"] = Scripted([])
    response = ask(url, "none", format_)
    assert response.status_code == 200
    if format_ == "csv":
        assert response.text == "n\n"
    if format_ == "arrow":
        assert pa.ipc.open_stream(response.content).read_all().schema.names == ["n"]
    if format_ == "sse":
        assert kinds_of(events_of(response)) == ["schema", "done"]


def events_as_they_come(url: str, query: str) -> Iterator[dict[str, Any]]:
    with httpx.stream("POST", url, json={"query": query, "format": "sse"}, timeout=60) as response:
        for line in response.iter_lines():
            if line:
                yield json.loads(line.removeprefix("data: "))


def test_a_silent_query_sends_heartbeats(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_formats, "HEARTBEAT_SECONDS", 0.1)
    answers["slow"] = Scripted(["wait", 5])
    kinds: list[str] = []
    for event in events_as_they_come(url, "slow"):
        kinds.append(event["type"])
        if kinds.count("heartbeat") == 3:
            answers["slow"].go.set()
    assert [kind for kind in kinds if kind != "heartbeat"] == ["schema", "result", "done"]
    assert kinds[1:4] == ["heartbeat"] * 3


def test_progress_is_told_when_it_changes_and_not_after_the_end(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_formats, "PROGRESS_SECONDS", 0.02)
    steps = [Account(considered=10, pruned={"time": 2}), Account(considered=10, pruned={"time": 2}, read=4)]
    answers["long"] = Scripted([steps[0], "wait", 0.2, 1, steps[1], "wait", 2])
    events = []
    for event in events_as_they_come(url, "long"):
        events.append(event)
        if event["type"] == "progress":
            answers["long"].go.set()
    told = [(e["segments_done"], e["segments_total"]) for e in events if e["type"] == "progress"]
    assert told == [(2, 10), (6, 10)]
    assert kinds_of(events) == ["schema", "progress", "result", "progress", "result", "done"]


def test_rows_do_not_wait_for_signs_of_life(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sign is due later than the client waits."""
    monkeypatch.setattr(row_formats, "PROGRESS_SECONDS", 600.0)
    monkeypatch.setattr(row_formats, "HEARTBEAT_SECONDS", 600.0)
    answers["two"] = Scripted([Account(considered=1, read=1), 1, 0.1, 2])
    assert kinds_of(events_of(ask(url, "two", "sse"))) == ["schema", "result", "result", "done"]


def test_the_closing_word_says_what_is_missing(url: str, answers: dict[str, Scripted]) -> None:
    closing = {
        "row_count": 1,
        "complete": False,
        "missing": [
            {
                "segments": 1,
                "start": "2024-01-01T00:00:00.000000000Z",
                "end": "2024-01-01T01:00:00.000000000Z",
                "reason": "the store is away",
            }
        ],
        "degraded": None,
        "warnings": [],
    }
    answers["part"] = Scripted([1, LACKING])
    last = events_of(ask(url, "part", "sse"))[-1]
    assert {"type": "done", **closing}.items() <= last.items()
    assert (last["stats"]["considered"], last["stats"]["read"], last["stats"]["rows"]) == (4, 3, 7)
    assert "missing" not in last["stats"]
    body = ask(url, "part", "json", partial=True).json()
    assert closing.items() <= body.items()
    assert body["rows"] == [{"n": 1}]


def test_a_degraded_answer_says_so_in_every_format(url: str, answers: dict[str, Scripted]) -> None:
    degraded = Account(degraded="the index is away:\nsegments as of 12:00 \u2013 older ones only")
    answers["old"] = Scripted([degraded, 1])
    assert ask(url, "old", "json").json()["degraded"] == degraded.degraded
    assert events_of(ask(url, "old", "sse"))[-1]["degraded"] == degraded.degraded
    for format_ in ("ndjson", "csv", "arrow", "parquet"):
        said = ask(url, "old", format_).headers["lakerunner-degraded"]
        assert said == "the index is away: segments as of 12:00 ? older ones only"


def test_warnings_are_said_in_every_format(url: str, answers: dict[str, Scripted]) -> None:
    warnings = ["logs: all up to then has expired", "traces: too"]
    answers["gone"] = Scripted([Account(warnings=frozenset(warnings)), 1])
    body = ask(url, "gone", "json").json()
    assert (body["warnings"], body["complete"], "warnings" in body["stats"]) == (warnings, True, False)
    assert events_of(ask(url, "gone", "sse"))[-1]["warnings"] == warnings
    for format_ in ("ndjson", "csv", "arrow", "parquet"):
        assert ask(url, "gone", format_).headers["lakerunner-warnings"] == "; ".join(warnings)


def test_partial_is_asked_for_by_default_only_where_it_can_be_said(
    url: str, engine: ScriptedEngine, answers: dict[str, Scripted]
) -> None:
    answers["q"] = Scripted([1])
    for format_ in FORMATS:
        ask(url, "q", format_)
    ask(url, "q", "json", partial=True)
    ask(url, "q", "sse", partial=False)
    assert [question.partial for question in engine.asked] == [False] * 5 + [True] + [True, False]
    for format_ in ("ndjson", "csv", "arrow", "parquet"):
        refused = ask(url, "q", format_, partial=True)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == (
            f"{format_} cannot list missing data: request partial answers as json or sse"
        )


STEPS = st.lists(
    st.one_of(
        st.integers(0, 99),
        st.builds(Account, considered=st.just(9), read=st.integers(0, 9)),
        st.just(0.002),
        st.just("fail"),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=STEPS, format_=st.sampled_from(sorted(FORMATS)))
def test_no_part_of_an_answer_looks_like_the_whole(
    url: str, answers: dict[str, Scripted], script: list[Any], format_: str
) -> None:
    answers["any"] = Scripted(script)
    rows = [{"n": step} for step in script if isinstance(step, int)]
    try:
        response = ask(url, "any", format_)
    except httpx.RemoteProtocolError:
        assert "fail" in script
        return
    if response.status_code != 200:
        assert (response.status_code, "fail" in script) == (413, True)
        return
    if format_ == "sse":
        events = [event for event in events_of(response) if event["type"] not in ("progress", "heartbeat")]
        assert kinds_of(events).count("done") + kinds_of(events).count("error") == 1
        assert events[-1]["type"] == ("error" if "fail" in script else "done")
        if "fail" in script:
            return
    assert "fail" not in script
    assert READ[format_](response) == rows


READ: dict[str, Callable[[httpx.Response], list[dict[str, int]]]] = {
    "json": lambda response: response.json()["rows"],
    "ndjson": lambda response: [json.loads(line) for line in response.text.splitlines()],
    "csv": lambda response: [{"n": int(line)} for line in response.text.splitlines()[1:]],
    "arrow": lambda response: pa.ipc.open_stream(response.content).read_all().to_pylist(),
    "parquet": lambda response: pq.read_table(io.BytesIO(response.content)).to_pylist(),
    "sse": lambda response: [event["data"] for event in events_of(response) if event["type"] == "result"],
}


def test_a_json_answer_past_its_bound_is_refused(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_module, "JSON_MAX_BYTES", 16)
    answers.update({"fits": Scripted([1, 2]), "over": Scripted([1, 2, 3])})
    assert ask(url, "fits", "json").status_code == 200
    over = ask(url, "over", "json")
    assert over.status_code == 413
    assert "16 bytes" in over.json()["error"]["message"]
    assert answers["over"].closed.is_set()


def test_a_parquet_answer_past_its_bound_is_refused(
    url: str, answers: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.update({"fits": Scripted([1]), "over": Scripted([1])})
    monkeypatch.setattr(parquet_module, "PARQUET_MAX_BYTES", 10_000)
    assert ask(url, "fits", "parquet").status_code == 200
    monkeypatch.setattr(parquet_module, "PARQUET_MAX_BYTES", 10)
    over = ask(url, "over", "parquet")
    assert over.status_code == 413
    assert "the answer as Parquet is larger than 10 bytes" in over.json()["error"]["message"]
    assert answers["over"].closed.is_set()
