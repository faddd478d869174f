"""Queries that would take all memory or all time: each is refused at once, by a limit that it names."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from suites.otlp_metrics import Otlp, SmallLake, gauge

T0 = 1_767_225_600  # 2026-01-01
LONG = 5.0  # seconds of this process, which serves: others may have the machine meanwhile
DOUBLED = "label_join(" * 40 + "label_replace(limited, 'a', 'long enough', '', '')" + ", 'a', '', 'a', 'a')" * 40
MANY_VALUES = "count_values('v', sum_over_time((vector(1) * time())[1m:1s]))"


def ranged(start: str, end: str, step: str) -> dict[str, str]:
    return {"query": "limited", "start": start, "end": end, "step": step}


QUERIES: list[tuple[str, dict[str, Any], str]] = [
    ("query", {"query": "1" + "+1" * 40_000}, "the limit is 65536"),
    ("query", {"query": "1" + "+1" * 1_000}, "more than 200 levels deep"),
    ("query", {"query": "(" * 30_000 + "1" + ")" * 30_000}, "more than 100 expressions inside each other"),
    ("query", {"query": "-" * 60_000 + "1"}, "more than 100 expressions inside each other"),
    ("query", {"query": "sum(" * 10_000}, "more than 100 expressions inside each other"),
    ("query", {"query": "a{" + ",".join(f'l{n}="v"' for n in range(100_000)) + "}"}, "the limit is 65536"),
    ("query_range", ranged("0", "1000000", "1"), "exceeded maximum resolution of 11,000 points"),
    ("query_range", ranged("0", "10", "-1"), "zero or negative query resolution step widths"),
    ("query_range", ranged("0", "10", "0"), "zero or negative query resolution step widths"),
    ("query_range", ranged("0", "10", "0.0000001"), "zero or negative query resolution step widths"),
    ("query_range", ranged("0", "10", "1e300"), "overflows int64"),
    ("query_range", ranged("0", "10", "NaN"), "to a valid duration"),
    ("query_range", ranged("1e300", "1e300", "1"), "times range from 1777-09-21 to 2162-04-11"),
    ("query_range", ranged("-1e300", "1e300", "1e9"), "times range from"),
    ("query", {"query": "limited", "time": "NaN"}, "cannot parse"),
    ("query", {"query": "limited", "time": "1e999"}, "cannot parse"),
    ("query", {"query": "limited", "timeout": "NaN"}, "to a valid duration"),
    ("query", {"query": "limited @ 1e300"}, "timestamp out of bounds"),
    ("query", {"query": "limited[1000000y]"}, "duration out of range"),
    ("query", {"query": "max_over_time(limited[10d:1ms])"}, "(metrics_max_samples)"),
    ("query", {"query": "max_over_time(limited[100y:1ms])"}, "(metrics_max_samples)"),
    ("query", {"query": "sum_over_time(sum_over_time(vector(1)[90y:1s])[90y:1s])"}, "(metrics_max_samples)"),
    ("query", {"query": '{__name__=~"((a{1000}){1000}){1000}"}'}, "invalid repeat count"),
    ("query", {"query": r'{__name__=~"(\\pL{100}){10}"}'}, "expression too large"),
    ("query", {"query": DOUBLED}, "a query makes at most 65536"),
    ("query", {"query": f"label_replace(limited, 'a', '{'$0' * 9000}', 'job', '.*')"}, "a query makes at most 65536"),
    ("series", {"match[]": [f'limited{{a="{n}"}}' for n in range(300)]}, "at most 256 can be listed"),
    ("series", {"match[]": ["limited"] * 10_001}, "Max number of fields exceeded"),
    ("query_exemplars", {"query": f"({') or ('.join(f'a{n}' for n in range(150))})" * 3}, "parse error"),
]
FINE = [
    "limited offset -290y",
    "limited @ 9e15",
    "limited[290y]",
    '{__name__=~"(a+)+b"}',
    '{__name__=~"(.*)*(.*)*(.*)*(.*)*x"}',
    '{__name__=~"' + "a?" * 1_000 + "a" * 1_000 + '"}',
    '{__name__=~"' + "(.*)*" * 500 + 'x"}',
    '{__name__=~"' + "(" * 60 + ")" * 60 + 'x"}',
    f"label_replace(limited, 'a', '$1', 'b', '{'(.*)' * 100}')",
    'limited{job=~"' + "|".join(f"shop-{n}.*" for n in range(500)) + '"}',
    "{__name__=~'.+'," + ",".join(f'l{n}!="v"' for n in range(1000)) + "}",
    "predict_linear(limited[1h], 1e300)",
    MANY_VALUES,
]


@pytest.fixture(scope="module")
def limited(small: SmallLake) -> SmallLake:
    made = Otlp()
    gauge(made.resource(service_name="x" * 100), "limited", [(T0 + n, n) for n in range(0, 600, 15)])
    small.add(made.data)
    assert small.api().number("limited", T0 + 600) == 585
    return small


def memory() -> int:
    """Bytes that this process, which serves, has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def sent(lake: SmallLake, path: str, given: dict[str, Any]) -> httpx.Response:
    given = {"time": str(T0 + 600), **given} if path == "query" else given
    began = time.process_time()
    response = lake.inner.http.post(f"/prometheus/api/v1/{path}", data=given)
    assert time.process_time() - began < LONG, (path, str(given)[:200])
    return response


def test_what_would_take_too_much_is_refused_by_name(limited: SmallLake) -> None:
    before = memory()
    for path, given, said in QUERIES:
        response = sent(limited, path, given)
        body = response.json()
        assert (400 <= response.status_code < 500, body["status"]) == (True, "error"), (str(given)[:200], response.text)
        assert said in body["error"], (str(given)[:200], body["error"][:400])
    assert memory() - before < 300 << 20


def test_what_only_looks_like_it_is_answered(limited: SmallLake) -> None:
    before = memory()
    for query in FINE:
        response = sent(limited, "query", {"query": query})
        assert response.status_code == 200, (query[:100], response.text[:400])
    assert memory() - before < 300 << 20
