from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.logql.selector_index import SelectorIndex
from lakerunner.model.labels.matcher import Matcher, SelectorTest

NAMES, VALUES = ("app", "env", "pod"), ("a", "b", "c", "")
PATTERNS = ("a|b", "a.*", ".+", ".*", "", "b", "(?i)A", "a|", "[ab]", r"a\|b")
MATCHERS = st.one_of(
    st.builds(Matcher, st.sampled_from(NAMES), st.sampled_from(("=", "!=")), st.sampled_from(VALUES)),
    st.builds(Matcher, st.sampled_from(NAMES), st.sampled_from(("=~", "!~")), st.sampled_from(PATTERNS)),
)
SELECTORS = st.lists(st.lists(MATCHERS, max_size=3).map(tuple), max_size=20)
LABELS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((*VALUES[:-1], "A", "a|b")))


@given(selectors=SELECTORS, streams=st.lists(LABELS, max_size=5))
def test_the_index_finds_the_selectors_that_meet(
    selectors: list[tuple[Matcher, ...]], streams: list[dict[str, str]]
) -> None:
    index = SelectorIndex(selectors)
    for labels in streams:
        met = [number for number, one in enumerate(selectors) if SelectorTest(one)(tuple(labels.items()))]
        assert index.met_by(labels) == met
