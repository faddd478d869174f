"""A lake is backed up while it takes pushes, restored, copied and moved: same answers, nothing lost, nothing twice."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.objects.local import LocalStore
from lakerunner.services.backup.manifest import list_backups
from servers.lake import Lake, lake, query_api, wait_until
from suites.checked import points_of, spans_of
from suites.requests import drop, request_of

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

# A dropped file is not announced before it is an hour old: so it is not ingested when the backup is taken.
UNSETTLED = {"LAKERUNNER_SETTLE_SECONDS": "3600"}
QUERIES = (
    "select message, attributes['number'] as n from logs where service_name = 'before' order by message",
    "select metric_name, value, epoch_ns(timestamp) as ns from metrics order by ns",
    "select name, trace_id, span_id, duration from spans order by span_id",
)
BEFORE = [f"before {number}" for number in range(5)]


def push(running: Lake, signal: str, data: bytes) -> bool:
    """Return whether it was taken."""
    headers = {"content-type": "application/x-protobuf"}
    return httpx.post(f"{running.url}/v1/{signal}", content=data, headers=headers, timeout=60).status_code == 200


@contextmanager
def pushing(running: Lake, acknowledged: list[str]) -> Iterator[None]:
    """Push logs one after the other; those that were taken are in the list."""
    ended = Event()

    def go_on() -> None:
        number = 0
        while not ended.wait(0.1):
            if push(running, "logs", request_of(f"meanwhile {number}", service="meanwhile")):
                acknowledged.append(f"meanwhile {number}")
            number += 1

    thread = Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def answers(running: Lake) -> list[list[dict[str, Any]]]:
    return [running.sql(query) for query in QUERIES]


def messages(running: Lake, service: str) -> list[str]:
    rows = running.sql(f"select message from logs where service_name = '{service}'")
    return sorted((str(row["message"]) for row in rows), key=lambda text: int(text.rpartition(" ")[2]))


def test_a_lake_is_backed_up_restored_copied_and_moved(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    with lake(tmp_path / "home", UNSETTLED) as running:
        for signal, data in (
            ("logs", request_of(*BEFORE, service="before")),
            ("metrics", points_of(1, 2, 3)),
            ("traces", spans_of("a", "b")),
        ):
            assert push(running, signal, data)
        wait_until(lambda: all(answers(running)), "what was pushed", 120, running.process.text)
        drop(running, "edge", "logs.binpb", request_of("waiting 1", "waiting 2", service="waiting"))
        key = running.command("keys", "create", "grafana").stdout.strip()
        expected = answers(running)
        with pushing(running, acknowledged):
            wait_until(lambda: len(acknowledged) >= 3, "pushes", 60, running.process.text)
            before = list(acknowledged)
            taken = running.command("backup", str(tmp_path / "backups"))
            assert taken.returncode == 0, taken.stderr
            subprocess.run(["cp", "-a", running.home, tmp_path / "torn"], check=False, capture_output=True)
        torn = Lake(tmp_path / "torn", "", running.process).command("status")
        assert torn.returncode == 1
        assert "was copied while its lake was running" in torn.stderr
        assert "`lakerunner backup`" in torn.stderr
        wait_until(lambda: running.objects()["counts"]["seen"] == 0, "ingest", 120, running.process.text)
        assert messages(running, "meanwhile") == acknowledged
    again = running.command("backup", str(tmp_path / "backups"))  # of the lake that is stopped
    assert again.returncode == 0, again.stderr
    first, second = list_backups(LocalStore(tmp_path / "backups")).whole
    assert again.stdout.startswith(f"backup {second}: ")
    check_a_copy(running.home, tmp_path / "copy", expected, acknowledged)
    new = Lake(tmp_path / "new", "", running.process)
    check_restore(new, tmp_path / "backups", first)
    with lake(new.home) as restored:
        check_answers(restored, expected, before, acknowledged)
        bearer = {"authorization": f"Bearer {key}"}
        assert restored.sql("select count(*) as n from spans", headers=bearer) == [{"n": 2}]


def check_a_copy(home: Path, copy: Path, expected: list[list[dict[str, Any]]], acknowledged: list[str]) -> None:
    """Of a home that is stopped, by cp, and with the original moved away: no path of it is kept anywhere."""
    subprocess.run(["cp", "-a", home, copy], check=True)
    home.rename(home.with_name("moved"))
    with (
        EmbeddedPostgres(copy / "postgres") as url,
        query_api(copy, {"DATABASE_URL": url, "LAKERUNNER_QUERY_SPARK": "off"}) as copied,
    ):
        assert answers(copied) == expected
        assert messages(copied, "meanwhile") == acknowledged
    home.with_name("moved").rename(home)


def check_restore(new: Lake, backups: Path, name: str) -> None:
    done = new.command("restore", str(backups), "--backup", name)
    assert done.returncode == 0, done.stderr
    assert f"  lakerunner fsck --deep --home {new.home}\n" in done.stdout
    checked = new.command("fsck", "--deep")
    assert checked.returncode == 0, checked.stdout
    again = new.command("restore", str(backups))
    assert (again.returncode, "is not empty: restore into a new --home" in again.stderr) == (1, True)


def check_answers(
    restored: Lake, expected: list[list[dict[str, Any]]], before: list[str], acknowledged: list[str]
) -> None:
    wait_until(
        lambda: bool(messages(restored, "waiting")) and restored.objects()["counts"]["seen"] == 0,
        "what was not ingested when the backup was taken",
        120,
        restored.process.text,
    )
    assert push(restored, "logs", request_of(*BEFORE, service="before"))  # was pushed before: counts once
    assert push(restored, "logs", request_of("afterwards 1", service="afterwards"))
    wait_until(lambda: bool(messages(restored, "afterwards")), "a new push", 120, restored.process.text)
    assert answers(restored) == expected
    assert messages(restored, "waiting") == ["waiting 1", "waiting 2"]
    meanwhile = messages(restored, "meanwhile")
    assert meanwhile == acknowledged[: len(meanwhile)]  # each once, none left out
    assert meanwhile[: len(before)] == before
