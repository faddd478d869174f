"""Queries from points that rules made, beside the same queries from lines, in one run on a running lake.

A week of lines (bench/_log_lines.py) goes into `lakerunner up` as OTLP files, one an hour, with the rules already in
the catalog; it has merged what it can when the queries come. Each case is asked by Loki's API with and without
`materialized=off`, one query at a time; the best turn counts, the first one warms. Answers must be equal. What rules
cost at ingest is measured by bench/rule_parts.py.

    python bench/materialize.py [--rows 4000000] [--repeat 5] [--only TEXT]

Exit code 1: an answer differs, or a target was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from _lake import HOUR_NS, OPENING_NS, TENDING
from _log_lines import mixed_batches
from servers.lake import Lake, lake

HOURS = 24 * 7
END_NS = OPENING_NS + HOURS * HOUR_NS
QUIET_SECONDS, TEND_SECONDS = 30, 1800
SELECTOR = '{service_name=~".+"}'
RULES = (
    ("errors", f'{SELECTOR} | detected_level="error"', "count", "service_name", "log_errors"),
    ("volume", SELECTOR, "bytes", "service_name,detected_level", "log_bytes"),
    ("timeouts", f'{SELECTOR} |= "timeout"', "count", "service_name", "log_timeouts"),
)


@dataclass(frozen=True)
class Case:
    """A metric query over the last `hours`, every `step` seconds (0: at the end alone); `target`: at most this part of
    the time from lines."""

    name: str
    query: str
    hours: int
    step: int
    target: float | None = None
    shift_ns: int = 0

    def parameters(self) -> tuple[str, dict[str, str]]:
        end = END_NS + self.shift_ns
        if not self.step:
            return "query", {"query": self.query, "time": str(end)}
        start = end - self.hours * HOUR_NS
        return "query_range", {"query": self.query, "start": str(start), "end": str(end), "step": str(self.step)}


ERRORS = f'{SELECTOR} | detected_level="error"'
CASES = (
    Case("errors by service, 7 d", f"sum by (service_name) (count_over_time({ERRORS} [1h]))", 168, 3600, 1 / 50),
    Case("errors of a service, 24 h", 'sum(rate({service_name="edge"} | detected_level="error" [5m]))', 24, 300),
    Case("bytes by level, 7 d", f"sum by (detected_level) (bytes_over_time({SELECTOR} [1h]))", 168, 3600),
    Case("text in all lines, 24 h", f'sum by (service_name) (count_over_time({SELECTOR} |= "timeout" [5m]))', 24, 300),
    Case(
        "errors of 24 h, instant with edges",
        f"sum by (service_name) (count_over_time({ERRORS} [24h]))",
        24,
        0,
        1 / 20,
        -1,
    ),
)


def hour_file(work: tuple[Path, int, int]) -> int:
    """Write the lines of an hour of the week as one file; return the bytes."""
    store, hour, rows = work
    path = store / f"otel-raw/default/bench/logs-{hour:03}.binpb"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(mixed_batches(hour, rows))
    path.write_bytes(data)
    return len(data)


def load(running: Lake, rows: int) -> None:
    for name, selector, measure, by, metric in RULES:
        made = running.command(
            "rules",
            "add",
            name,
            "--signal",
            "logs",
            "--select",
            selector,
            "--measure",
            measure,
            "--by",
            by,
            "--metric",
            metric,
        )
        if made.returncode:
            sys.exit(made.stderr)
    with ProcessPoolExecutor() as pool:
        size = sum(pool.map(hour_file, [(running.store, hour, rows // HOURS) for hour in range(HOURS)]))
    print(f"{rows // HOURS * HOURS} lines in {HOURS} files, {size / 1e6:.0f} MB", flush=True)
    began = time.monotonic()
    running.settle(HOURS, TEND_SECONDS)
    print(f"ingested in {time.monotonic() - began:.0f} s", flush=True)
    _tended(running)


def _tended(running: Lake) -> None:
    """Wait until the files of segments have not changed for a while."""
    before: set[Path] = set()
    began = last = time.monotonic()
    while time.monotonic() - last < QUIET_SECONDS and time.monotonic() - began < TEND_SECONDS:
        time.sleep(1)
        now = set((running.store / "db").rglob("tbl_*.parquet"))
        if now != before:
            before, last = now, time.monotonic()
    print(f"merged in {time.monotonic() - began - QUIET_SECONDS:.0f} s", flush=True)


def timed(client: httpx.Client, case: Case, repeat: int, **more: str) -> tuple[float, Any]:
    endpoint, parameters = case.parameters()
    best, answer = float("inf"), None
    for turn in range(repeat + 1):
        began = time.monotonic()
        found = client.get(f"/loki/api/v1/{endpoint}", params=parameters | more)
        taken = time.monotonic() - began
        if found.status_code != 200:
            sys.exit(f"{case.name}: {found.text}")
        answer = found.json()["data"]["result"]
        best = min(best, taken) if turn else best
    return best, answer


def run(client: httpx.Client, case: Case, repeat: int) -> bool:
    lines, raw = timed(client, case, min(repeat, 3), materialized="off")
    points, made = timed(client, case, repeat)
    endpoint, parameters = case.parameters()
    plan = client.get(f"/loki/api/v1/{endpoint}", params=parameters | {"explain": "plan"}).text
    stand = next((line.strip() for line in plan.splitlines() if "points stand for" in line), "points are not used")
    ratio = points / lines
    missed = case.target is not None and ratio > case.target
    wanted = f" (target 1/{1 / case.target:.0f}){' MISSED' if missed else ''}" if case.target else ""
    equal = raw == made
    print(f"{case.name:36} {points * 1000:8.1f} ms, from lines {lines * 1000:8.1f} ms: 1/{1 / ratio:.1f}{wanted}")
    print(f"{'':36} {'equal answers' if equal else 'DIFFERENT ANSWERS'}, {len(made)} series; {stand}", flush=True)
    return equal and not missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="materialize-") as at:
        environment = TENDING | {"LAKERUNNER_LISTER_SECONDS": "1", "LAKERUNNER_RESULT_CACHE_BYTES": "0"}
        with lake(Path(at), environment) as running, httpx.Client(base_url=running.url, timeout=300) as client:
            load(running, given.rows)
            done = [run(client, case, given.repeat) for case in CASES if given.only in case.name]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
