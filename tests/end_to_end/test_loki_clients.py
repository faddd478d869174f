"""Loki's own clients against a whole lake: logcli pages and lists, the canary pushes, tails and misses no line."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from servers.lake import Lake, lake, wait_until
from servers.peers import peer, run_peer, running_peer
from servers.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SECONDS = 120
LINES, BATCH = 25_000, 1_000
CANARY_SECONDS = int(os.environ.get("CANARY_SECONDS", "60"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    peer("logcli")
    with lake(tmp_path_factory.mktemp("lake")) as found:
        yield found


@pytest.fixture(scope="module")
def sent(running: Lake) -> list[str]:
    """Push lines of which up to seven have the same time, in the order in which they are expected."""
    start = time.time_ns() - 600 * 10**9
    values = [(start + number // 7 * 1000, f'{{"n":{number},"level":"info"}}') for number in range(LINES)]
    for first in range(0, LINES, BATCH):
        chosen = [[str(when), line] for when, line in values[first : first + BATCH]]
        streams = [{"stream": {"app": "pages", "env": "test"}, "values": chosen}]
        response = httpx.post(f"{running.url}/loki/api/v1/push", json={"streams": streams}, timeout=60)
        assert response.status_code == 204, response.text

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
