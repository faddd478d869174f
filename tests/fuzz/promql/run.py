"""Random queries, answered by our engine and by a real Prometheus on the same samples.

    python -m fuzz.promql.run [--queries 10000] [--seed 1]

prints every difference at its smallest, and at the end how many were equal. Exit code 1: some were different; 0 as well
where there is no Prometheus to ask, which is said.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from conformance.peer import prometheus, write
from fuzz.promql import ours
from fuzz.promql.compare import difference
from fuzz.promql.data import state
from fuzz.promql.excused import excuse
from fuzz.promql.grammar import Query, random_query
from fuzz.promql.shrink import shrunk
from fuzz.promql.source import StateSource

_EVERY = 500
_ASKED_AGAIN = 4


class Comparison:
    def __init__(self, client: httpx.Client, source: StateSource) -> None:
        self._client, self._source = client, source

    def of(self, query: Query) -> tuple[str, str | None]:
        """What became of it, in a word, and what differs. Prometheus is asked again before its answer counts: what it
        says otherwise another time, as the ties of topk, is not defined."""
        mine = self._ours(query)
        theirs = self._theirs(query)
        found = difference(query, mine, theirs)
        for _ in range(_ASKED_AGAIN if found else 0):
            again = self._theirs(query)
            if difference(query, again, theirs) or not difference(query, mine, again):
                return "undefined", None
        if found:
            return ("excused", None) if excuse(query, mine, theirs) else ("different", found)
        return ("refused by both" if theirs["status"] == "error" else "equal"), None

    def _ours(self, query: Query) -> dict[str, Any]:
        try:
            return ours.answer(query, self._source)
        except Exception as crash:  # which is a difference of its own
            return {"status": "error", "errorType": "crash", "error": f"{type(crash).__name__}: {crash}"}

    def _theirs(self, query: Query) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.post(*asked(query)[:1], data=asked(query)[1]).json()
        return answer


def asked(query: Query) -> tuple[str, dict[str, str]]:
    """The path and the form."""
    steps = query.steps
    if query.instant:
        return "/query", {"query": query.text, "time": _seconds(steps.start)}
    times = {"start": _seconds(steps.start), "end": _seconds(steps.end), "step": _seconds(steps.step)}
    return "/query_range", {"query": query.text, **times}


def _seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03}"


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz-promql")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as work:
        try:
            return _run(options.queries, options.seed, Path(work))
        except pytest.skip.Exception as missing:
            print(f"nothing was compared: {missing}")
            return 0


def _run(queries: int, seed: int, work: Path) -> int:
    chance = random.Random(seed)
    loaded = state(seed)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with (
        prometheus(work / "prometheus") as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=120) as client,
    ):
        write(url, loaded)
        comparison = Comparison(client, StateSource(loaded))
        for number in range(1, queries + 1):
            query = random_query(chance)
            outcome, found = comparison.of(query)
            counts[outcome] += 1
            if found:
                small = shrunk(query, lambda one: comparison.of(one)[1] is not None)
                print(f"\n{number}: {query}\n  smallest: {small}\n  {comparison.of(small)[1]}", flush=True)
            if number % _EVERY == 0:
                print(f"{number} of {queries}, {time.monotonic() - began:.0f} s: {_summary(counts)}", flush=True)
    print(f"seed {seed}: {_summary(counts)}")
    return 1 if counts["different"] else 0


def _summary(counts: Counter[str]) -> str:
    text = ", ".join(f"{counts[name]} {name}" for name in ("equal", "different", "refused by both"))
    return f"{text}; {counts['undefined']} are not defined by Prometheus, {counts['excused']} it gets wrong"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
