"""Random queries, answered by us and by a real Prometheus on the same samples.

    python -m fuzz.promql.run [--queries 10000] [--seed 1] [--http] [--names-at-once]

We are our engine in this process, or with --http Prometheus' API in front of a lake that has ingested the samples
(conformance/lake.py). Prints every difference at its smallest, and at the end how many were equal. Exit code 1: some
were different; 0 as well where there is no Prometheus to ask, which is said.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from conformance.lake import scripted_lake
from conformance.peer import prometheus, write
from conformance.script import Case, State
from fuzz.promql import ours
from fuzz.promql.compare import difference
from fuzz.promql.data import state
from fuzz.promql.excused import excuse
from fuzz.promql.grammar import Query, random_query
from fuzz.promql.shrink import shrunk
from fuzz.promql.source import StateSource
from lakerunner.series.values import Steps

_EVERY = 500
_ASKED_AGAIN = 4


Ask = Callable[[Query], dict[str, Any]]


@dataclass(frozen=True)
class Comparison:
    """Compares answers. `in_parts`: ours are joined from parts of the series."""

    ours: Ask
    theirs: Ask
    in_parts: bool

    def of(self, query: Query) -> tuple[str, str | None]:
        """Return the outcome in a word, and the difference. Prometheus is asked again before its answer counts: what
        varies between runs, like the ties of topk, is undefined."""
        mine, theirs = self.ours(query), self.theirs(query)
        found = self._difference(query, mine, theirs)
        for _ in range(_ASKED_AGAIN if found else 0):
            again = self.theirs(query)
            if self._difference(query, again, theirs) or not self._difference(query, mine, again):
                return "undefined", None
        if found:
            return ("excused", None) if excuse(query, mine, theirs) else ("different", found)
        return ("refused by both" if theirs["status"] == "error" else "equal"), None

    def _difference(self, query: Query, one: dict[str, Any], other: dict[str, Any]) -> str | None:
        return difference(query, one, other, in_parts=self.in_parts)


def in_process(loaded: State) -> Ask:
    source, evaluated = StateSource(loaded), ours.whole(delayed_names=loaded.delayed_names)

    def ask(query: Query) -> dict[str, Any]:
        try:
            return ours.answer(query, source, evaluated)
        except Exception as crash:  # a crash is a difference of its own
            return {"status": "error", "errorType": "crash", "error": f"{type(crash).__name__}: {crash}"}

    return ask


def over_http(client: httpx.Client) -> Ask:
    def ask(query: Query) -> dict[str, Any]:
        path, form = asked(query)
        answer: dict[str, Any] = client.post(path, data=form).json()
        return answer

    return ask


def asked(query: Query) -> tuple[str, dict[str, str]]:
    """Return the path and the form of the request."""
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
    parser.add_argument("--http", action="store_true", help="over HTTP, of an ingested lake with three workers")
    parser.add_argument("--names-at-once", action="store_true", help="without promql-delayed-name-removal")
    options = parser.parse_args(given)
    loaded = state(options.seed, delayed_names=not options.names_at_once)
    chance = random.Random(options.seed)
    queries = [random_query(chance) for _ in range(options.queries)]
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        try:
            comparison = _comparison(loaded, Path(work), stack, http=options.http)
        except pytest.skip.Exception as missing:
            print(f"nothing was compared: {missing}")
            return 0
        counts = _compared(queries, comparison)
    print(f"seed {options.seed}: {_summary(counts)}")
    return 1 if counts["different"] else 0


def _comparison(loaded: State, work: Path, stack: ExitStack, *, http: bool) -> Comparison:
    url = stack.enter_context(prometheus(work / "prometheus", delayed_names=loaded.delayed_names))
    write(url, loaded)
    theirs = over_http(stack.enter_context(httpx.Client(base_url=f"{url}/api/v1", timeout=120)))
    if not http:
        return Comparison(in_process(loaded), theirs, in_parts=False)
    case = Case(work, 0, "", Steps(0, 0), True, state=loaded)
    lake = stack.enter_context(scripted_lake(work / "lake", [case], by_spark=False))
    headers = {"authorization": f"Bearer {lake.keys[loaded]}"}
    url = f"{lake.urls[loaded.delayed_names]}/prometheus/api/v1"
    client = httpx.Client(base_url=url, headers=headers, timeout=120)
    return Comparison(over_http(stack.enter_context(client)), theirs, in_parts=True)


def _compared(queries: Sequence[Query], comparison: Comparison) -> Counter[str]:
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number, query in enumerate(queries, 1):
        outcome, found = comparison.of(query)
        if found:
            small = shrunk(query, lambda one: comparison.of(one)[1] is not None)
            found = comparison.of(small)[1]
            outcome = (
                outcome if found else "undefined"
            )  # the difference disappeared: Prometheus answers differently now
            print(f"\n{number}: {query}\n  smallest: {small}\n  {found or 'not there any more'}", flush=True)
        counts[outcome] += 1
        if number % _EVERY == 0:
            spent = time.monotonic() - began
            print(f"{number} of {len(queries)}, {spent:.0f} s: {_summary(counts)}", flush=True)
    return counts


def _summary(counts: Counter[str]) -> str:
    text = ", ".join(f"{counts[name]} {name}" for name in ("equal", "different", "refused by both"))
    return f"{text}; {counts['undefined']} are not defined by Prometheus, {counts['excused']} it gets wrong"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
