"""Real peers beside the lake: Prometheus, Loki, the OpenTelemetry collector and others, built by `make peers`.

They are outside the repo, in ~/.cache/lakerunner-peers or where LAKERUNNER_PEERS says; a test whose peer is not there
is skipped. Everything listens on loopback, on free ports.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from servers.lake import Process, wait_until

_SECONDS = 60


def peer_program(name: str) -> Path:
    """Return where `make peers` puts the program."""
    root = Path(os.environ.get("LAKERUNNER_PEERS", "~/.cache/lakerunner-peers")).expanduser()
    return root / "bin" / name


def peer(name: str) -> Path:
    """The program; skips the test where it was not built."""
    program = peer_program(name)
    if not program.exists():
        pytest.skip(f"{name} is not there: `make peers` builds it")
    return program


def run_peer(name: str, *arguments: str, stdin: str | None = None) -> str:
    """Run it to its end, which must be a good one; what it said."""
    done = subprocess.run(
        [peer(name), *arguments], input=stdin, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running_peer(name: str, arguments: Sequence[str], ready_url: str, log: Path) -> Iterator[Process]:
    """Run it in the background from when ready_url answers until the end; an empty one: from its start."""
    with log.open("ab") as sink:
        popen = subprocess.Popen([peer(name), *arguments], stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    process = Process(popen, log)
    try:
        if ready_url:
            wait_until(
                lambda: popen.poll() is not None or _answers(ready_url), f"{name} is ready", _SECONDS, process.text
            )
        assert popen.poll() is None, process.text()
        yield process
    finally:
        process.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False
