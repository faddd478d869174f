"""Queries over ten million log rows, each beside what it is measured against, in one run.

    service + text      our engine against DuckDB over the same rows unsorted, nothing pruned: a text of an incident,
                        and a usual one, which is in every third segment
    needle              likewise, for an id that one row has
    level per minute    our engine against hand-written DuckDB over our own files
    first row           of a query that gives millions of rows, against the time it takes in all
    second run          of a query whose segments have not changed, against its first

Of two lakes: one of segments as ingest makes them, and the same after `lakerunner up` has merged them. The engine runs
as `lakerunner up` runs it: one worker, PostgreSQL for the index; answers are checked against DuckDB's. Ways take turns,
the best turn of each counts.

    python bench/query_logs.py [--rows 10000000] [--lake DIR] [--repeat 5] [--explain]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb

from _lake import OPENING_NS, ORGANIZATION, BenchLake, bench_lake, tended_lake
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import OneWorker
from lakerunner.services.parts import open_engine, open_sandboxes, open_worker
from lakerunner.services.query_counts import CountedSqlQueries
from lakerunner.settings import Settings

LEVELS = (
    "SELECT date_trunc('minute', timestamp) AS minute, severity, count(*) AS n FROM {logs} "
    "GROUP BY ALL ORDER BY minute, severity"
)
SERVICE_TEXT = "SELECT count(*) AS n FROM {logs} WHERE service_name = '{service}' AND message LIKE '%{text}%'"
NEEDLE = "SELECT count(*) AS n FROM {logs} WHERE message LIKE '%{needle}%'"
LONG = "SELECT timestamp, service_name, message FROM {logs} WHERE severity = 'INFO'"
TARGETS = {"service + ": 1 / 20, "needle": 1 / 25, "level per minute": 1.3, "first row": 1 / 10}


@dataclass(frozen=True)
class Duel:
    """Two ways to the same answer."""

    name: str
    lake: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]


@dataclass(frozen=True)
class Queried:
    """A lake and its engines: `keeping` has a result cache, `engine` computes every answer."""

    name: str
    lake: BenchLake
    engine: SqlQueries
    keeping: SqlQueries


def asked(engine: SqlQueries, sql: str) -> list[dict[str, Any]]:
    return [row for batch in engine.sql(ORGANIZATION, Question(sql, OPENING_NS)) for row in batch.to_pylist()]


def best_of(repeat: int, duels: list[Duel]) -> dict[Duel, tuple[float, float]]:
    best = {duel: (float("inf"), float("inf")) for duel in duels}
    for _ in range(repeat):
        for duel in duels:
            mine, ours = timed(duel.ours)
            other, theirs = timed(duel.theirs)
            if ours != theirs:
                sys.exit(f"{duel.name}, {duel.lake}: the answers differ: {str(ours)[:300]} and {str(theirs)[:300]}")
            best[duel] = min(best[duel][0], mine), min(best[duel][1], other)
    return best


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def first_and_all(engine: SqlQueries, sql: str) -> tuple[float, float, int]:
    began = time.perf_counter()
    answer = engine.sql(ORGANIZATION, Question(sql, OPENING_NS))
    first, rows = 0.0, 0
    for batch in answer:
        first = first or time.perf_counter() - began
        rows += batch.num_rows
    return first, time.perf_counter() - began, rows


def run(lakes: list[Queried], unsorted_files: list[str], options: argparse.Namespace) -> bool:
    plain = duckdb.connect()
    unsorted = f"read_parquet({unsorted_files})"
    traced = f"FROM {unsorted} WHERE trace_id IS NOT NULL"
    middle = one(plain, f"SELECT count(*) // 2 {traced}")
    needle = one(plain, f"SELECT lower(hex(trace_id)) {traced} LIMIT 1 OFFSET {middle}")
    incident, usual = (
        SERVICE_TEXT.replace("{service}", "checkout").replace("{text}", text) for text in ("pool exhausted", "declined")
    )
    trace = f"SELECT count(*) AS n FROM {{logs}} WHERE trace_id = '{needle}'"
    their_trace = f"SELECT count(*) AS n FROM {{logs}} WHERE lower(hex(trace_id)) = '{needle}'"
    absent = NEEDLE.replace("{needle}", "no such words in here")

    def duel(name: str, queried: Queried, sql: str, files: str, their_sql: str = "") -> Duel:
        theirs = (their_sql or sql).format(logs=files)
        return Duel(
            name,
            queried.name,
            lambda: asked(queried.engine, sql.format(logs="logs")),
            lambda: plain.sql(theirs).to_arrow_table().to_pylist(),
        )

    if options.explain:
        for queried, sql in product(lakes, (incident, usual, trace, absent, LEVELS)):
            lines = asked(queried.engine, "EXPLAIN ANALYZE " + sql.format(logs="logs"))
            print(queried.name, *(line["plan"] for line in lines), "", sep="\n")
    best = best_of(
        options.repeat,
        [
            made
            for queried in lakes
            for made in (
                duel("service + text", queried, incident, unsorted),
                duel("service + usual text", queried, usual, unsorted),
                duel("needle (trace id)", queried, trace, unsorted, their_trace),
                duel("needle (absent words)", queried, absent, unsorted),
                duel("level per minute", queried, LEVELS, f"read_parquet({queried.lake.files})"),
            )
        ],
    )
    ok = True
    for made, (mine, other) in best.items():
        target = next(value for known, value in TARGETS.items() if made.name.startswith(known))
        ok = report(f"{made.name}, {made.lake}", mine, other, target) and ok
    for queried in lakes:
        ok = first_and_second(queried) and ok
    return ok


def first_and_second(queried: Queried) -> bool:
    first, total, rows = first_and_all(queried.engine, LONG.format(logs="logs"))
    ok = report(f"first row of {rows}, {queried.name}", first, total, TARGETS["first row"])
    slow, answer = timed(lambda: asked(queried.keeping, LEVELS.format(logs="logs")))
    fast, again = timed(lambda: asked(queried.keeping, LEVELS.format(logs="logs")))
    if answer != again:
        sys.exit("the second run gave another answer")
    name = f"second run, {queried.name}"
    print(f"{name:32} {fast * 1e3:9.1f} ms  first {slow * 1e3:9.1f} ms   1/{slow / fast:.1f}")
    return ok


def report(name: str, mine: float, other: float, target: float) -> bool:
    ratio = mine / other
    shown, aim = (f"{value:.2f}x" if value > 0.9 else f"1/{1 / value:.1f}" for value in (ratio, target))
    print(f"{name:32} {mine * 1e3:9.1f} ms  against {other * 1e3:9.1f} ms   {shown:8} (target {aim})")
    return ratio <= target


def one(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    ((value,),) = connection.sql(sql).fetchall()
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--lake", type=Path, help="keep the lake here, and take it if it is there")
    parser.add_argument("--explain", action="store_true", help="print what each query reads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as scratch:
        began = time.perf_counter()
        directory = options.lake or Path(scratch) / "lake"
        with bench_lake(directory, options.rows) as fresh, tended_lake(directory) as tended:
            print(f"{options.rows} rows, ready after {time.perf_counter() - began:.0f} s; best of {options.repeat}")
            lakes = [
                engines_over(name, lake, Path(scratch) / name) for name, lake in (("fresh", fresh), ("tended", tended))
            ]
            if not run(lakes, fresh.unsorted_files, options):
                sys.exit(1)


def engines_over(name: str, lake: BenchLake, home: Path) -> Queried:
    size = sum(segment.bytes for segment in lake.segments)
    print(f"{name}: {len(lake.segments)} segments, {size / 1e6:.0f} MB")
    settings = replace(Settings(), home=home, query_max_rows=100_000_000)
    workers = OneWorker(open_worker(settings, lake.store))
    sandboxes = open_sandboxes(settings)
    engine = open_engine(replace(settings, result_cache_bytes=0), lake.index, workers, sandboxes)
    keeping = open_engine(settings, lake.index, workers, sandboxes)
    return Queried(name, lake, CountedSqlQueries(engine, sandboxes), CountedSqlQueries(keeping, sandboxes))


if __name__ == "__main__":
    main()
