"""LogQL over ten million lines by HTTP, as Grafana's client asks it, each query beside its baseline, in one run.

    scan        DuckDB looks for an absent text in all lines of the same files
    unsorted    the same over the same rows in the order of their arrival
    DuckDB      the same question, written by hand over the same files

The lake is a day of lines (_log_lines.py), made by the pipeline's own code and tended by `lakerunner up` until nothing
is left to merge (--fresh: as ingested). query-api has one worker in its process and keeps no results. The best turn
counts, the first one warms; counts are compared with DuckDB's. Q1 to Q9 are nine searches of the kinds of TextBench:
tokens with AND and OR, by service, by severity, by hour; each as LogQL and as SQL of the lake. Beside them stand
VictoriaLogs and Loki, where LAKERUNNER_PEERS/bin has them (_log_peers.py).

What fails or differs is printed, and the run goes on; exit code 1 if something did, or if a target was missed. What
ingest costs is measured by bench/ingest_logs.py.

    python bench/logql.py [--rows 10000000] [--lake DIR] [--repeat 5] [--fresh] [--only TEXT] [--timeout 120]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import httpx

from _lake import HOUR_NS, HOURS, OPENING_NS, BenchLake, bench_lake, tended_lake
from _log_lines import mixed_batches
from _log_peers import Peer, log_peers
from servers.lake import query_api

END_NS = OPENING_NS + HOURS * HOUR_NS
NOON_NS = OPENING_NS + 12 * HOUR_NS
ALL = '{service_name=~".+"}'
ABSENT = "zqxjkvbwp"
Answer = Counter[tuple[str, ...]]


@dataclass(frozen=True)
class Case:
    """A request. `sql` is the same question for DuckDB, with `{logs}` for the rows and `{time}` for the range; rows of
    its answer are texts and a number. `lines`: the request must read this many lines per CPU second."""

    name: str
    query: str
    baseline: str = "scan"
    target: float = 0
    sql: str = ""
    hours: int = HOURS
    step: int = 0
    path: str = ""
    is_sql_too: bool = False
    lines: str = ""

    @property
    def end_ns(self) -> int:
        return END_NS if self.hours == HOURS else NOON_NS

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.hours * HOUR_NS

    def request(self) -> tuple[str, dict[str, str]]:
        start, end = str(self.start_ns), str(self.end_ns)
        if self.path:
            return self.path, {"start": start, "end": end} | ({"query": self.query} if self.query else {})
        if self.query.startswith("{"):
            return "query_range", {"query": self.query, "start": start, "end": end, "limit": "100"}
        if self.step:  # the window of the first step begins at the start
            start = str(self.start_ns + self.step * 1_000_000_000)
            return "query_range", {"query": self.query, "start": start, "end": end, "step": str(self.step)}
        return "query", {"query": self.query, "time": end}

    def statement(self, logs: str) -> str:
        first, last = (
            datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S") for at in (self.start_ns, self.end_ns)
        )
        return self.sql.format(logs=logs, time=f"timestamp > '{first}' AND timestamp <= '{last}'")


def cases(needle: str, trace_id: str) -> Iterator[Case]:
    """Yield what issue 16 wants to be shown."""
    for name, text in (("trace id in the line", needle), ("absent word", ABSENT)):
        yield Case(f"needle: {name}", f'{ALL} |= "{text}"', target=1 / 25, sql=_has(text))
    metadata = f"SELECT count(*) FROM {{logs}} WHERE {{time}} AND lower(hex(trace_id)) = '{trace_id}'"
    yield Case("needle: trace id in metadata", f'{ALL} | trace_id="{trace_id}"', target=1 / 25, sql=metadata)
    service_text = f"{_has('pool exhausted')} AND service_name = 'checkout'"
    count = 'sum(count_over_time({service_name="checkout"} |= "pool exhausted" [24h]))'
    yield Case("service + text, count", count, "unsorted", 1 / 20, service_text)
    yield Case("text in all services, count", f'sum(count_over_time({ALL} |= "declined" [24h]))', sql=_has("declined"))
    levels = _grouped("lower(severity)", 60)
    by_level = f"sum by (detected_level) (count_over_time({ALL}[1m]))"
    yield Case("level per minute, 24 h", by_level, "DuckDB", 1.5, levels, step=60)
    yield Case("last 100 lines of a service", '{service_name="payment"}', target=1 / 20)
    yield Case("last 100 lines of a namespace", '{k8s_namespace_name="ingress"}', target=1 / 20)
    for service, parser, status, path in (
        ("edge", "json", "message ->> '$.status'", "message ->> '$.path'"),
        (
            "gateway",
            "logfmt",
            r"regexp_extract(message, ' status=(\d+)', 1)",
            r"regexp_extract(message, ' path=(\S+)', 1)",
        ),
    ):
        yield Case(
            f"{parser}: status by path, 1 h",
            f'sum by (path) (count_over_time({{service_name="{service}"}} | {parser} | status >= 500 [1h]))',
            "DuckDB",
            sql=f"SELECT {path}, count(*) FROM {{logs}} WHERE {{time}} AND service_name = '{service}' "
            f"AND CAST({status} AS INTEGER) >= 500 GROUP BY ALL",
            hours=1,
            lines=service,
        )
    for path, query in (("labels", ""), ("label/service_name/values", ""), ("series", ALL), ("index/volume", ALL)):
        yield Case(f"{path}, 24 h", query, target=1 / 50, path=path)
    yield from text_bench(needle)


def text_bench(needle: str) -> Iterator[Case]:
    def case(number: int, words: str, query: str, sql: str, target: float = 1.2, step: int = 0) -> Case:
        baseline = "scan" if target < 1 else "DuckDB"
        return Case(f"Q{number}: {words}", query, baseline, target, sql, step=step, is_sql_too=True)

    def counted(filters: str, by: str = "", selector: str = ALL, window: str = "24h") -> str:
        return f"sum{by}(count_over_time({selector} {filters} [{window}]))"

    rare = "pool exhausted"
    both = f"{_has('order')} AND message LIKE '%Osaka%'"
    either = "SELECT count(*) FROM {logs} WHERE {time} AND (message LIKE '%declined%' OR message LIKE '%refused%')"
    with_get = f"{_has(needle)} AND message LIKE '%GET%'"
    yield case(1, "rare token", counted(f'|= "{needle}"'), _has(needle), 1 / 20)
    yield case(2, "rare tokens, AND", counted(f'|= "{needle}" |= "GET"'), with_get, 1 / 20)
    yield case(3, "tokens, AND", counted('|= "order" |= "Osaka"'), both)
    yield case(4, "tokens, OR", counted('|= "declined" or "refused"'), either)
    yield case(
        5,
        "token of a service",
        counted('|= "order"', selector='{service_name="checkout"}'),
        f"{_has('order')} AND service_name = 'checkout'",
    )
    yield case(
        6,
        "token, severity",
        counted('|= "request" | detected_level="error"'),
        f"{_has('request')} AND severity = 'ERROR'",
    )
    yield case(
        7,
        "token by service",
        counted('|= "order"', " by (service_name) "),
        "SELECT service_name, count(*) FROM {logs} WHERE {time} AND message LIKE '%order%' GROUP BY ALL",
    )
    yield case(
        8,
        "rare text of a service",
        counted(f'|= "{rare}"', selector='{service_name="checkout"}'),
        f"{_has(rare)} AND service_name = 'checkout'",
        1 / 20,
    )
    yield case(
        9,
        "token by severity, hourly",
        counted('|= "order"', " by (detected_level) ", window="1h"),
        _grouped("lower(severity)", 3600, "AND message LIKE '%order%'"),
        step=3600,
    )


def _has(text: str) -> str:
    return f"SELECT count(*) FROM {{logs}} WHERE {{time}} AND message LIKE '%{text}%'"


def _grouped(label: str, seconds: int, more: str = "") -> str:
    """Count by a label and by the start of a window. A window has its end, not its start, as in LogQL."""
    start = f"(epoch_ns(timestamp) - 1) // {seconds * 1_000_000_000} * {seconds}"
    return f"SELECT {label}, {start}, count(*) FROM {{logs}} WHERE {{time}} {more} GROUP BY ALL"


class Side:
    """The query-api under test."""

    def __init__(self, url: str, process: int, timeout: float) -> None:
        self._process = process
        self._client = httpx.Client(base_url=url, timeout=timeout)

    def loki(self, case: Case) -> Answer | None:
        path, parameters = case.request()
        response = self._client.get(f"/loki/api/v1/{path}", params=parameters)
        return loki_answer(case, response)

    def sql(self, case: Case) -> Answer:
        response = self._client.post("/api/v1/sql", json={"query": case.statement("logs")})
        _check(response)
        return row_answer(tuple(row.values()) for row in response.json()["rows"])

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


def _check(response: httpx.Response) -> None:
    if response.status_code != 200:
        raise ValueError(f"status {response.status_code}: {response.text.strip()[:200]}")


def loki_answer(case: Case, response: httpx.Response) -> Answer | None:
    """Return the counts of an answer; None if it is a list."""
    _check(response)
    data = response.json().get("data")
    if case.path:
        return None
    if data["resultType"] == "streams":
        return Counter({(): sum(len(stream["values"]) for stream in data["result"])})
    answer: Answer = Counter()
    for series in data["result"]:
        labels = tuple(value for _, value in sorted(series["metric"].items()))
        if "value" in series:
            answer[labels] += int(float(series["value"][1]))
        for at, value in series.get("values", ()):
            answer[*labels, str(int(at) - case.step)] += int(float(value))
    return +answer


def row_answer(rows: Any) -> Answer:
    return +Counter({tuple(map(str, row[:-1])): int(row[-1]) for row in rows})


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


class Run:
    """Asks the cases. `failures` counts errors, answers that differ and targets that were missed."""

    def __init__(self, side: Side, peers: list[Peer], files: list[str], unsorted: list[str], repeat: int) -> None:
        self._side, self._peers, self._repeat = side, peers, repeat
        self._duckdb = duckdb.connect()
        self._logs = f"read_parquet({files}, union_by_name=true)"
        absent = "SELECT count(*) FROM {logs} WHERE message LIKE '%" + ABSENT + "%'"
        self.seconds = {
            name: self._best(lambda logs=logs: self._duckdb.sql(absent.format(logs=logs)).fetchall())[0]  # type: ignore[misc]
            for name, logs in (("scan", self._logs), ("unsorted", f"read_parquet({unsorted}, union_by_name=true)"))
        }
        self.failures = 0

    def ask(self, case: Case) -> None:
        try:
            self._ask(case)
        except (ValueError, KeyError, httpx.HTTPError, duckdb.Error) as error:
            self.failures += 1
            print(f"{case.name:32} ERROR {type(error).__name__}: {error}", flush=True)

    def _ask(self, case: Case) -> None:
        before = self._side.cpu_seconds()
        mine, answer = self._best(lambda: self._side.loki(case))
        cpu = (self._side.cpu_seconds() - before) / (self._repeat + 1)
        ways = {"": mine}
        theirs, right = self._best(lambda: self._hand_written(case)) if case.sql else (0.0, None)
        self._compare(case, "LogQL", answer, right)
        if case.is_sql_too:
            ways["SQL"], rows = self._best(lambda: self._side.sql(case))
            self._compare(case, "SQL", rows, right)
        baseline = theirs if case.baseline == "DuckDB" else self.seconds[case.baseline]
        for way, seconds in ways.items():
            self._report(f"{case.name}{way and ' as ' + way}", seconds, case, baseline)
        if case.lines:
            self._report_lines(case, cpu)
        for peer in self._peers:
            self._beside(case, peer, mine)

    def _best(self, work: Callable[[], Any]) -> tuple[float, Any]:
        turns = [timed(work) for _ in range(self._repeat + 1)]
        return min(seconds for seconds, _ in turns[1:]), turns[-1][1]

    def _hand_written(self, case: Case) -> Answer:
        return row_answer(self._duckdb.sql(case.statement(self._logs)).fetchall())

    def _compare(self, case: Case, way: str, answer: Answer | None, right: Answer | None) -> None:
        if answer is None or right is None:
            return
        is_log_query = case.query.startswith("{")
        if is_log_query:
            right = Counter({key: min(100, count) for key, count in right.items()})
        if +answer != +right:
            self.failures += 1
            mine, other = answer - right, right - answer
            print(f"{case.name:32} DIFFERS as {way}: {str(mine)[:150]} against {str(other)[:150]}")

    def _report(self, name: str, seconds: float, case: Case, baseline: float) -> None:
        ratio = seconds / baseline
        shown, aim = (f"{value:.2f}x" if value > 0.9 else f"1/{1 / value:.1f}" for value in (ratio, case.target or 1))
        goal = f" (target {aim})" if case.target else ""
        missed = bool(case.target) and ratio > case.target
        self.failures += missed
        print(
            f"{name:32} {seconds * 1e3:9.1f} ms  {case.baseline} {baseline * 1e3:9.1f} ms  {shown:8}{goal}"
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

    def _beside(self, case: Case, peer: Peer, mine: float) -> None:
        try:
            seconds, _ = self._best(lambda: peer.ask(case.name, *case.request()))
        except (ValueError, httpx.HTTPError) as error:
            print(f"{'':32} {peer.name}: {error}")
        else:
            print(f"{'':32} {peer.name} {seconds * 1e3:.1f} ms: {mine / seconds:.2f}x")


def run(lake: BenchLake, unsorted: list[str], scratch: Path, options: argparse.Namespace) -> bool:
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
        peers = list(stack.enter_context(log_peers(scratch, options.rows, mixed_batches)))
        served = stack.enter_context(query_api(scratch / "api", environment))
        side = Side(served.url, served.process.popen.pid, options.timeout)
        turns = Run(side, peers, lake.files, unsorted, options.repeat)
        needle, trace_id = needles(lake)
        print(f"scan {turns.seconds['scan'] * 1e3:.0f} ms, unsorted {turns.seconds['unsorted'] * 1e3:.0f} ms")
        for case in cases(needle, trace_id):
            if options.only in case.name:
                turns.ask(case)
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as scratch, ExitStack() as stack:
        began = time.perf_counter()
        directory = options.lake or Path(scratch) / "lake"
        fresh = stack.enter_context(bench_lake(directory, options.rows, mixed_batches))
        lake = fresh if options.fresh else stack.enter_context(tended_lake(directory))
        print(f"ready after {time.perf_counter() - began:.0f} s; best of {options.repeat}")
        if not run(lake, fresh.unsorted_files, Path(scratch), options):
            sys.exit(1)


if __name__ == "__main__":
    main()
