"""A real Azure Storage queue service for tests: Azurite, from npm.

It is installed once into a folder that is kept between runs, and moved into place whole, so an interrupted install
leaves nothing half. Without npm, or where the registry does not give it, the test skips and says why.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
# Azurite's documented development key: the same for everyone, so no secret.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_INSTALL_SECONDS = 280
_START_SECONDS = 60


@dataclass(frozen=True)
class QueueServer:
    """`endpoint` ends with the account, as the emulator has it in the path."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}


@contextmanager
def azurite(directory: Path, packages: Path) -> Iterator[QueueServer]:
    """The queue service with its data in memory, its log in `directory` and its code in `packages`."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Azurite needs Node.js, and there is no `node` on the PATH")
    if not packages.is_dir():
        _install(packages)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = packages / "node_modules" / "azurite" / "dist" / "src" / "queue" / "main.js"
    quiet = ["--silent", "--disableTelemetry", "--inMemoryPersistence"]
    log = directory / "azurite.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [node, str(program), "--queueHost", "127.0.0.1", "--queuePort", str(port), *quiet],
            stdout=output,
            stderr=output,
            cwd=directory,
        )
    try:
        _await(port, process, log)
        yield QueueServer(f"http://127.0.0.1:{port}/{ACCOUNT}")
    finally:
        process.kill()
        process.wait(timeout=10)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(f"http://127.0.0.1:{port}/", timeout=1)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError(f"Azurite did not start:\n{log.read_text()[-2000:]}")


def _install(packages: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("Azurite comes from npm, and there is no `npm` on the PATH")
    packages.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=packages.parent, prefix="azurite-install-") as draft:
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", f"{draft}/it", f"azurite@{VERSION}"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install Azurite within {_INSTALL_SECONDS} s")
        if answer.returncode:
            pytest.skip(f"npm could not install Azurite:\n{answer.stderr[-2000:]}")
        try:
            Path(draft, "it").rename(packages)
        except OSError:
            if not packages.is_dir():  # else another run was faster
                raise
