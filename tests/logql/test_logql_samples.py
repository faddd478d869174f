"""The samples of range aggregations: values, the labels of series, what parsers extract for them, and errors."""

from __future__ import annotations

import pytest

from lakerunner.logql.stages.hints import NO_HINTS, LabelNeeds, ParserHints, hints_of
from lakerunner.logql.stages.sample import hints_for
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Grouping, RangeAggregation
from lakerunner.model.errors import UserError
from logql.line_runs import sample_of

STREAM = {"app": "a", "zone": "z"}
LINE = '{"path":"/x","status":200,"zone":"p","took":"1.5s","size":"1KiB","n":"7"}'
BROKEN = '{"path":"/x","status":200'


def test_values() -> None:
    assert sample_of('count_over_time({app="a"}[1m])', "line", STREAM) == (1.0, STREAM)
    assert sample_of('bytes_over_time({app="a"}[1m])', "\xe9\udcff", STREAM) == (3.0, STREAM)
    assert sample_of('rate({app="a"} |= "x" [1m])', "line", STREAM) is None


@pytest.mark.parametrize(
    ("unwrap", "value"),
    [
        ("n", 7.0),
        ("duration(took)", 1.5),
        ("duration_seconds(took)", 1.5),
        ("bytes(size)", 1024.0),
    ],
)
def test_unwrapped_values(unwrap: str, value: float) -> None:
    found = sample_of(f'max_over_time({{app="a"}} | json n, took, size | unwrap {unwrap} [1m]) by (app)', LINE, STREAM)
    assert found == (value, {"app": "a"})


def test_a_line_without_the_unwrapped_label_gives_no_sample() -> None:
    assert sample_of('sum_over_time({app="a"} | json | unwrap none [1m])', LINE, STREAM) is None
    assert sample_of('sum_over_time({app="a"} | logfmt --keep-empty | unwrap v [1m])', "v=", STREAM) is None


def test_filters_behind_unwrap() -> None:
    query = 'sum_over_time({{app="a"}} | logfmt | unwrap v | {} [1m])'
    assert sample_of(query.format("v>3"), "v=4", STREAM) == (4.0, STREAM)
    assert sample_of(query.format("v>3"), "v=2", STREAM) is None
    assert sample_of(query.format('__error__=""'), "v=x", STREAM) is None


def test_the_unwrapped_label_is_no_label_of_the_series() -> None:
    query = 'max_over_time({app="a"} | logfmt | unwrap v [1m])'
    assert sample_of(query, "v=1 w=2", STREAM) == (1.0, {**STREAM, "w": "2"})
    assert sample_of(f"{query} without (w)", "v=1 w=2", STREAM) == (1.0, STREAM)
    assert sample_of(f"{query} by (v)", "v=1 w=2", STREAM) == (1.0, {"v": "1"})


ALL = {**STREAM, "path": "/x", "status": "200", "zone_extracted": "p", "took": "1.5s", "size": "1KiB", "n": "7"}


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ('count_over_time({app="a"} | json [1m])', ALL),
        ('sum(count_over_time({app="a"} | json [1m]))', {}),
        ('sum by (path, app) (count_over_time({app="a"} | json [1m]))', {"path": "/x", "app": "a"}),
        ('sum by (none) (count_over_time({app="a"} | json [1m]))', {}),
        ('sum by (zone_extracted) (count_over_time({app="a"} | json [1m]))', {"zone_extracted": "p"}),
        ('sum without (path) (count_over_time({app="a"} | json [1m]))', {k: v for k, v in ALL.items() if k != "path"}),
        ('sum without () (count_over_time({app="a"} | json [1m]))', ALL),
        ('max by (path) (count_over_time({app="a"} | json [1m]))', ALL),  # only a sum is pushed down
        ('absent_over_time({app="a"} | json [1m])', {}),
        ('count_over_time({app="a"} | json none="nothing" [1m])', {**STREAM, "none": ""}),
        ('sum by (app) (count_over_time({app="a"} | drop app [1m]))', {}),
    ],
)
def test_labels_of_series(query: str, labels: dict[str, str]) -> None:
    assert sample_of(query, LINE, STREAM) == (1.0, labels)


def test_metadata_is_part_of_the_series() -> None:
    found = sample_of('count_over_time({app="a"}[1m])', "x", STREAM, {"m": "1", "app": "other"})
    assert found == (1.0, {**STREAM, "m": "1", "app_extracted": "other"})
    assert sample_of('sum by (m) (rate({app="a"}[1m]))', "x", STREAM, {"m": "1"}) == (1.0, {"m": "1"})


# ---- what parsers extract


@pytest.mark.parametrize(
    "query",
    [
        'sum(count_over_time({app="a"} | json [1m]))',
        'sum by (path) (count_over_time({app="a"} | json [1m]))',
        'sum(count_over_time({app="a"} | json | path="/x" [1m]))',
        'sum by (path) (count_over_time({app="a"} | json | status=200 [1m]))',
    ],
)
def test_what_is_not_parsed_raises_no_error(query: str) -> None:
    found = sample_of(query, BROKEN, STREAM)
    assert found is not None
    assert found[0] == 1.0


@pytest.mark.parametrize(
    "query",
    [
        'count_over_time({app="a"} | json [1m])',
        'sum by (path, none) (count_over_time({app="a"} | json [1m]))',
        'sum without (path) (count_over_time({app="a"} | json [1m]))',
        'max by (path) (count_over_time({app="a"} | json [1m]))',
    ],
)
def test_a_parsed_fault_fails_the_query(query: str) -> None:
    with pytest.raises(UserError, match="pipeline error: 'JSONParserErr' for series"):
        sample_of(query, BROKEN, STREAM)


def test_the_words_of_the_failure() -> None:
    with pytest.raises(UserError) as raised:
        sample_of('sum_over_time({app="a"} | logfmt | unwrap v [1m])', 'v=x q="a b"', {"app": "a"})
    assert raised.value.message == (
        "pipeline error: 'SampleExtractionErr' for series: '{__error__=\"SampleExtractionErr\", "
        '__error_details__="strconv.ParseFloat: parsing \\"x\\": invalid syntax", app="a", q="a b", v="x"}\'.\n'
        'Use a label filter to intentionally skip this error. (e.g | __error__!="SampleExtractionErr").\n'
        'To skip all potential errors you can match empty errors.(e.g __error__="")\n'
        'The label filter can also be specified after unwrap. (e.g | unwrap latency | __error__="" )\n'
    )


def test_a_query_that_names_the_error_does_not_fail() -> None:
    query = 'sum by (__error__) (count_over_time({app="a"} | json [1m]))'
    found = sample_of(query, "text", {"app": "a"})
    assert found is not None
    assert found[1]["__error__"] == "JSONParserErr"
    assert found[1]["__preserve_error__"] == "true"
    kept = sample_of('sum(count_over_time({app="a"} | json | __error__!="other" [1m]))', "text", {"app": "a"})
    assert kept is not None
    assert sample_of('count_over_time({app="a"} | json | __error__="" [1m])', "text", {"app": "a"}) is None


def test_an_error_of_a_label_filter_fails_the_query() -> None:
    with pytest.raises(UserError, match="LabelFilterErr"):
        sample_of('sum(count_over_time({app="a"} | logfmt | v > 1 [1m]))', "v=x", STREAM)


def hints(query: str, pushed: Grouping | None) -> ParserHints:
    parsed = parse_logql(query)
    assert isinstance(parsed, RangeAggregation)
    return hints_for(parsed, pushed)


def test_hints() -> None:
    count = 'count_over_time({app="a"} | json [1m])'
    filtered = 'count_over_time({app="a"} | json | x="1" or y>2 [1m])'
    assert hints(count, None) == NO_HINTS
    assert hints(count, Grouping(())) == ParserHints(no_labels=True)
    assert hints(count, Grouping(("a_extracted",))) == ParserHints(frozenset({"a_extracted", "a"}))
    assert hints(count, Grouping(("a",), without=True)) == NO_HINTS
    assert hints(count, Grouping((), without=True)) == NO_HINTS
    assert hints(filtered, Grouping(())) == ParserHints(frozenset({"x", "y"}))
    assert hints(filtered, Grouping(("g",))) == ParserHints(frozenset({"x", "y", "g"}))
    assert hints('absent_over_time({app="a"} | json [1m])', None) == ParserHints(no_labels=True)
    formatted = 'count_over_time({app="a"} | json | line_format "{{.a}}" | label_format b=c, d="{{.e}}" [1m])'
    assert hints(formatted, Grouping(())) == ParserHints(frozenset({"a", "c", "e"}))
    unwrapped = 'sum_over_time({app="a"} | json | unwrap v | w="1" [1m])'
    assert hints(unwrapped, Grouping(("g",))) == ParserHints(frozenset({"v", "w", "g"}))
    # Without labels the unwrapped one is required all the same.
    assert hints(unwrapped, Grouping(())) == ParserHints(frozenset({"v", "w"}))
    assert hints_of(LabelNeeds(("__error__",), has_labels=False)).preserves_errors


def test_a_parser_stops_once_all_is_found() -> None:
    query = 'sum by (a) (count_over_time({app="a"} | logfmt --strict [1m]))'
    assert sample_of(query, 'a=1 b="no end', STREAM) == (1.0, {"a": "1"})
    with pytest.raises(UserError, match="LogfmtParserErr"):
        sample_of(query, 'b="no end', STREAM)


def test_a_second_parser_is_left_out_once_all_is_found() -> None:
    query = 'sum by (a) (count_over_time({app="a"} | logfmt | json [1m]))'
    assert sample_of(query, "a=1 text", STREAM) == (1.0, {"a": "1"})
