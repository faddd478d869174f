"""Query workers as the processes that people run: killed and told to stop while they stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from lakerunner.api.server import bind
from lakerunner.api.workers.addresses import Addresses, lookups
from lakerunner.api.workers.worker_api import RemoteWorkers, worker_name
from query.sample_lake import Lake
from query.test_workers_http import check_each_once, gather, leaf, shares, wide_lake

STARTS_WITHIN = 60.0
pytestmark = pytest.mark.slow  # two processes each


@dataclass
class Process:
    running: subprocess.Popen[bytes]
    url: str

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while True:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                assert self.running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return wide_lake(tmp_path / "lake")


@pytest.fixture
def processes(lake: Lake, tmp_path: Path) -> Iterator[list[Process]]:
    started = [_start(lake, tmp_path / name) for name in ("one", "two")]
    for process in started:
        process.wait_until_ready()
    yield started
    for process in started:
        process.running.kill()
        process.running.wait(20)


def _start(lake: Lake, home: Path) -> Process:
    listener = bind("127.0.0.1", 0)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    store = (lake.directory / "store").as_uri()
    command = [sys.executable, "-m", "lakerunner.cli", "query-worker"]
    command += ["--home", str(home), "--listen", address, "--store", store]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}
    return Process(subprocess.Popen(command, env=environment), f"http://{address}")


def _stream_through(number: signal.Signals, processes: list[Process], lake: Lake) -> tuple[pa.Table, dict[str, int]]:
    """All rows, with one worker given this signal after the first of them."""
    workers = RemoteWorkers(Addresses(lookups(",".join(process.url for process in processes))), "", 60)
    gathered = gather(lake, workers, leaf())
    reader = gathered.reader()
    first = reader.read_next_batch()
    time.sleep(0.3)
    processes[0].running.send_signal(number)
    if number == signal.SIGKILL:
        processes[0].running.wait(20)
    table = pa.Table.from_batches([first, *reader])
    workers.close()
    return table, dict(gathered.account.workers)


def test_a_worker_that_is_killed_is_taken_over(processes: list[Process], lake: Lake) -> None:
    table, workers = _stream_through(signal.SIGKILL, processes, lake)
    check_each_once(table)
    assert workers == {worker_name(processes[1].url, ""): shares(lake, [worker_name(one.url, "") for one in processes])}


def test_a_worker_that_is_told_to_stop_leaves_no_short_answer(processes: list[Process], lake: Lake) -> None:
    table, workers = _stream_through(signal.SIGTERM, processes, lake)
    check_each_once(table)
    assert sum(workers.values()) == shares(lake, [worker_name(one.url, "") for one in processes])
    assert processes[0].running.wait(20) == 0
