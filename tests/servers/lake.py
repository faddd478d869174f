"""Lakerunner itself as a server under test: real processes, started by its own command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

LAKERUNNER = [sys.executable, "-m", "lakerunner.cli"]
START_SECONDS = 240  # three Java processes on two busy cores
STOP_SECONDS = 60


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The machine's environment without settings of ours that a developer may have set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LAKERUNNER_") and k != "DATABASE_URL"}
    return kept | {"LAKERUNNER_OTLP_LISTEN": ""} | dict(extra or {})


@dataclass
class Process:
    """One lakerunner process; its output is in `log`."""

    popen: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, *, count: int = 1, seconds: float = START_SECONDS) -> None:
        """Until the output holds these words so many times."""
        wait_until(
            lambda: self._alive() and self.text().count(words) >= count,
            f"{words!r} {count}x in {self.log}",
            seconds,
            self.text,
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(STOP_SECONDS)

    def freeze(self) -> None:
        """Stop all of its threads until SIGCONT, and return when they have stopped. The kernel gives SIGSTOP to one
        thread; until that thread gets a core, the others run on and may still answer a request."""
        self.popen.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.popen.pid}/task")
        wait_until(lambda: all(_state(task) == "T" for task in tasks.iterdir()), "all threads stopped", STOP_SECONDS)

    def kill(self) -> None:
        """-9, as the kernel's out-of-memory killer would."""
        self.popen.kill()
        self.popen.wait(STOP_SECONDS)

    def _alive(self) -> bool:
        assert self.popen.poll() is None, f"it ended with {self.popen.returncode}:\n{self.text()[-4000:]}"
        return True


def _state(task: Path) -> str:
    """Return the letter of a thread's state: "T" when stopped, and also when it has just ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "T"


def wait_until(done: Callable[[], bool], what: str, seconds: float, explain: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}\n{explain()[-4000:]}")
        time.sleep(0.05)


@contextmanager
def lakerunner(arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A lakerunner command running in the background. Its log tells of every unit of work."""
    with log.open("ab") as sink:
        popen = subprocess.Popen(
            [*LAKERUNNER, *arguments],
            stdout=sink,
            stderr=sink,
            env=clean_environment({"LAKERUNNER_LOG_LEVEL": "debug", **(environment or {})}),
            stdin=subprocess.DEVNULL,
        )
    process = Process(popen, log)
    try:
        yield process
    finally:
        if popen.poll() is None:
            process.stop()


@dataclass
class Lake:
    """A whole lake by `lakerunner up`, or what serves its queries."""

    home: Path
    url: str
    process: Process
    environment: Mapping[str, str] = field(default_factory=dict)  # of its commands

    @property
    def store(self) -> Path:
        return self.home / "store"

    def sql(self, query: str, *, headers: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        response = self.post_sql(query, headers)
        assert response.status_code == 200, response.text
        rows: list[dict[str, Any]] = response.json()["rows"]
        return rows

    def post_sql(self, query: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return httpx.post(f"{self.url}/api/v1/sql", json={"query": query}, headers=dict(headers or {}), timeout=60)

    def objects(self, state: str = "") -> dict[str, Any]:
        params = {"state": state, "limit": "10000"} if state else {"limit": "10000"}
        body: dict[str, Any] = httpx.get(f"{self.url}/api/v1/objects", params=params, timeout=30).json()
        return body

    def settle(self, total: int, seconds: float = 120) -> dict[str, int]:
        """Until so many objects are known and all of them ended; how many ended how."""
        counts: dict[str, int] = {}

        def ended() -> bool:
            counts.update(self.objects()["counts"])
            return counts["seen"] == 0 and sum(counts.values()) >= total

        wait_until(ended, f"{total} objects ended", seconds, lambda: f"{counts}\n{self.process.text()}")
        return counts

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the CLI against this lake."""
        return subprocess.run(
            [*LAKERUNNER, *arguments, "--home", str(self.home)],
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(self.environment),
            check=False,
        )


@contextmanager
def lake(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Lake]:
    """`lakerunner up` on a free port, until ready; stopped at the end."""
    with _served("up", home, environment) as served:
        yield served


@contextmanager
def query_api(home: Path, environment: Mapping[str, str]) -> Iterator[Lake]:
    """`lakerunner query-api` alone, which takes no Java; `environment` names the index."""
    with _served("query-api", home, environment) as served:
        yield replace(served, environment=environment)


@contextmanager
def _served(command: str, home: Path, environment: Mapping[str, str] | None) -> Iterator[Lake]:
    home.mkdir(parents=True, exist_ok=True)
    started = time.time()
    with lakerunner([command, "--home", str(home), "--listen", "127.0.0.1:0"], home / "up.log", environment) as process:
        address = home / "address"
        wait_until(
            lambda: process.popen.poll() is not None or _is_newer(address, started),
            "the address file",
            START_SECONDS,
            process.text,
        )
        assert process.popen.poll() is None, process.text()
        yield Lake(home, address.read_text().strip(), process)


def _is_newer(path: Path, moment: float) -> bool:
    """A killed lake leaves its address behind, until the next one starts."""
    try:
        return path.stat().st_mtime > moment
    except FileNotFoundError:
        return False


def ndjson(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
