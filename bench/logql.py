"""LogQL over ten million lines by HTTP, as Grafana's client asks it, each query beside its baseline, in one run.

    scan        DuckDB looks for an absent text in all lines of the same files
    unsorted    the same over the same rows in the order of their arrival
    DuckDB      the same question, written by hand over the same files

The lake is a day of lines (_log_lines.py), made by the pipeline's own code and tended by `lakerunner up` until nothing
is left to merge (--fresh: as ingested). query-api has one worker in its process and keeps no results. The best turn
counts, the first one warms; no more turns once they took a minute. Counts are compared with DuckDB's. Q1 to Q9 are nine
searches of the kinds of TextBench: tokens with AND and OR, by service, by severity, by hour; each as LogQL and as SQL
of the lake.

Beside them stand VictoriaLogs and Loki (_log_peers.py), if `make peers` has built them: with the same lines, as
processes of their own, by HTTP, one query at a time. Their ratio is our time by theirs: below 1, we are faster. Where
their count is not ours, that is printed. --lake keeps what they have loaded, too.

What fails or differs is printed, and the run goes on; exit code 1 if something did, if a target was missed, or if a
peer lacks lines. Only an answer of a peer that differs is no failure. What ingest costs is measured by
bench/ingest_logs.py.

    python bench/logql.py [--rows 10000000] [--lake DIR] [--repeat 5] [--fresh] [--only TEXT] [--timeout 120]
                          [--no-peers]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import httpx

from _lake import BenchLake, bench_lake, tended_lake
from _log_answers import Answer, checked, difference, get, loki_answer, row_answer
from _log_cases import ABSENT, LIMIT, LINES_BY_HOUR, Case, cases
from _log_lines import mixed_batches
from _log_peers import Peer, log_peers
from servers.lake import query_api

_ENOUGH_SECONDS = 60


class Timing(NamedTuple):
    """The best of several turns; the answer is that of the last one."""

    seconds: float
    turns: int
    answer: Any


@dataclass(frozen=True)
class Row:
    """A line of the table at the end. `peers` are the seconds of those that answered."""

    name: str
    seconds: float
    baseline: float
    target: float
    peers: Mapping[str, float] = field(default_factory=dict)


class Side:
    """The query-api under test."""

    def __init__(self, url: str, process: int, timeout: float) -> None:
        self._process = process
        self._client = httpx.Client(base_url=url, timeout=timeout)

    def loki(self, case: Case) -> httpx.Response:
        return get(self._client, case.loki_request())

    def sql(self, case: Case) -> httpx.Response:
        return checked(self._client.post("/api/v1/sql", json={"query": case.statement("logs")}))

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process and of those that it started, so far."""
        parents, ticks = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            number = int(stat.parent.name)
            parents[number], ticks[number] = int(fields[1]), sum(map(int, fields[11:15]))
        own = {self._process}
        while more := {number for number, parent in parents.items() if parent in own} - own:
            own |= more
        return sum(ticks.get(number, 0) for number in own) / os.sysconf("SC_CLK_TCK")


class Run:
    """Asks the cases. `failures` counts errors, answers that differ and targets that were missed."""

    def __init__(self, side: Side, lake: BenchLake, unsorted: Sequence[str], repeat: int) -> None:
        self._side, self._repeat = side, repeat
        self._duckdb = duckdb.connect()
        self._logs = _parquet(lake.files)
        absent = "SELECT count(*) FROM {logs} WHERE message LIKE '%" + ABSENT + "%'"
        self.seconds = {
            name: self._best(lambda logs=logs: self._duckdb.sql(absent.format(logs=logs)).fetchall()).seconds  # type: ignore[misc]
            for name, logs in (("scan", self._logs), ("unsorted", _parquet(unsorted)))
        }
        self.failures = 0
        self.rows: list[Row] = []

    def ask(self, case: Case, peers: Sequence[Peer]) -> None:
        try:
            self._ask(case, peers)
        except (ValueError, KeyError, httpx.HTTPError, duckdb.Error) as error:
            self.failures += 1
            print(f"{case.name:32} ERROR {type(error).__name__}: {error}", flush=True)

    def _ask(self, case: Case, peers: Sequence[Peer]) -> None:
        before = self._side.cpu_seconds()
        mine = self._best(lambda: self._side.loki(case))
        cpu = (self._side.cpu_seconds() - before) / mine.turns
        answer = loki_answer(case, mine.answer)
        by_hand = self._best(lambda: self._duckdb.sql(case.statement(self._logs)).fetchall()) if case.sql else None
        right = row_answer(by_hand.answer) if by_hand else None
        if right and case.is_log_query:
            right = Answer({key: min(LIMIT, count) for key, count in right.items()})
        baseline = by_hand.seconds if by_hand and case.baseline == "DuckDB" else self.seconds[case.baseline]
        self._compare(case, "LogQL", answer, right)
        self._report(case.name, mine.seconds, case, baseline)
        if case.lines:
            self._report_lines(case, cpu)
        beside = {peer.name: seconds for peer in peers if (seconds := self._beside(case, peer, mine.seconds, answer))}
        self.rows.append(Row(case.name, mine.seconds, baseline, case.target, beside))
        if case.is_sql_too:
            sql = self._best(lambda: self._side.sql(case))
            self._compare(case, "SQL", row_answer(tuple(row.values()) for row in sql.answer.json()["rows"]), right)
            self._report(f"{case.name} as SQL", sql.seconds, case, baseline)
            self.rows.append(Row(f"{case.name} as SQL", sql.seconds, baseline, case.target))

    def _best(self, work: Callable[[], Any]) -> Timing:
        began, best, turns, answer = time.perf_counter(), float("inf"), 0, None
        while turns <= self._repeat and (turns < 2 or time.perf_counter() - began < _ENOUGH_SECONDS):
            turn = time.perf_counter()
            answer = work()
            best = min(best, time.perf_counter() - turn) if turns else best
            turns += 1
        return Timing(best, turns, answer)

    def _compare(self, case: Case, way: str, answer: Answer | None, right: Answer | None) -> None:
        if differs := difference(answer, right):
            self.failures += 1
            print(f"{case.name:32} DIFFERS as {way}: {differs}")

    def _report(self, name: str, seconds: float, case: Case, baseline: float) -> None:
        ratio = seconds / baseline
        goal = f" (target {_times(case.target)})" if case.target else ""
        missed = bool(case.target) and ratio > case.target
        self.failures += missed
        print(
            f"{name:32} {seconds * 1e3:9.1f} ms  {case.baseline} {baseline * 1e3:9.1f} ms  {_times(ratio):8}{goal}"
            f"{' MISSED' if missed else ''}",
            flush=True,
        )

    def _report_lines(self, case: Case, cpu: float) -> None:
        of_service = f"SELECT count(*) FROM {{logs}} WHERE {{time}} AND service_name = '{case.lines}'"
        ((lines,),) = self._duckdb.sql(
            Case(case.name, "", sql=of_service, hours=case.hours).statement(self._logs)
        ).fetchall()
        speed = lines / max(cpu, 0.001)
        self.failures += speed < 1e6
        print(f"{'':32} {lines} lines, {speed / 1e6:.2f}M lines per CPU second (target 1M)", flush=True)

    def _beside(self, case: Case, peer: Peer, mine: float, answer: Answer | None) -> float:
        """Return the seconds of a peer, 0 if it gives no answer."""
        try:
            seconds, _, response = self._best(lambda: peer.ask(case))
            differs = difference(peer.read(case, response), answer)
        except (ValueError, KeyError, httpx.HTTPError) as error:
            print(f"{'':32} {peer.name}: {type(error).__name__}: {error}", flush=True)
            return 0
        ratio = _times(mine / seconds)
        print(f"{'':32} {peer.name} {seconds * 1e3:.1f} ms: {ratio}{differs and ' DIFFERS: ' + differs}", flush=True)
        return seconds

    def lines_by_hour(self) -> Answer:
        return row_answer(self._duckdb.sql(LINES_BY_HOUR.statement(self._logs)).fetchall())


def _parquet(files: Sequence[str]) -> str:
    return f"read_parquet({list(files)}, union_by_name=true)"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio > 0.9 else f"1/{1 / ratio:.1f}"


def print_table(rows: Sequence[Row], peers: Sequence[str]) -> None:
    """Print all cases: our time, by the baseline, by each peer."""
    print(f"\n{'case':40}{'ours ms':>9}{'baseline':>10}{'target':>8}", end="")
    print(*(f"{f'{name} ms':>19}{'ratio':>9}" for name in peers), sep="")
    for row in rows:
        target = _times(row.target) if row.target else "-"
        print(f"{row.name:40}{row.seconds * 1e3:9.1f}{_times(row.seconds / row.baseline):>10}{target:>8}", end="")
        for name in peers:
            seconds = row.peers.get(name)
            time_ms, ratio = (f"{seconds * 1e3:.1f}", _times(row.seconds / seconds)) if seconds else ("-", "-")
            print(f"{time_ms:>19}{ratio:>9}", end="")
        print()


def run(lake: BenchLake, fresh: BenchLake, scratch: Path, options: argparse.Namespace) -> bool:
    environment = {
        "DATABASE_URL": lake.url,
        "LAKERUNNER_STORE": (lake.directory / "store").as_uri(),
        "LAKERUNNER_RESULT_CACHE_BYTES": "0",
        "LAKERUNNER_ORG_QUERIES_PER_SECOND": "100000",
    }
    rows = sum(segment.rows for segment in lake.segments)
    size = sum(segment.bytes for segment in lake.segments)
    beside = sum(sum(segment.statistics["side_bytes"].values()) for segment in lake.segments)
    print(f"{rows} lines in {len(lake.segments)} segments: {size / rows:.1f} B a line, {beside / rows:.1f} B beside it")
    with ExitStack() as stack:
        served = stack.enter_context(query_api(scratch / "api", environment))
        side = Side(served.url, served.process.popen.pid, options.timeout)
        turns = Run(side, lake, fresh.unsorted_files, options.repeat)
        peers: list[Peer] = []
        if options.peers:
            given = (fresh.directory / "peers", options.rows, mixed_batches, turns.lines_by_hour())
            peers, turns.failures = stack.enter_context(log_peers(*given))
        needle, trace_id = needles(lake)
        print(f"scan {turns.seconds['scan'] * 1e3:.0f} ms, unsorted {turns.seconds['unsorted'] * 1e3:.0f} ms")
        for case in cases(needle, trace_id):
            if options.only in case.name:
                turns.ask(case, peers)
        print_table(turns.rows, [peer.name for peer in peers])
        return not turns.failures


def needles(lake: BenchLake) -> tuple[str, str]:
    """Return the trace id in a line of JSON, and one of a record, both of the middle of the day."""
    logs = f"read_parquet({lake.files}, union_by_name=true)"
    order = "ORDER BY timestamp LIMIT 1 OFFSET 100"
    half = "timestamp > '2026-01-01 11:30:00'"
    ((line,),) = duckdb.sql(f"SELECT message FROM {logs} WHERE service_name = 'edge' AND {half} {order}").fetchall()
    sql = f"SELECT lower(hex(trace_id)) FROM {logs} WHERE trace_id IS NOT NULL AND {half} {order}"
    ((trace_id,),) = duckdb.sql(sql).fetchall()
    return json.loads(line)["trace_id"], trace_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--lake", type=Path, help="keep the lake here, and take it if it is there")
    parser.add_argument("--fresh", action="store_true", help="ask the lake as ingested, not the tended one")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a request may take")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="VictoriaLogs and Loki too"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as scratch, ExitStack() as stack:
        began = time.perf_counter()
        directory = options.lake or Path(scratch) / "lake"
        fresh = stack.enter_context(bench_lake(directory, options.rows, mixed_batches))
        lake = fresh if options.fresh else stack.enter_context(tended_lake(directory))
        print(f"ready after {time.perf_counter() - began:.0f} s; best of {options.repeat}")
        if not run(lake, fresh, Path(scratch), options):
            sys.exit(1)


if __name__ == "__main__":
    main()
