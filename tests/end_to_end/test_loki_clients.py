"""Loki's own clients against a whole lake: logcli pages, lists, tails; the canary pushes, tails and misses no line."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from lakerunner.api.tail.tail_api import TailLimits
from servers.lake import Lake, Process, lake, wait_until
from servers.peers import peer, run_peer, running_peer
from servers.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SECONDS = 120
LINES, BATCH = 25_000, 1_000
TAIL_BATCHES, TAIL_BATCH = 40, 25  # a batch is not more than the lines that logcli wants of those that are there: 30
ORG_TAILS = TailLimits().org_tails
CANARY_SECONDS = int(os.environ.get("CANARY_SECONDS", "60"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    peer("logcli")
    with lake(tmp_path_factory.mktemp("lake")) as found:
        yield found


def push(running: Lake, app: str, values: Sequence[tuple[int, str]]) -> None:
    streams = [{"stream": {"app": app, "env": "test"}, "values": [[str(when), line] for when, line in values]}]
    response = httpx.post(f"{running.url}/loki/api/v1/push", json={"streams": streams}, timeout=60)
    assert response.status_code == 204, response.text


@pytest.fixture(scope="module")
def sent(running: Lake) -> list[str]:
    """Push lines of which up to seven have the same time, in the order in which they are expected."""
    start = time.time_ns() - 600 * 10**9
    values = [(start + number // 7 * 1000, f'{{"n":{number},"level":"info"}}') for number in range(LINES)]
    for first in range(0, LINES, BATCH):
        push(running, "pages", values[first : first + BATCH])

    def entries() -> int:
        stats = httpx.get(f"{running.url}/loki/api/v1/index/stats", params={"query": '{app="pages"}'}, timeout=60)
        return int(stats.json()["entries"])

    wait_until(lambda: entries() == LINES, f"{LINES} lines", SECONDS, running.process.text)
    return [line for _, line in values]


def logcli(running: Lake, *arguments: str) -> str:
    return run_peer("logcli", f"--addr={running.url}", "--quiet", *arguments)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_pages_neither_lose_nor_repeat_lines(running: Lake, sent: list[str], direction: str) -> None:
    order = ["--forward"] if direction == "forward" else []
    paged = "--limit", str(LINES + 1), "--batch", str(BATCH), "--since", "1h"
    found = logcli(running, "--output=raw", "query", '{app="pages"}', *paged, *order).splitlines()
    assert sorted(found) == sorted(sent)
    if direction == "forward":
        assert found == sent


def test_lists_and_metrics(running: Lake, sent: list[str]) -> None:
    selector = '{app="pages"}'
    labels = {"app", "env", "service_name"}
    assert labels <= set(logcli(running, "labels").split())
    assert logcli(running, "labels", "app").split() == ["pages"]
    assert logcli(running, "series", selector).strip() == '{app="pages", env="test", service_name="pages"}'
    size = sum(map(len, sent))
    stats = dict(re.findall(r"(\w+): ?(.+)", logcli(running, "stats", selector)))
    assert (stats["entries"], stats["bytes"].replace(" ", "")) == (str(LINES), f"{round(size / 1000)}kB"), stats
    (volume,) = json.loads(logcli(running, "volume", selector))
    assert int(volume["value"][1]) == size
    ranges = json.loads(logcli(running, "volume_range", selector, "--step=10m"))
    # One interval of time is a vector, several are a matrix.
    found = [pair for one in ranges for pair in one.get("values") or [one["value"]]]
    assert sum(int(value) for _, value in found) == size
    (count,) = json.loads(logcli(running, "instant-query", f"sum(count_over_time({selector} | json | n < 100 [1h]))"))
    assert count["value"][1] == "100"
    fields = logcli(running, "detected-fields", selector)
    assert re.search(r"label: n\b", fields) or '"n"' in fields


def test_a_tail_shows_pushed_lines_once_and_in_order(running: Lake, tmp_path: Path) -> None:
    with tailing(running, tmp_path) as tail:
        expected: list[str] = []
        for batch in range(TAIL_BATCHES):
            chosen = [f"{batch} of {TAIL_BATCHES}: line {number}" for number in range(TAIL_BATCH)]
            push(running, "tailed", [(time.time_ns(), line) for line in chosen])
            expected += chosen
            if batch in (0, 1, TAIL_BATCHES - 1):  # the first lines may be there already when the tail begins
                shown(running, tail, expected[-1])
        assert tail.stop() == 0
    assert tail.text().splitlines() == expected
    wait_until(lambda: may_open_tails(running, ORG_TAILS), "the place of the tail", SECONDS, running.process.text)
    assert "Traceback" not in running.process.text()


def test_a_tail_ends_with_the_reason_when_the_server_stops(tmp_path: Path) -> None:
    peer("logcli")
    with lake(tmp_path / "home") as stopping, tailing(stopping, tmp_path) as tail:
        push(stopping, "tailed", [(time.time_ns(), "the only line")])
        shown(stopping, tail, "the only line")
        assert stopping.process.stop() == 0
        assert tail.popen.wait(SECONDS) == 0
    line, reason = tail.text().splitlines()
    assert line == "the only line"
    assert reason.endswith("websocket: close 1012: the server is stopping: connect again")


def tailing(running: Lake, directory: Path) -> AbstractContextManager[Process]:
    """Run logcli; its log has the lines alone, and its errors."""
    arguments = [f"--addr={running.url}", "--quiet", "--output=raw", "query", '{app="tailed"}', "--tail"]
    return running_peer("logcli", arguments, "", directory / "tail.log")


def shown(running: Lake, tail: Process, line: str) -> None:
    wait_until(lambda: line in tail.text().splitlines(), f"{line!r} in a tail", SECONDS, running.process.text)


def may_open_tails(running: Lake, count: int) -> bool:
    url = f"ws{running.url.removeprefix('http')}/loki/api/v1/tail?query=%7Bapp%3D%22tailed%22%7D"
    with ExitStack() as opened:
        try:
            for _ in range(count):
                opened.enter_context(connect(url))
        except InvalidStatus:
            return False
    return True


def test_the_canary_misses_nothing(running: Lake, tmp_path: Path) -> None:
    port = free_port()
    address = running.url.removeprefix("http://")
    arguments = [f"-addr={address}", "-push", f"-port={port}", "-wait=30s", "-max-wait=60s"]
    metrics = f"http://127.0.0.1:{port}/metrics"

    def counted(name: str) -> float:
        found = re.search(rf"^loki_canary_{name} (\S+)$", httpx.get(metrics, timeout=10).text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    with running_peer("loki-canary", arguments, metrics, tmp_path / "canary.log") as canary:
        wanted = CANARY_SECONDS  # one a second; it takes a tail for broken after ten without a line
        wait_until(lambda: counted("entries_total") >= wanted, f"{wanted} lines", 2 * CANARY_SECONDS + 60, canary.text)
        names = ("missing", "websocket_missing", "spot_check_missing", "unexpected", "duplicate", "counter_missing")
        assert {name: counted(f"{name}_entries_total") for name in names} == dict.fromkeys(names, 0.0), canary.text()
        assert counted("response_latency_seconds_count") > 0
