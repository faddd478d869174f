"""PromQL over ten million samples of 3,500 series, beside a real Prometheus that has the same samples: over HTTP, JSON
included on both sides, in one run.

Lakerunner runs as `lakerunner query-api` over hourly segments and PostgreSQL, with one worker in the process, or with
workers of their own (--workers 3, for information). Ways take turns. A question is about other times in each turn, as
a dashboard's is, so that no answer of the last turn serves; where it says "other matchers", about other matchers as
well, as another user's is. Both sides' answers are compared, number by number. Without the peer (`make peers`) what is
told is ours alone, beside DuckDB, which reads the same columns and adds them up.

    python bench/promql.py [--lake DIR] [--series 3500] [--repeat 7] [--workers 0] [--only TEXT]

Exit code 1 if an answer differs or a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from _samples import END_MS, HOUR_MS, OPENING_MS, SampleLake, load_prometheus, sample_lake
from servers.lake import lakerunner, query_api, wait_until
from servers.peers import running_peer
from servers.ports import free_port

_NEAR = 1e-12  # sums are added up in another order than Prometheus' own


@dataclass(frozen=True)
class Question:
    """A query; `hours` 0 is an instant. `{other}` in the text is the place of one more matcher."""

    name: str
    text: str
    hours: float = 0
    step: int = 0
    target: float | None = None

    def parameters(self, turn: int) -> dict[str, str]:
        """Of turn n: a second earlier than the last; where the text has a place for it with one more matcher, which
        means all series and is another one each time."""
        end = (END_MS - HOUR_MS // 2 if self.hours < 20 else END_MS - 60_000) // 1000 - turn
        asked = {"query": self.text.replace("{other}", f'zone!="turn-{turn}"')}
        if not self.hours:
            return asked | {"time": str(end)}
        start = max(end - int(self.hours * 3600), OPENING_MS // 1000 - turn)
        return asked | {"start": str(start), "end": str(end), "step": str(self.step)}

    @property
    def path(self) -> str:
        return "/api/v1/query_range" if self.hours else "/api/v1/query"


SUM, TOPK = "sum by (job) (rate(m[5m]))", "topk(10, rate(m[5m]))"
OTHER = "sum by (job) (rate(m{{other}}[5m]))"
QUESTIONS = (
    Question("sum of rates, instant", SUM, target=1),
    Question("topk of rates, instant", TOPK, target=1),
    Question("sum of rates, 1 h / 15 s", SUM, 1, 15, 0.3),
    Question("sum of rates, 12 h / 60 s", SUM, 12, 60, 0.25),
    Question("sum of rates, 24 h / 60 s", SUM, 24, 60, 0.25),
    Question("other matchers, instant", OTHER),
    Question("other matchers, 1 h / 15 s", OTHER, 1, 15),
    Question("other matchers, 12 h / 60 s", OTHER, 12, 60),
    Question("one job's rates, 24 h / 60 s", 'sum(rate(m{job="service-3"}[5m]))', 24, 60),
    Question("sum(m), instant", "sum(m)"),
    Question("sum(m), 12 h / 60 s", "sum(m)", 12, 60),
    Question("max_over_time, 6 h / 60 s", "max by (job) (max_over_time(m[10m]))", 6, 60),
    Question("100 series, 6 h / 30 s", 'm{path="/api/1",zone="a",job=~"service-[0-5]"}', 6, 30),
    Question("quantile, 6 h / 60 s", "histogram_quantile(0.9, sum by (le, job) (rate(h_bucket[5m])))", 6, 60),
)


class Side:
    """A server that answers PromQL over HTTP."""

    def __init__(self, url: str, processes: Sequence[int]) -> None:
        self._processes = processes
        self._client = httpx.Client(base_url=url, timeout=120, headers={"accept-encoding": "identity"})

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all of its processes so far."""
        fields = (Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in self._processes)
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")

    def ask(self, question: Question, turn: int) -> tuple[float, bytes]:
        parameters = question.parameters(turn)
        began = time.perf_counter()
        response = self._client.get(question.path, params=parameters)
        seconds = time.perf_counter() - began
        if response.status_code != 200:
            sys.exit(f"{question.name}: {response.text[:500]}")
        return seconds, response.content


def differ(ours: bytes, theirs: bytes) -> str:
    """Say how the answers differ in series, times or values; empty if they do not."""
    mine, other = (_points(json.loads(body)["data"]) for body in (ours, theirs))
    if mine.keys() != other.keys():
        return f"{len(mine.keys() ^ other.keys())} series are in one answer alone"
    for series, points in mine.items():
        if [at for at, _ in points] != [at for at, _ in other[series]]:
            return f"{series}: other times"
        for (at, a), (_, b) in zip(points, other[series], strict=True):
            if a != b and not abs(float(a) - float(b)) <= _NEAR * abs(float(b)) and a + b != "NaNNaN":
                return f"{series} at {at}: {a} and {b}"
    return ""


def _points(data: dict[str, Any]) -> dict[str, list[tuple[float, str]]]:
    return {
        json.dumps(one["metric"], sort_keys=True): [tuple(p) for p in one.get("values", [one.get("value")])]
        for one in data["result"]
    }


def scan_seconds(lake: SampleLake, repeat: int) -> float:
    """Scan the columns that all of these queries read, with DuckDB."""
    connection = duckdb.connect()
    files = f"read_parquet({lake.files}, union_by_name=true)"
    there = {name for name, *_ in connection.sql(f"DESCRIBE SELECT * FROM {files}").fetchall()}
    sums = (f"sum({name})" for name in ("value", "int_value") if name in there)
    sql = f"SELECT sum(epoch_ns(timestamp)), {', '.join(sums)} FROM {files}"
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        connection.sql(sql).fetchall()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


@contextmanager
def prometheus(lake: SampleLake, series: int) -> Iterator[Side | None]:
    program = Path(os.environ.get("LAKERUNNER_PEERS", "~/.cache/lakerunner-peers")).expanduser() / "bin/prometheus"
    if not program.exists():
        print("prometheus is not there (`make peers` builds it): ours alone")
        yield None
        return
    directory, listen = lake.directory / "prometheus", f"127.0.0.1:{free_port()}"
    directory.mkdir(exist_ok=True)
    (directory / "prometheus.yml").write_text("{}")
    arguments = [f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}"]
    arguments += [f"--web.listen-address={listen}", "--web.enable-remote-write-receiver"]
    arguments += ["--storage.tsdb.retention.time=100y", "--query.max-samples=500000000"]
    with running_peer("prometheus", arguments, f"http://{listen}/-/ready", directory / "log") as process:
        marker = directory / "loaded"
        if not marker.exists():
            load_prometheus(f"http://{listen}", series)
            marker.touch()
        yield Side(f"http://{listen}", [process.popen.pid])


@contextmanager
def ours(lake: SampleLake, home: Path, workers: int) -> Iterator[Side]:
    with ExitStack() as stack:
        environment = lake.environment | {"LAKERUNNER_ORG_QUERIES_PER_SECOND": "100000"}
        processes = []
        if workers:
            ports = [free_port() for _ in range(workers)]
            for number, port in enumerate(ports):
                own = home / f"worker-{number}"
                own.mkdir(parents=True)
                arguments = ["query-worker", "--home", str(own), "--listen", f"127.0.0.1:{port}"]
                process = stack.enter_context(lakerunner(arguments, own / "log", environment))
                processes.append(process.popen.pid)
                url = f"http://127.0.0.1:{port}/healthz"
                wait_until(lambda url=url: _answers(url), "a worker", 60, process.text)  # type: ignore[misc]
            environment["LAKERUNNER_WORKERS"] = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        served = stack.enter_context(query_api(home / "api", environment))
        yield Side(f"{served.url}/prometheus", [*processes, served.process.popen.pid])


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code < 500
    except httpx.TransportError:
        return False


def run(sides: list[Side], questions: list[Question], repeat: int, scan: float) -> bool:
    good = True
    for question in questions:
        times: list[list[float]] = [[] for _ in sides]
        cpu = [0.0] * len(sides)
        for turn in range(repeat + 1):  # the first one warms both
            answers = []
            for number, side in enumerate(sides):
                before = side.cpu_seconds()
                seconds, body = side.ask(question, turn)
                answers.append(body)
                if turn:
                    times[number].append(seconds)
                    cpu[number] += side.cpu_seconds() - before
            if len(sides) > 1 and (how := differ(*answers)):
                sys.exit(f"{question.name}: the answers differ: {how}")
        good = report(question, times, cpu, scan) and good
    return good


def report(question: Question, times: list[list[float]], cpu: list[float], scan: float) -> bool:
    mine = statistics.median(times[0])
    if len(times) == 1:
        print(f"{question.name:30} {mine * 1e3:9.1f} ms   {mine / scan:6.2f}x of DuckDB's scan")
        return True
    theirs = statistics.median(times[1])
    best = min(times[0]) / min(times[1])
    aim = "" if question.target is None else f" (target {question.target}x)"
    print(
        f"{question.name:30} {mine * 1e3:8.1f} ms   Prometheus {theirs * 1e3:8.1f} ms   {mine / theirs:5.2f}x{aim}, "
        f"of the best turns {best:.2f}x, of CPU time {cpu[0] / max(cpu[1], 0.01):.2f}x"
    )
    return question.target is None or mine / theirs <= question.target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", type=Path, help="keep the lake here, and take it if it is there")
    parser.add_argument("--series", type=int, default=3500)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--workers", type=int, default=0, help="query workers of their own; 0: in the API's process")
    parser.add_argument("--only", default="", help="questions whose name has this text")
    options = parser.parse_args()
    questions = [one for one in QUESTIONS if options.only in one.name]
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as scratch, ExitStack() as stack:
        began = time.perf_counter()
        lake = stack.enter_context(sample_lake(options.lake or Path(scratch) / "lake", options.series))
        peer = stack.enter_context(prometheus(lake, options.series))
        own = stack.enter_context(ours(lake, Path(scratch), options.workers))
        scan = scan_seconds(lake, 3)
        print(
            f"{lake.samples} samples in {len(lake.segments)} segments, ready after "
            f"{time.perf_counter() - began:.0f} s; medians of {options.repeat} turns; "
            f"DuckDB scans the columns in {scan * 1e3:.0f} ms"
        )
        if not run([own, peer] if peer else [own], questions, options.repeat, scan):
            sys.exit(1)


if __name__ == "__main__":
    main()
