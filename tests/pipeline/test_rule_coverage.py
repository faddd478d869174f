"""Rules at ingest and in merges: parts are exactly what the rules make of the rows of the segments that they cover."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.model.time import HOUR_NS
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from suites.covered_lines import BOOK, BY_SERVICE, BYTES, Files, Line, expected_parts, random_lines, request
from suites.ingested import ORGANIZATION, START
from suites.rule_values import Added


def expected(lines: list[Line]) -> Added:
    return expected_parts(lines, *BOOK.versions)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_a_box_are_what_its_rows_make(files: Files, seed: int) -> None:
    chance = random.Random(seed)
    some, others = random_lines(chance), random_lines(chance)
    box = files.put("logs_1", request(some)), files.put("logs_2", request(others))
    result = files.ingest(*box)
    assert {one.rule_set for one in result.segments} == {(3, 5)}
    assert {(one.signal, one.collector) for one in result.parts} == {("metrics", "_rule3.1"), ("metrics", "_rule5.1")}
    assert files.parts(*result.parts) == expected(some + others)
    matched: Counter[int] = Counter()
    for id_, count in result.rule_counts:
        matched[id_] += count.matched
    assert matched == {
        one.id: sum(n for (collector, *_), (n, _) in expected(some + others).items() if collector == one.collector)
        for one in BOOK.versions
    }
    again = files.ingest(*reversed(box))
    assert again == replace(result, rule_counts=again.rule_counts)


def test_without_rules_nothing_is_covered_and_segments_are_the_same(files: Files) -> None:
    source = files.put("logs_1", request(random_lines(random.Random(1))))
    with_rules, without = files.ingest(source), files.ingest(source, book=NO_RULES)
    assert without.segments == with_rules.segments
    assert {one.rule_set for one in without.segments} == {()}
    assert (without.parts, without.stops, without.rule_counts) == ((), (), ())


def test_a_segment_without_matches_is_covered_and_has_no_parts(files: Files) -> None:
    result = files.ingest(files.put("logs_1", request([("other", 1, "a")])))
    assert [one.rule_set for one in result.segments] == [(3, 5)]
    assert result.parts == ()


def test_a_version_over_its_limit_covers_nothing_and_says_so(files: Files) -> None:
    tight = replace(BY_SERVICE, rule=replace(BY_SERVICE.rule, max_series=1))
    lines: list[Line] = [("cart", 1, "a"), ("shop", 2, "paid 3")]
    result = files.ingest(files.put("logs_1", request(lines)), book=RuleBook((tight, BYTES)))
    assert [one.rule_set for one in result.segments] == [(5,)]
    assert {one.collector for one in result.parts} == {BYTES.collector}
    ((id_, reason),) = result.stops
    assert id_ == 3
    assert reason.startswith("more than 1 series in one segment")


def test_the_last_bucket_of_an_hour_is_in_the_next_hour(files: Files) -> None:
    result = files.ingest(files.put("logs_1", request([("cart", 3590, "a"), ("cart", 3599, "b")])))
    assert len(result.segments) == 1
    hours = sorted(one.time.start_ns // HOUR_NS - START // HOUR_NS for one in result.parts)
    assert hours == [0, 1]
    assert files.parts(*result.parts) == expected([("cart", 3590, "a"), ("cart", 3599, "b")])


@pytest.mark.parametrize("memory", [64 << 20, 1])
@pytest.mark.parametrize("seed", range(3))
def test_a_merge_takes_back_the_parts_of_rows_that_came_twice(files: Files, seed: int, memory: int) -> None:
    """Some requests come twice or three times. With little memory, rows of one time take the way of long runs."""
    chance = random.Random(seed)
    contents = [random_lines(chance, 1000, last=1) for _ in range(3)]
    sent = [*contents, contents[0], contents[0], contents[2]]
    results = [files.ingest(files.put(f"logs_{number}", request(lines))) for number, lines in enumerate(sent)]
    segments = [replace(one, ingested=place) for place, result in enumerate(results, 1) for one in result.segments]
    work = CompactWork(ORGANIZATION, "c", "logs", 0, 1, tuple(segments), BOOK)
    outcome = compact_work(work, files.address, CompactLimits(memory, max_bytes=1 << 30))
    assert outcome.error == ""
    assert [(one.rule_set, one.level) for one in outcome.segments] == [((3, 5), 1)]
    assert {one.collector for one in outcome.parts} == {BY_SERVICE.collector, BYTES.collector}
    live = [part for result in results for part in result.parts] + list(outcome.parts)
    assert files.parts(*live) == expected([line for lines in contents for line in lines])
    again = compact_work(work, files.address, CompactLimits(memory, max_bytes=1 << 30))
    assert again == outcome


def test_a_merge_without_repeated_rows_or_without_rules_takes_nothing_back(files: Files) -> None:
    chance = random.Random(5)
    results = [files.ingest(files.put(f"logs_{number}", request(random_lines(chance)))) for number in range(2)]
    segments = tuple(replace(result.segments[0], ingested=place) for place, result in enumerate(results, 1))
    limits = CompactLimits(64 << 20, max_bytes=1 << 30)
    work = CompactWork(ORGANIZATION, "c", "logs", 0, 1, segments, BOOK)
    assert compact_work(work, files.address, limits).parts == ()
    # The versions have ended: the merged segment is covered by none.
    bare = replace(work, segments=tuple(replace(one, rule_set=()) for one in segments), book=NO_RULES)
    outcome = compact_work(bare, files.address, limits)
    assert ([one.rule_set for one in outcome.segments], outcome.parts) == ([()], ())


def test_segments_of_different_coverage_are_no_merge(files: Files) -> None:
    sources = [files.put(f"logs_{number}", request(random_lines(random.Random(number)))) for number in range(2)]
    one, other = files.ingest(sources[0]).segments[0], files.ingest(sources[1], book=NO_RULES).segments[0]
    segments = replace(one, ingested=1), replace(other, ingested=2)
    with pytest.raises(ValueError, match="one rule set"):
        CompactWork(ORGANIZATION, "c", "logs", 0, 1, segments, BOOK)
    uncovered = tuple(replace(segment, rule_set=()) for segment in segments)
    with pytest.raises(ValueError, match="do not cover"):
        CompactWork(ORGANIZATION, "c", "logs", 0, 1, uncovered, BOOK)
