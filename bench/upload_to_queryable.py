"""From upload to queryable on the embedded default: files dropped one by one into a running lake, each timed until a
query sees its record. The baseline is the delay that the settings choose (listing, settling, box age): what is above
it is ours.

    python bench/upload_to_queryable.py [--files 50] [--every 0.5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.settings import Settings
from servers.lake import Lake, lake

TARGET_SECONDS = 10.0
GIVE_UP_SECONDS = 120.0


def upload(running: Lake, number: int) -> float:
    """Drop one file; return the moment it was in place."""
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=time.time_ns())
    record.body.string_value = f"upload-{number}"
    folder = running.store / "otel-raw" / "default" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{number}.part"
    draft.write_bytes(request.SerializeToString())
    draft.rename(folder / f"logs_{number}.binpb")
    return time.monotonic()


def watch(running: Lake, seen: dict[str, float], total: int) -> None:
    """Poll which uploads are queryable; note when each first was."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while len(seen) < total and time.monotonic() < deadline:
        rows = running.sql("select message from logs where collector = 'bench'")
        now = time.monotonic()
        for row in rows:
            seen.setdefault(row["message"], now)
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two uploads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, lake(Path(directory) / "home") as running:
        seen: dict[str, float] = {}
        watcher = threading.Thread(target=watch, args=(running, seen, options.files))
        watcher.start()
        uploaded = {}
        for number in range(options.files):
            uploaded[f"upload-{number}"] = upload(running, number)
            time.sleep(options.every)
        watcher.join()
    if len(seen) < options.files:
        print(f"only {len(seen)} of {options.files} files became queryable")
        return 1
    delays = sorted(seen[name] - moment for name, moment in uploaded.items())
    chosen = Settings().lister_seconds + Settings().settle_seconds + Settings().box_max_seconds
    p95 = statistics.quantiles(delays, n=20, method="inclusive")[-1]
    print(f"upload to queryable, {options.files} files, one each {options.every} s:")
    print(f"  p50 {statistics.median(delays):.2f} s   p95 {p95:.2f} s   max {delays[-1]:.2f} s")
    print(f"  p95 / delay chosen by the settings ({chosen:.1f} s): {p95 / chosen:.2f}x")
    print(f"  p95 / target ({TARGET_SECONDS:.0f} s): {p95 / TARGET_SECONDS:.2f}x (at most 1x)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
