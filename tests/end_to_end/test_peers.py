"""The lake among real peers: a collector and telemetrygen send to it, Prometheus scrapes it. All comes once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakerunner.model.signal import SIGNALS
from servers.lake import Lake, lake, wait_until
from servers.peers import peer, run_peer, running_peer
from servers.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 120
COUNT = 250
# What telemetrygen makes of `--logs 250` and so on: rows of the signal's table.
ROWS = {"logs": COUNT, "metrics": COUNT, "traces": 2 * COUNT}


@dataclass(frozen=True)
class Doors:
    """A running lake, and the host of its usual OTLP ports."""

    running: Lake
    host: str

    @property
    def http(self) -> str:
        return self.running.url.removeprefix("http://")

    def rows(self, signal: str, service: str) -> int:
        table = SIGNALS[signal].table
        (row,) = self.running.sql(f"select count(*) as n from {table} where service_name = '{service}'")
        count: int = row["n"]
        return count

    def expect(self, signal: str, service: str, count: int) -> None:
        """Until as many rows are there; and then no more come with what was still under way."""
        found = [0]

        def there() -> bool:
            found[0] = self.rows(signal, service)
            return found[0] >= count

        wait_until(there, f"{count} {signal} of {service}", SECONDS, lambda: f"{found}\n{self.running.process.text()}")
        self.running.settle(0)
        assert self.rows(signal, service) == count


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    peer("telemetrygen")
    chance = random.SystemRandom()
    # An own loopback address, so that the usual ports are free there whatever else runs on this machine.
    host = f"127.{chance.randint(1, 254)}.{chance.randint(1, 254)}.{chance.randint(2, 254)}"
    with lake(tmp_path_factory.mktemp("lake"), {"LAKERUNNER_OTLP_LISTEN": host}) as running:
        yield Doors(running, host)


@pytest.fixture(params=list(SIGNALS))
def signal(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def generate(signal: str, service: str, endpoint: str, *more: str) -> None:
    count = f"--{signal}", str(COUNT)
    to = "--otlp-endpoint", endpoint, "--otlp-insecure", "--rate", "0", "--service", service
    run_peer("telemetrygen", signal, *count, *to, *more)


def test_telemetrygen_sends_over_grpc(doors: Doors, signal: str) -> None:
    generate(signal, "gen-grpc", f"{doors.host}:4317")
    doors.expect(signal, "gen-grpc", ROWS[signal])


def test_telemetrygen_sends_over_http(doors: Doors, signal: str) -> None:
    generate(signal, "gen-http", doors.http, "--otlp-http", "--otlp-http-url-path", f"/v1/{signal}")
    doors.expect(signal, "gen-http", ROWS[signal])


def start_collector(directory: Path, config: dict[str, Any]) -> Any:
    health = free_port()
    config["service"]["telemetry"] = {
        "metrics": {"readers": [{"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": health}}}}]}
    }
    file = directory / "collector.json"  # JSON is YAML
    file.write_text(json.dumps(config))
    return running_peer(
        "otelcol", ["--config", str(file)], f"http://127.0.0.1:{health}/metrics", directory / "otelcol.log"
    )


def exporters(doors: Doors) -> dict[str, Any]:
    return {
        "otlp": {"endpoint": f"{doors.host}:4317", "tls": {"insecure": True}},
        "otlphttp": {"endpoint": doors.running.url},
    }


@pytest.mark.parametrize("exporter", ["otlp", "otlphttp"])
def test_a_collector_passes_on_what_it_gets(doors: Doors, signal: str, exporter: str, tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": endpoint}}}},
        "processors": {"batch": {}},
        "exporters": {exporter: exporters(doors)[exporter]},
        "service": {"pipelines": {signal: {"receivers": ["otlp"], "processors": ["batch"], "exporters": [exporter]}}},
    }
    service = f"collector-{exporter}"
    with start_collector(tmp_path, config):
        generate(signal, service, endpoint)
        doors.expect(signal, service, ROWS[signal])


def test_a_collector_tails_a_file(doors: Doors, tmp_path: Path) -> None:
    lines = [f"line {number} äöü €" for number in range(500)]
    file = tmp_path / "app.log"
    file.write_text("\n".join(lines[:200]) + "\n")
    config = {
        "receivers": {
            "filelog": {
                "include": [str(file)],
                "start_at": "beginning",
                "poll_interval": "50ms",
                "resource": {"service.name": "tailed"},
            }
        },
        "exporters": {"otlp": exporters(doors)["otlp"]},
        "service": {"pipelines": {"logs": {"receivers": ["filelog"], "exporters": ["otlp"]}}},
    }
    with start_collector(tmp_path, config):
        with file.open("a") as tail:
            tail.write("\n".join(lines[200:]) + "\n")
        doors.expect("logs", "tailed", len(lines))
    found = doors.running.sql("select message from logs where service_name = 'tailed'")
    assert Counter(row["message"] for row in found) == Counter(lines)


def test_promtool_finds_nothing_wrong_with_our_metrics(doors: Doors) -> None:
    said = httpx.get(f"{doors.running.url}/metrics", timeout=30).text
    assert "lakerunner_rows_ingested_total" in said
    run_peer("promtool", "check", "metrics", stdin=said)


def test_prometheus_scrapes_us(doors: Doors, tmp_path: Path) -> None:
    generate("logs", "scraped", f"{doors.host}:4317")
    doors.expect("logs", "scraped", COUNT)
    port = free_port()
    config = {
        "scrape_configs": [
            {"job_name": "lake", "scrape_interval": "1s", "static_configs": [{"targets": [doors.http]}]},
        ]
    }
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(config))
    address = f"127.0.0.1:{port}"
    arguments = [f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"]
    with running_peer("prometheus", arguments, f"http://{address}/-/ready", tmp_path / "prometheus.log") as process:
        found: list[Any] = []

        def scraped() -> bool:
            query = {"query": 'lakerunner_rows_ingested_total{signal="logs"} and on (job) up == 1'}
            answer = httpx.get(f"http://{address}/api/v1/query", params=query, timeout=30).json()
            found[:] = answer["data"]["result"]
            return bool(found)

        wait_until(scraped, "a scrape", SECONDS, process.text)
    (series,) = found
    assert float(series["value"][1]) >= COUNT
    assert series["metric"]["instance"] == doors.http
