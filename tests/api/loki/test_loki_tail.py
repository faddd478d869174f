"""Tails over WebSockets: frames as Loki's, each line once, slow clients, limits, reasons of ends, isolation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from click.testing import CliRunner
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from api.loki.loki_lake import CART, PAY, SECOND
from api.loki.tail_lake import WAIT, TailLake, frame, lines, lines_of, tail_lake
from conformance.answer import LogEntry
from lakerunner.api.tail import tail_api
from lakerunner.api.tail.tail_api import TailLimits
from lakerunner.api.tail.tail_queue import QueueBounds
from lakerunner.cli import cli
from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.follow_lines import tail_frames
from lakerunner.index.commit import Commit, write_commit
from lakerunner.model.errors import Unavailable
from query.sample_lake import OTHER, START
from suites.certificates import Authority

CATEGORIZED = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
ALL: dict[str, Any] = {"start": START}


def line(second: int, text: str, stream: Any = CART) -> LogEntry:
    return LogEntry(START + second * SECOND, text, stream)


@pytest.fixture
def lake(embedded_postgres_url: str, tmp_path: Path) -> Iterator[TailLake]:
    with tail_lake(embedded_postgres_url, tmp_path) as opened:
        yield opened


def closing(client: ClientConnection) -> tuple[int, str]:
    """Wait for the end of the connection; return code and reason."""
    try:
        while True:
            client.recv(WAIT)
    except ConnectionClosed as ended:
        return (ended.rcvd.code, ended.rcvd.reason) if ended.rcvd else (0, "")


def test_lines_that_are_there_come_first_and_new_ones_follow(lake: TailLake) -> None:
    lake.push(*(line(n, f"old {n}") for n in range(5)))
    client = lake.tail(**ALL, limit=3)
    assert lines(client, 3) == ["old 2", "old 3", "old 4"]
    lake.push(line(61, "late line of another stream", PAY), line(60, "level=error new"))
    found = frame(client)
    assert found == {
        "streams": [
            {
                "stream": {"app": "cart", "detected_level": "error", "env": "prod", "service_name": "cart"},
                "values": [[str(START + 60 * SECOND), "level=error new"]],
            },
            {
                "stream": {"app": "pay", "detected_level": "unknown", "env": "prod", "service_name": "pay"},
                "values": [[str(START + 61 * SECOND), "late line of another stream"]],
            },
        ]
    }


def test_labels_by_kind_and_the_form_of_old_clients(lake: TailLake) -> None:
    kinds = lake.tail('{app="cart"} | logfmt', headers=CATEGORIZED, **ALL)
    legacy = lake.tail('{app="cart"}', path="/api/prom/tail", **ALL)
    lake.push(line(1, "took=3s"))
    assert frame(kinds) == {
        "streams": [
            {
                "stream": {"app": "cart", "env": "prod", "service_name": "cart"},
                "values": [
                    [
                        str(START + SECOND),
                        "took=3s",
                        {"structuredMetadata": {"detected_level": "unknown"}, "parsed": {"took": "3s"}},
                    ]
                ],
            }
        ],
        "encodingFlags": ["categorize-labels"],
    }
    assert frame(legacy) == {
        "streams": [
            {
                "labels": '{app="cart", detected_level="unknown", env="prod", service_name="cart"}',
                "entries": [{"ts": "2024-01-01T00:00:01Z", "line": "took=3s"}],
            }
        ],
        "dropped_entries": None,
    }


def test_each_line_comes_once_also_of_late_segments_and_merges(lake: TailLake) -> None:
    client = lake.tail(**ALL)
    (first,) = lake.push(line(30, "first"))
    assert lines(client, 1) == ["first"]
    (merged,) = lake.ingest(line(30, "first"), line(31, "unused"))
    lake.commit([replace(merged, level=1)], (first.id,))  # a merge brings no new lines, and its lines are not sent
    lake.push(line(2, "late"))
    lake.push(line(-1, "before the start"), line(40, "last"))
    assert lines(client, 2) == ["late", "last"]
    assert lines(lake.tail(**ALL, query='{env="prod"} |= "l"'), 2) == ["late", "last"]


def test_a_commit_that_others_overtake_is_found(lake: TailLake) -> None:
    client = lake.tail(**ALL)
    lake.push(line(0, "before"))  # stores the set of columns: two commits of a new one would wait for each other
    assert lines(client, 1) == ["before"]
    (slow,) = lake.ingest(line(1, "slow"))
    with lake.index._database.transaction() as transaction:
        write_commit(transaction, Commit((slow,), (), ()))
        for n in range(3):
            lake.push(line(10 + n, f"fast {n}"))
            assert lines(client, 1) == [f"fast {n}"]
    assert lines(client, 1) == ["slow"]


def test_a_repeated_delivery_is_sent_once(lake: TailLake) -> None:
    client = lake.tail(**ALL)
    (made,) = lake.push(line(1, "sent twice"))
    assert lines(client, 1) == ["sent twice"]
    again = replace(made, id=UUID(int=9))
    lake.lake.store.put(again.path, lake.lake.store.get(made.path, max_bytes=1 << 20))
    lake.commit([again])
    lake.push(line(2, "end"))
    assert lines(client, 1) == ["end"]


def test_a_client_that_does_not_read_loses_lines_and_holds_up_nobody(
    embedded_postgres_url: str, tmp_path: Path
) -> None:
    bounds = QueueBounds(entries=200)
    texts = [f"{n:04} " + "x" * 20_000 for n in range(1000)]
    with tail_lake(embedded_postgres_url, tmp_path, TailLimits(queue=bounds)) as lake:
        stuck = lake.tail(**ALL, receive_bytes=4096)
        others = [lake.tail('{env="prod"} |= "00"', **ALL) for _ in range(2)]
        lake.push(*(line(n // 100, text) for n, text in enumerate(texts)))
        wanted = [text for text in texts if "00" in text]
        assert all(sorted(lines(other, len(wanted))) == wanted for other in others)
        for tail in lake.follower.tails:
            assert len(tail.queue) <= bounds.entries
            assert tail.queue.bytes <= bounds.bytes + 50_000
        got: list[str] = []
        dropped: list[dict[str, Any]] = []
        while len(got) + len(dropped) < len(texts):
            found = frame(stuck)
            assert len(lines_of(found)) <= bounds.frame_entries
            got += lines_of(found)
            dropped += found.get("dropped_entries", [])
        assert got == sorted(set(got) & set(texts))
        assert dropped
        assert dropped[-1] == {
            "timestamp": str(START + 9 * SECOND),
            "labels": {"app": "cart", "detected_level": "unknown", "env": "prod", "service_name": "cart"},
        }


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"query": 'rate({a="b"}[1m])'}, 400, "only log selector is supported"),
        ({"query": "{"}, 400, "parse error at line 1, col 2: syntax error: unexpected $end, expecting IDENTIFIER or }"),
        ({"delay_for": 6}, 400, "delay_for can't be greater than 5"),
        (
            {"limit": 5001},
            400,
            "max entries limit per query exceeded, limit > max_entries_limit_per_query (5001 > 5000)",
        ),
        ({"key": "wrong"}, 401, "API key is unknown or revoked"),
        ({"headers": {"X-Scope-OrgID": "other"}}, 403, "X-Scope-OrgID 'other' is not the organization"),
    ],
)
def test_what_is_refused_before_the_upgrade(lake: TailLake, given: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        lake.tail(**given)
    assert refused.value.response.status_code == status
    assert (refused.value.response.body or b"").decode().startswith(words)


def test_ten_tails_of_an_organization(lake: TailLake) -> None:
    clients = [lake.tail(**ALL) for _ in range(10)]
    with pytest.raises(InvalidStatus) as refused:
        lake.tail()
    assert refused.value.response.status_code == 400
    words = b"max concurrent tail requests limit exceeded, count > limit (11 > 10)"
    assert refused.value.response.body == words
    lake.tail(key="other")
    lake.push(line(1, "all get it"))
    assert [lines(client, 1) for client in clients] == [["all get it"]] * 10


def test_another_organizations_lines_never_come(lake: TailLake) -> None:
    theirs = lake.tail('{app=~".+"}', key="other", **ALL)
    mine = lake.tail('{app=~".+"}', headers={"X-Scope-OrgID": "own"}, **ALL)
    lake.push(line(1, "theirs"), organization=OTHER)
    lake.push(line(2, "mine"))
    assert lines(theirs, 1) == ["theirs"]
    assert lines(mine, 1) == ["mine"]
    lake.push(line(3, "more of theirs"), organization=OTHER)
    assert lines(theirs, 1) == ["more of theirs"]


def test_a_stop_closes_with_a_reason(lake: TailLake) -> None:
    client = lake.tail(**ALL)
    lake.push(line(1, "before"))
    assert lines(client, 1) == ["before"]
    lake.server.stop()
    assert closing(client) == (1012, "the server is stopping: connect again")


def test_a_revoked_key_ends_the_tail(lake: TailLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_api, "KEY_SECONDS", 0.01)
    client = lake.tail(**ALL)
    del lake.keys["own"]
    assert closing(client) == (1008, "API key is unknown or revoked")


def test_a_query_that_fails_ends_the_tail_with_the_reason(lake: TailLake) -> None:
    client = lake.tail(**ALL)
    (made,) = lake.ingest(line(1, "lost"))
    lake.lake.store.delete([made.path])
    lake.commit([made])
    code, reason = closing(client)
    assert (code, bool(reason)) == (1011, True)


def test_other_requests_of_the_path(lake: TailLake) -> None:
    plain = httpx.get(f"{lake.server.url}/loki/api/v1/tail", headers={"x-api-key": "own"})
    assert (plain.status_code, plain.text) == (400, tail_api.NO_UPGRADE)
    elsewhere = {"x-api-key": "own", "connection": "Upgrade", "upgrade": "websocket"}
    assert httpx.get(f"{lake.server.url}/openapi.json", headers=elsewhere).status_code == 200


def test_the_client_of_the_command_line(lake: TailLake) -> None:
    lake.push(line(1, "one"), line(2, "two"))
    frames = tail_frames(Client(lake.server.url, "own"), {"query": '{env="prod"}', "start": str(START), "limit": "1"})
    assert lines_of(next(frames)) == ["two"]
    lake.push(line(3, "three"))
    assert lines_of(next(frames)) == ["three"]
    arguments = ["logql", "--tail", "--url", lake.server.url, "--key", "own"]
    for more, words in (
        (('{env="prod"}', "--to", "now"), "--tail has no end"),
        (("{",), "parse error at line 1, col 2"),
    ):
        refused = CliRunner().invoke(cli, [*arguments, *more])
        assert (refused.exit_code, words in refused.stderr) == (1, True), refused.stderr
    lake.server.stop()
    with pytest.raises(Unavailable, match="the server is stopping: connect again"):
        next(frames)


def test_tails_over_tls_end_with_the_reason_too(embedded_postgres_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate = authority.issue("server").loaded
    with tail_lake(embedded_postgres_url, tmp_path / "lake", certificate=certificate) as lake:
        client = lake.tail(**ALL, ssl=authority.trust)
        lake.push(line(1, "encrypted"))
        assert lines(client, 1) == ["encrypted"]
        lake.server.stop()
        assert closing(client) == (1012, "the server is stopping: connect again")
