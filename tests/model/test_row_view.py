"""The labels of log records and spans: what the index knows of a segment's keys is all or nothing, what a name stands
for in SQL, and what matchers become. tests/query/test_row_labels.py compares them with rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.condition import Condition, Contains, Equals, Present
from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.row_view import LOG_VIEW, MAX_SPELLINGS, SPAN_VIEW, known_keys, literal
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS, Attribute
from lakerunner.model.source import SourceObject
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.make_segments import Raw, make_segments
from query.sample_lake import OWN, START

Keys = dict[str, list[str]]
A_KEY = st.text(max_size=4) | st.sampled_from(["k", "K", "a.b", "long" * 70, "x" * 256, "é" * 300])


def segment_of(keys: Keys, services: list[str], *, nulls: bool = False) -> Segment:
    """A segment that the pipeline makes: one record for each service, with these keys by scope."""
    found = ExportLogsServiceRequest()
    for service in services:
        logs = found.resource_logs.add()
        logs.resource.attributes.add(key="service.name").value.string_value = service
        scope = logs.scope_logs.add()
        record = scope.log_records.add(time_unix_nano=START)
        owners = {"resource_attributes": logs.resource, "scope_attributes": scope.scope, "attributes": record}
        for name, owner in owners.items():
            for key in keys.get(name, ()):
                value = owner.attributes.add(key=key).value
                if not nulls:
                    value.string_value = "v"
    data = found.SerializeToString()
    raw = Raw(SourceObject("bucket", "logs.binpb", "etag", len(data), START), memoryview(data))
    (segment,) = make_segments(LOGS, OWN, "edge", [raw], lambda _path, _file: None).segments
    return segment


def attributes_of(keys: Keys) -> set[Attribute]:
    found = {Attribute(scope, key) for scope, names in keys.items() for key in names}
    return found | {Attribute("resource_attributes", "service.name")}


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(["attributes", "resource_attributes", "scope_attributes"]), st.lists(A_KEY)),
    st.lists(st.sampled_from(["cart", "pay"]), min_size=1),
    st.booleans(),
)
def test_the_index_knows_all_keys_or_says_that_it_does_not(keys: Keys, services: list[str], nulls: bool) -> None:
    known = known_keys(segment_of(keys, services, nulls=nulls))
    assert known is None or known == attributes_of(keys)


def test_the_index_knows_what_has_a_column_and_the_first_hundred_labels() -> None:
    keys = {"attributes": ["a.b", "c"], "resource_attributes": ["pod"], "scope_attributes": ["lib"]}
    assert known_keys(segment_of(keys, ["cart", "pay"])) == attributes_of(keys)
    many = {"attributes": [f"k{n}" for n in range(256)]}
    assert known_keys(segment_of(many, ["cart"])) == attributes_of(many)
    nulls = {"attributes": [f"k{n:03}" for n in range(100)]}
    assert known_keys(segment_of(nulls, ["cart"], nulls=True)) == attributes_of(nulls)


def test_one_key_past_what_the_index_lists_is_noticed() -> None:
    nulls = {"attributes": [f"k{n:03}" for n in range(101)]}
    assert known_keys(segment_of(nulls, ["cart"], nulls=True)) is None
    past = {"attributes": [f"k{n:03}" for n in range(257)]}
    assert known_keys(segment_of(past, ["cart"])) is None
    beyond = {"attributes": [f"k{n:04}" for n in range(2_100)]}
    assert known_keys(segment_of(beyond, ["cart"])) is None


def test_of_a_segment_whose_keys_were_not_counted_nothing_is_known() -> None:
    segment = segment_of({"attributes": ["a"]}, ["cart"])
    assert known_keys(segment) is not None
    assert known_keys(replace(segment, statistics={"labels": ["a"], "label_count": 1})) is None


TEXTS = {"": "''", "a": "'a'", "it's": "'it''s'", "a\\'": "'a\\'''", "\0": "('' || chr(0) || '')", "é": "'é'"}


@pytest.mark.parametrize("text", TEXTS)
def test_literals(text: str) -> None:
    assert literal(text) == TEXTS[text]


def test_what_a_label_stands_for() -> None:
    keys = [Attribute("scope_attributes", "a.b"), Attribute("attributes", "a_b"), Attribute("attributes", "other")]
    assert sql_of("a-b", keys) == "coalesce(attributes['a_b'], scope_attrs['a.b'])"
    assert sql_of("other", keys) == "attributes['other']"
    assert LOG_VIEW.find("none", keys) is None
    assert sql_of("level", [Attribute("attributes", "level")]) == "severity"
    assert sql_of("log.level", []) == "severity"
    assert sql_of("log.level", [Attribute("attributes", "log.level")]) == "attributes['log.level']"
    assert sorted(LOG_VIEW.labels([*keys, Attribute("attributes", "")])) == sorted({*LOG_VIEW.fixed, "a_b", "other"})


def sql_of(name: str, keys: Collection[Attribute]) -> str:
    label = LOG_VIEW.find(name, keys)
    assert label
    return label.sql


def test_numbers_are_shown_as_words_or_digits() -> None:
    assert SPAN_VIEW.fixed["duration"].sql == "CAST(duration // 1000000 AS VARCHAR)"
    assert SPAN_VIEW.fixed["status_code"].sql == (
        "CASE status_code WHEN 0 THEN 'Unset' WHEN 1 THEN 'Ok' WHEN 2 THEN 'Error' "
        "ELSE CAST(status_code AS VARCHAR) END"
    )


def test_a_label_of_too_many_spellings_has_no_sql() -> None:
    keys = [Attribute("attributes", f"a{chr(0x400 + n)}") for n in range(MAX_SPELLINGS + 1)]
    assert sql_of("a_", keys[1:]).startswith("coalesce(attributes['aЁ'], ")
    with pytest.raises(TooLarge, match=r"^label 'a_' stands for 101 attributes, the limit is 100: use SQL$"):
        sql_of("a_", keys)


A, B = Attribute("resource_attributes", "a"), Attribute("attributes", "a")
ALWAYS = "timestamp >= make_timestamp_ns(1) AND timestamp < make_timestamp_ns(2)"
# By selector: the SQL of the rows that meet it, and what prunes.
MATCHED: dict[Matcher, tuple[str, tuple[Condition, ...]]] = {
    Matcher("message", "=", "b'"): ("message = 'b'''", (Equals("message", ("b'",)),)),
    Matcher("message", "=", ""): ("coalesce(message, '') = ''", ()),
    Matcher("message", "!=", ""): ("message <> ''", ()),
    Matcher("message", "!=", "b"): ("coalesce(message, '') <> 'b'", ()),
    Matcher("message", "=~", "b+"): ("regexp_full_match(message, 'b+', 's')", ()),
    Matcher("message", "=~", ".*time out.*"): (
        "regexp_full_match(message, '.*time out.*', 's')",
        (Contains("message", "time out"),),
    ),
    Matcher("message", "=~", "b*"): ("regexp_full_match(coalesce(message, ''), 'b*', 's')", ()),
    Matcher("message", "!~", "b*"): ("NOT regexp_full_match(message, 'b*', 's')", ()),
    Matcher("log.level", "=", "error"): ("severity = 'ERROR'", (Equals("severity", ("ERROR",)),)),
    Matcher("level", "=~", "error"): (
        "regexp_full_match(severity, 'error', 's')",
        (Contains("severity", "error"),),
    ),
    Matcher("", "=", "x"): ("false", ()),
    Matcher("trace_id", "=", "AB"): ("trace_id = 'ab'", (Equals("trace_id", ("ab",)),)),
    Matcher("trace_id", "=", "x"): ("trace_id = 'x'", ()),
    Matcher("fingerprint", "=", "7"): ("CAST(fingerprint AS VARCHAR) = '7'", ()),
    Matcher("one", "=", "b"): ("attributes['one'] = 'b'", (Equals(Attribute("attributes", "one"), ("b",)),)),
    Matcher("one", "=~", "(?i)b+ at .*"): (
        "regexp_full_match(attributes['one'], '(?i)b+ at .*', 's')",
        (Contains(Attribute("attributes", "one"), " at ", True),),
    ),
    Matcher("a", "=", "b"): ("coalesce(resource_attrs['a'], attributes['a']) = 'b'", (Present((A, B)),)),
    Matcher("a", "=~", ".+"): (
        "regexp_full_match(coalesce(resource_attrs['a'], attributes['a']), '.+', 's')",
        (Present((A, B)),),
    ),
    Matcher("none", "=", ""): ("true", ()),
    Matcher("none", "!~", ".*"): ("false", ()),
}


@pytest.mark.parametrize("matcher", MATCHED, ids=lambda one: f"{one.name}{one.op}{one.value}")
def test_matchers_are_sql_and_conditions(matcher: Matcher) -> None:
    keys = {A, B, Attribute("attributes", "one"), Attribute("attributes", "")}
    sql, conditions = MATCHED[matcher]
    assert LOG_VIEW.where(TimeRange(1, 2), (matcher,), keys) == f"{ALWAYS} AND {sql}"
    assert LOG_VIEW.conditions((matcher,), keys) == conditions


def test_a_wrong_pattern_is_refused_in_the_words_of_promql() -> None:
    with pytest.raises(UserError, match=r"^error parsing regexp: missing closing \): `\(`$"):
        LOG_VIEW.where(TimeRange(1, 2), (Matcher("message", "=~", "("),), ())


def test_resolved_matchers_have_the_names_and_cases_of_labels() -> None:
    keys = {A, Attribute("attributes", "log.level")}
    given_ = (Matcher("log.level", "=", "x"), Matcher("severity", "!=", "x"), Matcher("no.such", "=~", "x"))
    resolved = (Matcher("log_level", "=", "x"), Matcher("level", "!=", "X"), Matcher("no_such", "=~", "x"))
    assert LOG_VIEW.resolve(given_, keys) == resolved
