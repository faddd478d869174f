"""Answers of bench/logql.py as counts: those of the lake, of DuckDB and of the peers.

A key has the values of the labels, in the order of the labels' names, and the second in which the window of a step
begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import httpx
import orjson

from _log_cases import Case

Answer = Counter[tuple[str, ...]]


def get(client: httpx.Client, request: tuple[str, dict[str, str]]) -> httpx.Response:
    path, parameters = request
    return checked(client.get(path, params=parameters))


def checked(response: httpx.Response) -> httpx.Response:
    if not response.is_success:
        raise ValueError(f"status {response.status_code}: {response.text.strip()[:200]}")
    return response


def loki_answer(case: Case, response: httpx.Response) -> Answer | None:
    """Return the counts of an answer of Loki's API, the number of its lines if it has lines; None if it is a list."""
    if case.path:
        return None
    data = orjson.loads(response.content)["data"]
    if data["resultType"] == "streams":
        return +Answer({(): sum(len(stream["values"]) for stream in data["result"])})
    answer: Answer = Counter()
    for series in data["result"]:
        labels = tuple(value for _, value in sorted(series["metric"].items()))
        if "value" in series:
            answer[labels] += int(float(series["value"][1]))
        for at, value in series.get("values", ()):
            answer[*labels, str(int(at) - case.step)] += int(float(value))
    return +answer


def logsql_answer(case: Case, response: httpx.Response) -> Answer | None:
    """Return the same of an answer of VictoriaLogs: an object of JSON on each line."""
    if case.path:
        return None
    rows = [orjson.loads(line) for line in response.content.split(b"\n") if line]
    if case.is_log_query:
        return +Answer({(): len(rows)})
    answer: Answer = Counter()
    for row in rows:
        count, time = int(row.pop("n")), row.pop("_time", None)
        # OTLP's names of severities are in upper case, Loki's levels in lower case.
        labels = tuple(value.lower() for _, value in sorted(row.items()))
        start = (str(int(datetime.fromisoformat(time).timestamp())),) if time else ()
        answer[*labels, *start] += count
    return +answer


def row_answer(rows: Iterable[Any]) -> Answer:
    return +Counter({tuple(map(str, row[:-1])): int(row[-1]) for row in rows})


def difference(answer: Answer | None, right: Answer | None) -> str:
    """Say what two answers do not share; nothing if they are equal, or not both are counts."""
    if answer is None or right is None or answer == right:
        return ""
    return f"{str(answer - right)[:150]} against {str(right - answer)[:150]}"
