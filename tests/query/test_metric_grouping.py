"""Label sets that are equal have one number, whatever their hashes say; matchers see each different value once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.labels import NAME, Labels, labels_of
from lakerunner.model.labels.matcher import LabelTest, Matcher, Operator
from lakerunner.model.labels.metric_view import Form, StoredSeries
from lakerunner.query.metrics.layout import alike
from lakerunner.query.metrics.series_registry import FacetSelection, FacetTable

A, B, C = (labels_of({NAME: "m", "a": value}) for value in "abc")


@pytest.mark.parametrize("hashes", [[7, 8, 7, 9, 8], [7, 7, 7, 7, 7], [7, 7, 7, 9, 7]])
def test_equal_labels_have_one_number_and_others_another_also_of_one_hash(hashes: list[int]) -> None:
    given: list[Labels] = [A, B, A, C, B]
    first, of = alike(given, np.array(hashes, np.int64))
    assert sorted(first.tolist()) == [0, 1, 3]
    assert [given[first[n]] for n in of.tolist()] == given


def test_no_labels_at_all() -> None:
    first, of = alike([], np.zeros(0, np.int64))
    assert (first.tolist(), of.tolist()) == ([], [])


@pytest.mark.parametrize(
    ("op", "value", "meant"),
    [
        ("=", "a", [True, False, False]),
        ("!=", "a", [False, True, True]),
        ("=~", "a|", [True, True, False]),
        ("!~", "a|", [False, False, True]),
        ("=", "\ud800", [False, False, False]),
        ("!=", "\ud800", [True, True, True]),
    ],
)
def test_a_matcher_over_texts(op: Operator, value: str, meant: list[bool]) -> None:
    """Half a character, which JSON can state, is no label's value."""
    test = LabelTest(Matcher("x", op, value))
    assert test.each(pa.array(["a", "", "ä"])).tolist() == meant
    assert [test(one) for one in ("a", "", "ä")] == meant


def series(digest: int, type_: str, **labels: str) -> StoredSeries:
    told = tuple(sorted((name, name, value) for name, value in labels.items()))
    return StoredSeries(digest, "m", "m", "m", type_, False, False, told, ())


def test_series_that_become_known_later_are_matched_too_and_le_does_not_count_for_buckets() -> None:
    known = [series(1, "histogram", job="a"), series(2, "gauge", job="a"), series(3, "gauge", job="b", le="1")]
    seen = FacetTable(Form.ESCAPED)
    one = FacetSelection((Matcher("job", "=", "a"), Matcher("le", "=", "1")))
    other = FacetSelection((Matcher(NAME, "=", "m"), Matcher("le", "=", "1")))
    seen.extend(known[:2])
    one.extend(seen)
    names = [dict(seen.facets[n].labels)[NAME] for n in one.found.tolist()]
    assert names == ["m_bucket"]
    seen.extend(known)
    one.extend(seen)
    other.extend(seen)
    assert [dict(seen.facets[n].labels)[NAME] for n in one.found.tolist()] == ["m_bucket"]
    assert [(seen.series[n], dict(seen.facets[n].labels)["job"]) for n in other.found.tolist()] == [(2, "b")]
