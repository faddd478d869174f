"""Random LogQL, answered by us and by a slow evaluator on the same rows.

    python -m fuzz.logql.run [--queries 10000] [--seed 1] [--every 1]

Each query is answered by one worker and by three, which must give the same bits, by a lake without text indexes, which
must too, and by a compacted lake, whose answer is compared with the slow evaluator like the first one; with --every N
the further lakes are asked only every Nth query. A new lake is made for every 1,000 queries. Prints every difference,
and at the end how many were equal. Exit code 1: some were different.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fuzz.logql.compare import ask, difference
from fuzz.logql.grammar import LogqlQuery, random_query
from fuzz.logql.lakes import random_lakes
from fuzz.logql.lines import Row, random_deliveries, seen_rows
from fuzz.logql.slow_labels import Undefined
from lakerunner.query.engine import Engine

PER_LAKE = 1000
SAME_BITS = ("three", "no text index")


class RandomLogql:
    """Compares queries over one random lake. `counts` has the outcomes."""

    def __init__(self, rows: Sequence[Row], engines: Mapping[str, Engine]) -> None:
        self._rows = rows
        self._engines = engines
        self.counts: Counter[str] = Counter()

    def problem(self, query: LogqlQuery, *, everywhere: bool = True) -> str | None:
        """Return what is wrong with the answers to a query, None if nothing is."""
        ours = ask(self._engines["one"], query)
        problems = [("", self._difference(query, ours))]
        if everywhere:
            for name in SAME_BITS:
                other = ask(self._engines[name], query)
                problems.append((name, None if other.is_same(ours) else f"{other}\n  is not {ours}"))
            problems.append(("compacted", self._difference(query, ask(self._engines["compacted"], query), count=False)))
        found = [f"{name} {problem}" for name, problem in problems if problem]
        if found:
            self.counts["different"] += 1
        return "\n  ".join(found) or None

    def _difference(self, query: LogqlQuery, ours, *, count: bool = True) -> str | None:  # type: ignore[no-untyped-def]
        try:
            found = difference(self._rows, query, ours)
        except Undefined:
            self.counts["undefined"] += count
            return None
        if not found:
            kind = "refused by both" if ours.error else "equal" if ours.lines or ours.series else "equal and empty"
            self.counts[kind] += count
        return found


@contextmanager
def random_logql(directory: Path, seed: int) -> Iterator[RandomLogql]:
    deliveries = random_deliveries(seed)
    with random_lakes(directory, deliveries) as engines:
        yield RandomLogql(seen_rows(deliveries), engines)


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz-logql")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="ask the further lakes only every Nth query")
    options = parser.parse_args(given)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for first in range(0, options.queries, PER_LAKE):
        seed = options.seed * 1000 + first // PER_LAKE
        counts += _of_lake(seed, min(PER_LAKE, options.queries - first), options.every)
        print(f"{sum(counts.values())} in {time.monotonic() - began:.0f} s: {_summary(counts)}", flush=True)
    return 1 if counts["different"] else 0


def _of_lake(seed: int, queries: int, every: int) -> Counter[str]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as work, random_logql(Path(work), seed) as logql:
        for number in range(queries):
            query = random_query(chance)
            if found := logql.problem(query, everywhere=number % every == 0):
                print(f"\nlake {seed}, {number}: {query}\n  {found[:3000]}", flush=True)
        return logql.counts


def _summary(counts: Counter[str]) -> str:
    names = ("equal", "equal and empty", "refused by both", "different", "undefined")
    return ", ".join(f"{counts[name]} {name}" for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
