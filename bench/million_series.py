"""PromQL over a million series: what is added up is answered in bounded memory, the series themselves are refused with
the name of the limit.

A lake of ten samples of each of a million series, in segments of 100,000 series; a `lakerunner query-api` process over
it. The baseline is the samples themselves, 16 bytes each: memory is told as growth of the process beside that.

    python bench/million_series.py [--lake DIR] [--series 1000000]

Exit code 1 if an answer is wrong, or the process grows by more than --most-mb.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from _samples import OPENING_MS, ORGANIZATION, STEP_MS, counter, indexed, written
from lakerunner.model.protobuf import varint
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import Raw, make_segments
from servers.lake import query_api

SAMPLES, PER_SEGMENT = 10, 100_000
SUM = "sum(rate(m[5m]))"
END = (OPENING_MS + (SAMPLES - 1) * STEP_MS) // 1000
RATE = 3 * (SAMPLES - 1) / 300  # a counter's that begins with 0 inside the window: nothing is added for before it
RANGE = {"start": str(END - 120), "end": str(END), "step": "30"}


def _segment(work: tuple[Path, int, int]) -> list[Segment]:
    """Build series that rise by 3 with each sample."""
    directory, first, end = work
    values = np.tile(3.0 * np.arange(SAMPLES), (end - first, 1))
    data = written(map(counter, range(first, end)), OPENING_MS + np.arange(SAMPLES) * STEP_MS, values)
    source = SourceObject("bench", f"{first:08}", "etag", len(data), OPENING_MS * 10**6)
    raw = Raw(source, memoryview(varint(len(data)) + data), "prw1")
    store = LocalStore(directory / "store")
    return list(make_segments(METRICS, ORGANIZATION, "bench", [raw], store.put).segments)


def made(directory: Path, series: int) -> tuple[Segment, ...]:
    (directory / "store").mkdir(parents=True, exist_ok=True)
    marker = directory / "made.json"
    if marker.exists() and json.loads(marker.read_text()) != {"million": series}:
        sys.exit(f"{directory} holds another lake: {marker.read_text()}")
    if not marker.exists():
        work = [(directory, n, min(n + PER_SEGMENT, series)) for n in range(0, series, PER_SEGMENT)]
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            segments = [one for part in pool.map(_segment, work) for one in part]
        (directory / "segments.pickle").write_bytes(pickle.dumps(segments))
        marker.write_text(json.dumps({"million": series}))
    return tuple(pickle.loads((directory / "segments.pickle").read_bytes()))


class Memory:
    """Return the memory of a process in MB, now and at most since the last call."""

    def __init__(self, process: int) -> None:
        self._status = Path(f"/proc/{process}/status")
        self.most = 0.0

    def now(self) -> float:
        line = next(line for line in self._status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    @contextmanager
    def watched(self) -> Iterator[None]:
        ended = threading.Event()
        self.most = self.now()

        def watch() -> None:
            while not ended.wait(0.02):
                self.most = max(self.most, self.now())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def run(url: str, memory: Memory, series: int, most_mb: float) -> bool:
    good, before = True, memory.now()
    print(f"{series} series, {series * SAMPLES * 16 / 1e6:.0f} MB of samples; the process begins with {before:.0f} MB")
    asked = [
        ("instant", SUM, "query", {"time": str(END)}),
        ("instant, again", SUM, "query", {"time": str(END)}),
        ("range", SUM, "query_range", RANGE),
        ("instant, bare", "m", "query", {"time": str(END)}),
        ("range, bare", "m", "query_range", RANGE),
    ]
    for name, text, path, parameters in asked:
        began = time.perf_counter()
        with memory.watched():
            response = httpx.get(f"{url}/api/v1/{path}", params={"query": text, **parameters}, timeout=300)
        seconds = time.perf_counter() - began
        if text == SUM:
            result = response.json()["data"]["result"][0]
            last = float((result["values"][-1] if "values" in result else result["value"])[1])
            right, said = response.status_code == 200 and abs(last / (series * RATE) - 1) < 1e-9, f"{last:.1f}"
        else:
            said = response.json()["error"]
            right = response.status_code == 422 and "metrics_max_series" in said
        grown = memory.most - before
        good = good and right and grown <= most_mb
        print(f"{name:16} {seconds:6.2f} s   grown by {grown:6.0f} MB at most   {response.status_code} {said[:90]}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", type=Path, help="keep the lake here, and take it if it is there")
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--most-mb", type=float, default=4096)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as scratch:
        directory = options.lake or Path(scratch) / "lake"
        with (
            indexed(directory, made(directory, options.series)) as lake,
            query_api(Path(scratch) / "api", lake.environment) as served,
        ):
            memory = Memory(served.process.popen.pid)
            if not run(f"{served.url}/prometheus", memory, options.series, options.most_mb):
                sys.exit(1)


if __name__ == "__main__":
    main()
