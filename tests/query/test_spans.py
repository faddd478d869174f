"""Spans are sets of whole numbers, whatever way they are put together."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.segment_cache.spans import Span, fewer, joined, overlaps, size, without

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def members(spans: list[Span]) -> set[int]:
    return {n for start, end in spans for n in range(start, end)}


@given(SPANS)
def test_joined_spans_are_the_same_set_in_order_and_apart(spans: list[Span]) -> None:
    found = joined(spans)
    assert members(found) == members(spans)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert size(found) == len(members(spans))


@given(SPANS, st.integers(0, 10))
def test_a_gap_that_is_small_enough_is_closed_and_no_other(spans: list[Span], gap: int) -> None:
    found = joined(spans, gap)
    assert members(found) >= members(spans)
    assert all(after[0] - before[1] > gap for before, after in pairwise(found))
    assert {edge for span in found for edge in span} <= {edge for span in joined(spans) for edge in span}


@given(SPANS, SPANS)
def test_without_leaves_the_difference(spans: list[Span], taken: list[Span]) -> None:
    found = without(spans, joined(taken))
    assert members(found) == members(spans) - members(taken)
    assert all(start < end for start, end in found)


@given(st.tuples(st.integers(0, 60), st.integers(0, 60)), SPANS)
def test_overlaps_is_a_common_member(span: Span, taken: list[Span]) -> None:
    if span[0] < span[1]:
        assert overlaps(span, joined(taken)) == bool(members([span]) & members(taken))


@given(SPANS, st.integers(1, 5))
def test_fewer_covers_all_with_no_more_than_the_limit(spans: list[Span], most: int) -> None:
    found = fewer(joined(spans), most)
    assert len(found) <= most
    assert members(found) >= members(spans)
    assert (found == joined(spans)) == (len(joined(spans)) <= most)
