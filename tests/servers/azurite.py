"""A real Azure Storage queue service for tests: Azurite, from npm.

It is installed once into a folder that is kept between runs, and moved into place whole, so an interrupted install
leaves nothing half. Without npm, or where the registry does not give it, the test skips and says why.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from xml.sax.saxutils import escape

import httpx
import pytest

from servers.ports import free_port

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
# Azurite's documented development key: the same for everyone, so no secret.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SAS_VERSION = "2021-12-02"
_INSTALL_SECONDS = 280
_START_SECONDS = 60


@dataclass(frozen=True)
class QueueServer:
    """`endpoint` ends with the account, as the emulator has it in the path."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        return {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}

    def queue(self, name: str) -> str:
        """The URL of a new queue."""
        url = f"{self.endpoint}/{name}"
        httpx.put(f"{url}?{self.sas('cw')}", headers={"x-ms-version": _SAS_VERSION}, timeout=10).raise_for_status()
        return url

    def send(self, url: str, text: str) -> None:
        body = f"<QueueMessage><MessageText>{escape(text)}</MessageText></QueueMessage>"
        httpx.post(f"{url}/messages?{self.sas('a')}", content=body.encode(), timeout=10).raise_for_status()

    def waiting(self, url: str) -> int:
        """Messages that the queue holds, also those that someone has taken and not deleted."""
        headers = {"x-ms-version": _SAS_VERSION}
        answer = httpx.get(f"{url}?comp=metadata&{self.sas('r')}", headers=headers, timeout=10).raise_for_status()
        return int(answer.headers["x-ms-approximate-messages-count"])

    def sas(self, permissions: str) -> str:
        """A shared access signature of the account, for queues and their messages."""
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        signed = [ACCOUNT, permissions, "q", "sco", "", end, "", "", _SAS_VERSION, ""]
        text = "".join(f"{part}\n" for part in signed)
        digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
        said = {"sp": permissions, "ss": "q", "srt": "sco", "se": end, "sv": _SAS_VERSION}
        return urlencode(said | {"sig": base64.b64encode(digest).decode()})


@contextmanager
def azurite(directory: Path, packages: Path) -> Iterator[QueueServer]:
    """The queue service with its data in memory, its log in `directory` and its code in `packages`."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Azurite needs Node.js, and there is no `node` on the PATH")
    if not packages.is_dir():
        _install(packages)
    port = free_port()
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
