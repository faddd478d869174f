"""How ingest grows with cores and executors: the same box of OTLP logs on one and two slots of one process, and on
one and two executors that are processes of their own. Ratios are to `local[1]` of the same run.

Each master's session is opened, warmed, given the box `--repeat` times and closed; the best time counts.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from _ingest import LIMITS, Bench, Input, rows_of, timed, write_input
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ingest import ingest_box
from lakerunner.pipeline.job import start_workers
from lakerunner.pipeline.jvm import java_home
from lakerunner.pipeline.session import SparkSettings, close_session, open_session

MASTERS = ("local[1]", "local[2]", "local-cluster[1,1,1024]", "local-cluster[2,1,1024]")
LOGS = Bench(
    "logs",
    ExportLogsServiceRequest,
    lambda shop, records: shop.bulk_logs(records, per_file=8192),
    lambda _request: defaultdict(list),
    (0.0, 0.0),
)


def best_seconds(master: str, given: Input, repeat: int, directory: Path) -> float:
    home = java_home(os.environ, directory / "java")
    spark = open_session(SparkSettings(master, (), "1g", home, directory / "spark"), "bench")
    try:
        start_workers(spark)
        times = []
        for _ in range(repeat):
            seconds, result = timed(lambda: ingest_box(spark, given.box, given.address, LIMITS))
            if rows_of(result) != given.records:
                raise SystemExit(f"{master} gave {rows_of(result)} rows for {given.records} records")
            times.append(seconds)
    finally:
        close_session(spark)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="lakerunner-bench-") as temporary:
        directory = Path(temporary)
        store = directory / "store"
        store.mkdir()
        given = write_input(LOGS, StoreAddress(store.as_uri()), options.records)
        files, cores = len(given.box.sources), os.cpu_count()
        print(f"{given.records} logs in {files} files, {cores} cores; best of {options.repeat}")
        found = {master: best_seconds(master, given, options.repeat, directory) for master in MASTERS}
    for master, seconds in found.items():
        ratio = found[MASTERS[0]] / seconds
        print(f"{master:24} {seconds:7.2f} s {given.records / seconds:9.0f} records/s {ratio:5.2f}x")


if __name__ == "__main__":
    main()
