"""Patterns of lines over HTTP: every pattern finds its lines with `|>`, and only those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api.loki.loki_lake import NOW, SECOND, LokiClient, lines_lake, loki_server
from conformance.answer import LogEntry
from lakerunner.logql.log_patterns import MAX_LINE, GroupKey, LineGroups
from lakerunner.logql.pattern_choice import MAX_PATTERNS, choose_patterns
from lakerunner.model.display import go_quote
from query.sample_lake import OWN, START

WITHIN = {"start": START, "end": NOW}
WEB, DB = (("app", "web"),), (("app", "db"),)
STEP = 60


def lines_of(stream: tuple[tuple[str, str], ...], every: int, *texts: str) -> list[LogEntry]:
    return [LogEntry(START + number * every * SECOND, text, stream) for number, text in enumerate(texts)]


LINES = (
    *lines_of(WEB, 20, *(f"level=info user {number} logged in" for number in range(9))),
    *lines_of(WEB, 20, *(f"level=info user {name} logged in" for name in ("ann", "bob"))),
    *lines_of(WEB, 30, *(f'level=error GET "/a/{number}" took {number}ms' for number in range(5))),
    *lines_of(WEB, 1, "12", "13", ""),
    *lines_of(WEB, 1, "tag <b> 1", "tag <b> 2"),
    *lines_of(WEB, 1, "x" * (MAX_LINE + 1)),
    *lines_of(DB, 1, "slow query: 5 s", "slow  query: 6 s", "always the same 7"),
)


@pytest.fixture(scope="module")
def loki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LokiClient]:
    with loki_server(lines_lake(tmp_path_factory.mktemp("patterns"), LINES)) as client:
        yield client


def patterns(loki: LokiClient, query: str, **given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = loki.data("patterns", query=query, **{**WITHIN, "step": STEP, **given})
    return found


def totals(found: list[dict[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in found:
        counts[one["pattern"]] += sum(count for _, count in one["samples"])
    return dict(counts)


def test_patterns_with_level_and_samples(loki: LokiClient) -> None:
    found = patterns(loki, '{app="web"}')
    first = START // SECOND // STEP * STEP
    # A name where others have a number is counted under the pattern that finds it.
    assert found[0] == {
        "pattern": "level=info user <_> logged in",
        "level": "info",
        "samples": [[first, 5], [first + 60, 3], [first + 120, 3]],
    }
    assert found[1] == {
        "pattern": "level=error GET <_> took <_>",
        "level": "error",
        "samples": [[first, 2], [first + 60, 2], [first + 120, 1]],
    }
    assert totals(found) == {
        "level=info user <_> logged in": 11,
        "level=error GET <_> took <_>": 5,
        "tag <_> <_>": 2,
    }  # nothing is said by a pattern without a word, which would find all lines


@pytest.mark.parametrize("query", ['{app="web"}', '{app="db"}', '{app=~".+"}', '{app="web"} |= "user"'])
def test_each_pattern_finds_its_lines_and_only_those(loki: LokiClient, query: str) -> None:
    found = totals(patterns(loki, query))
    assert found
    for pattern, count in found.items():
        lines = loki.data("query_range", query=f"{query} |> {go_quote(pattern)}", limit=1000, **WITHIN)["result"]
        assert sum(len(stream["values"]) for stream in lines) == count, pattern


def test_a_group_of_one_line_is_literal_and_gaps_may_vary(loki: LokiClient) -> None:
    assert totals(patterns(loki, '{app="db"}')) == {
        "slow query: 5 s": 1,
        "slow  query: <_> s": 1,
        "always the same 7": 1,
    }


def test_stages_filter_before_lines_are_grouped(loki: LokiClient) -> None:
    assert totals(patterns(loki, '{app="web"} |= "GET"')) == {"level=error GET <_> took <_>": 5}
    assert totals(patterns(loki, '{app="web"} | detected_level="info"')) == {"level=info user <_> logged in": 11}
    own = patterns(loki, '{app="web"} | logfmt | level="error" | line_format "took {{.level}} 5"')
    assert totals(own) == {"took error 5": 5}


def test_both_ways_group_alike(loki: LokiClient) -> None:
    assert totals(patterns(loki, '{app=~".+"} |~ ".*"')) == totals(patterns(loki, '{app=~".+"}'))


def test_refused(loki: LokiClient) -> None:
    for query, message in (('rate({a="b"}[1m])', "only log selector is supported"), ("{", "syntax error")):
        refused = loki.get("patterns", query=query, **WITHIN)
        assert (refused.status_code, message in refused.text) == (400, True), refused.text


def test_only_the_own_organization(loki: LokiClient) -> None:
    assert patterns(loki, '{app="secret"}') == []
    assert totals(patterns(LokiClient(loki.url, "other"), '{app=~".+"}')) == {"theirs": 1}
    assert str(OWN) not in str(patterns(loki, '{app=~".+"}'))


def test_at_most_so_many_patterns() -> None:
    groups = LineGroups()
    for number in range(MAX_PATTERNS + 50):
        word = "".join(chr(ord("g") + int(digit)) for digit in str(number))
        line = f"event {word}! x{word}"
        groups.add(GroupKey(number, False, "info"), {0: number + 1}, [line], line, line)
    chosen = choose_patterns(groups.by_key)
    assert len(chosen) == MAX_PATTERNS
    assert chosen[0].counts == {0: MAX_PATTERNS + 50}
