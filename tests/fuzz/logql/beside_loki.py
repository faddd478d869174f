"""Random LogQL, answered by us and by a real Loki on the same lines, both over HTTP.

    python -m fuzz.logql.beside_loki [--queries 2000] [--seed 1]

Loki is that of `make peers`. Both get the same pushes and OTLP requests; lines that Loki would drop, because a stream
has an equal one of that time, are left out. Prints every difference that `excused_loki.py` does not explain, and at the
end how many answers were equal, and what was excused how often. Exit code 1: some were different.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa

from api.loki.loki_lake import loki_server
from fuzz.logql.compare import SCALAR, Ours, line_difference, series_difference
from fuzz.logql.excused_loki import NO_ANSWER, excuse
from fuzz.logql.grammar import LogqlQuery, random_query
from fuzz.logql.lakes import exported, ingested, pushed
from fuzz.logql.lines import END, SECOND, START, Delivery, Row, random_deliveries
from fuzz.logql.slow_evaluator import SlowEntry
from query.sample_lake import Lake, removed
from servers.loki import flush_loki, running_loki

PER_LAKE = 500
SECONDS = 20  # that Loki has for an answer
_ALL = 5000
_FLAGS = {"x-loki-response-encoding-flags": "categorize-labels", "x-api-key": "own"}


class BesideLoki:
    """Compares queries over one random lake. `counts` has the outcomes."""

    def __init__(self, ours: httpx.Client, theirs: httpx.Client) -> None:
        self._ours, self._theirs = ours, theirs
        self.counts: Counter[str] = Counter()

    def problem(self, query: LogqlQuery) -> str | None:
        """Return what differs and is not excused, None if nothing does."""
        ours, theirs = self._answers(query)
        found = _difference(query, ours, theirs)
        if not found:
            self.counts["refused by both" if ours.error else "equal" if ours.lines or ours.series else "empty"] += 1
            return None
        if reason := excuse(query, ours, theirs):
            self.counts[f"excused: {reason}"] += 1
            return None
        self.counts["different"] += 1
        return found

    def _answers(self, query: LogqlQuery) -> tuple[Ours, Ours]:
        ours = _ask(self._ours, query)
        if ours.lines is None:
            return ours, _ask(self._theirs, query)
        # All lines: of those at the limit with equal times any may be returned.
        return ours, _ask(self._theirs, replace(query, limit=_ALL, forward=True))


def _ask(client: httpx.Client, query: LogqlQuery) -> Ours:
    parameters: dict[str, Any] = {
        "query": query.text,
        "limit": query.limit,
        "direction": "forward" if query.forward else "backward",
    }
    if query.step:
        path, times = "query_range", {"start": query.start, "end": query.end, "step": query.step / 1e9}
    else:
        path, times = "query", {"time": query.end}
    try:
        response = client.get(f"/loki/api/v1/{path}", params=parameters | times)
    except httpx.TimeoutException:
        return Ours(error=NO_ANSWER)
    if not response.is_success:
        return Ours(error=response.text.strip() or f"status {response.status_code}")
    return _answer(orjson.loads(response.content)["data"])


def _answer(data: dict[str, Any]) -> Ours:
    result = data["result"] or []
    if data["resultType"] == "scalar":
        return Ours(series=((SCALAR, (_point(result),)),))
    if data["resultType"] == "streams":
        lines = [
            (
                int(time),
                line,
                (_text(stream["stream"]), _text(more.get("structuredMetadata")), _text(more.get("parsed"))),
            )
            for stream in result
            for time, line, more in ((*entry, {})[:3] for entry in stream["values"])
        ]
        return Ours(lines=tuple(lines))
    return Ours(
        series=tuple(
            (tuple(sorted(one["metric"].items())), tuple(map(_point, one.get("values") or [one["value"]])))
            for one in result
        )
    )


def _point(pair: Sequence[Any]) -> tuple[int, str]:
    return round(float(pair[0]) * 1000), pair[1]


def _text(labels: dict[str, str] | None) -> str:
    return orjson.dumps(labels or {}, option=orjson.OPT_SORT_KEYS).decode()


def _difference(query: LogqlQuery, ours: Ours, theirs: Ours) -> str | None:
    if ours.error or theirs.error:
        same = bool(ours.error) and bool(theirs.error)
        return None if same else f"ours: {ours.error or 'an answer'}\n  loki: {theirs.error or 'an answer'}"
    if ours.lines is None or theirs.lines is None:
        expected: dict[int, Any] = {}
        for labels, points in theirs.series or ():
            for time, value in points:
                if labels == SCALAR:
                    expected[time] = float(value)
                else:
                    expected.setdefault(time, {})[frozenset(labels)] = float(value)
        return series_difference(ours.series or (), expected)
    in_order = sorted(ours.lines, key=lambda line: line[0], reverse=not query.forward)
    wanted = [
        SlowEntry(time, line, (orjson.loads(stream), orjson.loads(metadata), orjson.loads(parsed)), 0)
        for time, line, (stream, metadata, parsed) in sorted(theirs.lines, key=lambda line: line[0])
    ]
    return line_difference(query, in_order, wanted, ordered=False)


# ---- the same lines for both


@contextmanager
def beside_loki(directory: Path, seed: int) -> Iterator[BesideLoki]:
    deliveries = _without_equal_lines(random_deliveries(seed))
    lake = Lake(directory / "ours")
    lake.all += ingested(lake, deliveries)
    try:
        with (
            running_loki(directory / "loki", shards=False) as url,
            loki_server(lake) as served,
            httpx.Client(base_url=served.url, headers=_FLAGS, timeout=120) as ours,
            httpx.Client(base_url=url, headers=_FLAGS, timeout=SECONDS) as theirs,
        ):
            for delivery in deliveries:
                _send(theirs, delivery)
            flush_loki(theirs)
            _check_lines(theirs, sum(len(delivery.rows) for delivery in deliveries))
            yield BesideLoki(ours, theirs)
    finally:
        lake.close()
        removed(lake.directory)


def _without_equal_lines(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Leave out lines that are equal to one before them in stream and time, and deliveries that come again."""
    seen: set[tuple[object, ...]] = set()
    found = []
    for delivery in deliveries:
        rows: list[Row] = []
        for row in delivery.rows:
            key = (row.time, row.line, *sorted(row.stream.items()))
            if key not in seen:
                seen.add(key)
                rows.append(row)
        if rows:
            found.append(replace(delivery, rows=tuple(rows)))
    return found


def _send(client: httpx.Client, delivery: Delivery) -> None:
    if delivery.kind == "loki":
        path, data = "/loki/api/v1/push", pa.Codec("snappy").compress(pushed(delivery), asbytes=True)
    else:
        path, data = "/otlp/v1/logs", exported(delivery)
    response = client.post(path, content=data, headers={"content-type": "application/x-protobuf"})
    assert response.is_success, response.text


def _check_lines(client: httpx.Client, count: int) -> None:
    query: dict[str, str | int] = {"query": '{service_name=~".+"}', "start": START, "end": END + SECOND, "limit": _ALL}
    result = client.get("/loki/api/v1/query_range", params=query).json()["data"]["result"]
    assert sum(len(stream["values"]) for stream in result) == count


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.logql.beside_loki")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    counts: Counter[str] = Counter()
    for first in range(0, options.queries, PER_LAKE):
        counts += _of_lake(options.seed * 1000 + first // PER_LAKE, min(PER_LAKE, options.queries - first))
        print(f"{sum(counts.values())} queries", flush=True)
    for kind, count in sorted(counts.items()):
        print(f"{count:6} {kind}")
    return 1 if counts["different"] else 0


def _of_lake(seed: int, queries: int) -> Counter[str]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as work, beside_loki(Path(work), seed) as both:
        for number in range(queries):
            query = _aligned(random_query(chance))
            if found := both.problem(query):
                print(f"\nlake {seed}, {number}: {query}\n  {found[:3000]}", flush=True)
        return both.counts


def _aligned(query: LogqlQuery) -> LogqlQuery:
    """Loki moves the start of a metric query to a multiple of its step."""
    if not query.step or query.text.startswith("{"):
        return query
    start = query.start - query.start % query.step
    return replace(query, start=start, end=max(start, query.end - query.end % query.step))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
