"""A real Prometheus scrapes a page of ours and remote-writes it to our door, in both versions."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.api.app import build_app
from lakerunner.api.auth import Authenticator
from lakerunner.api.remote_write import RemoteWriteApi
from lakerunner.api.server import HttpServer, bind
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.remote_write import READ_V1, READ_V2
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.read.wire import varint
from lakerunner.pipeline.steps.take import take

PROMETHEUS = Path.home() / ".cache" / "lakerunner-peers" / "bin" / "prometheus"
READ = {"prw1": READ_V1, "prw2": READ_V2}
MESSAGES = {"prw1": "prometheus.WriteRequest", "prw2": "io.prometheus.write.v2.Request"}
PAGE = """\
# HELP visits_total Visits so far.
# TYPE visits_total counter
visits_total{page="home"} 42
# TYPE temperature gauge
temperature -1.5
"""
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: shop
    static_configs: [{{targets: ["{target}"]}}]
remote_write:
  - url: http://{target}/api/v1/write
    protobuf_message: {message}
    authorization: {{credentials: right}}
    queue_config: {{batch_send_deadline: 1s}}
"""


class Kept:
    """What the door took."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []

    async def accept_soon(self, _organization: Organization, _signal: str, form: str, data: bytes) -> None:
        self.taken.append((form, data))

    def rows(self, form: str) -> set[tuple[str, str, float, str]]:
        """(metric, service, value, type) of all samples so far."""
        data = b"".join(varint(len(message)) + message for one, message in list(self.taken) if one == form)
        if not data:
            return set()
        read = READ[form]([Raw(SourceObject("b", "metrics", "e", len(data), 0), memoryview(data), form)])
        assert read.failed == ()
        assert read.rows is not None
        names = ("metric_name", "service_name", "value", "metric_type")
        kinds = {name: METRICS.schema.field(name).type for name in names}
        order = np.arange(read.rows.count, dtype=np.int32)
        columns = [take(read.rows.columns[name], read.rows.data, order, kind) for name, kind in kinds.items()]
        return set(zip(*(column.to_pylist() for column in columns), strict=True))


@contextmanager
def prometheus(directory: Path, target: str, message: str) -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    config = directory / "prometheus.yml"
    config.write_text(CONFIG.format(target=target, message=message))
    command = [str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={listen}"], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


def wait_for(done: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + 90
    while not done():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.skipif(not PROMETHEUS.exists(), reason=f"Prometheus is not built: {PROMETHEUS} is absent")
@pytest.mark.parametrize("form", ["prw1", "prw2"])
def test_samples_of_a_real_prometheus_arrive(form: str, tmp_path: Path) -> None:
    kept = Kept()
    who = Authenticator(lambda key: DEFAULT_ORGANIZATION if key == "right" else None, None)
    api = RemoteWriteApi(kept, who, 1 << 24)  # type: ignore[arg-type]
    page = Route("/metrics", lambda _request: Response(PAGE, media_type="text/plain; version=0.0.4"))
    server = HttpServer(build_app([*api.routes(), page]), bind("127.0.0.1", 0), lambda _reason: None)
    server.start()
    wanted = {("up", "shop", 1.0), ("visits_total", "shop", 42.0), ("temperature", "shop", -1.5)}
    try:
        with prometheus(tmp_path, server.url.removeprefix("http://"), MESSAGES[form]):
            wait_for(lambda: wanted <= {row[:3] for row in kept.rows(form)}, tmp_path / "log")
    finally:
        server.stop()
