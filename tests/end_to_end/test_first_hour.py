"""The first hour of a new user on one throw-away lake: start, send, ask, break, repair, stop.

tests/golden/first_hour/*.txt have what is typed and what the terminal must show, in this order; `suites/walk.py` has
their format. A further way to send or ask is a command in one of them. GOLDEN=rewrite writes what is shown now; read
the diff as a new user would.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servers.lake import clean_environment
from suites.first_hour import write_requests
from suites.walk import Walk, matches, rewritten, steps

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / "golden" / "first_hour").glob("*.txt"))
PORTS = ("7080", "4317", "4318")  # as the pages name them; others are used here
HOME = "/home/ann"
REWRITE = os.environ.get("GOLDEN") == "rewrite"
pytestmark = pytest.mark.heavy


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    if not shutil.which("curl"):
        pytest.skip("no curl is installed")
    write_requests(tmp_path, sys.executable)
    ports = free_ports(len(PORTS))
    days = "|".join(f"{datetime.now(UTC) + timedelta(days=number):%Y-%m-%d}" for number in (0, 1))
    found = Walk(
        tmp_path,
        clean_environment(
            {
                "PATH": f"{Path(sys.executable).parent}:{tmp_path}:{os.environ['PATH']}",
                "LAKERUNNER_HOME": str(tmp_path / "lake"),
                "LAKERUNNER_LISTEN": f"127.0.0.1:{ports[0]}",
                "LAKERUNNER_OTLP_LISTEN": "127.0.0.1",
                "LAKERUNNER_OTLP_GRPC_PORT": ports[1],
                "LAKERUNNER_OTLP_HTTP_PORT": ports[2],
                # Merges and rollups begin at a time of their own, and would meet the file that the script deletes.
                "LAKERUNNER_COMPACT_MAX_SECONDS": "86400",
                "LAKERUNNER_ROLLUP_MAX_SECONDS": "86400",
                "TERM": "xterm",
            }
        ),
        words={
            str(tmp_path): HOME,
            **{rf"\b{port}\b": name for name, port in zip(PORTS, ports, strict=True)},
            rf"\b(?:{days}) \d\d:\d\d\b": "YYYY-MM-DD HH:MM",
            r"process \d+ ": "process 4242 ",
        },
        types={f":{name}": f":{port}" for name, port in zip(PORTS, ports, strict=True)},
        seconds=30 if REWRITE else 240,
    )
    try:
        yield found
    finally:
        found.close()
        stop_postgres(tmp_path / "lake" / "postgres" / "data" / "postmaster.pid")


def test_the_first_hour(walk: Walk) -> None:
    wrong = [problem for script in SCRIPTS for problem in differences(walk, script)]
    assert not wrong, "\n\n".join(wrong)


def differences(walk: Walk, path: Path) -> Iterator[str]:
    """Walk through the script; yield every step that showed something else."""
    script, other = path.read_text(), dict[int, tuple[str, ...]]()
    for step in steps(script):
        shown = walk.run(step)
        if matches(shown, step.expected):
            continue
        other[step.line] = shown
        expected, found = "\n".join(step.expected), "\n".join(shown)
        yield f"{path.name}:{step.line}: {step.mark} {step.text}\n-- expected\n{expected}\n-- shown\n{found}"
    if REWRITE:
        path.write_text(rewritten(script, other))


def stop_postgres(lock: Path) -> None:
    """A lake that was killed, and could not be started again, leaves its server behind."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(lock.read_text().split()[0]), signal.SIGINT)


def free_ports(count: int) -> list[str]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in listeners:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in listeners]
