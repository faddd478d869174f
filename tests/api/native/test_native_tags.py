"""Tags: what the index knows of a segment's keys is all or nothing, and what a name stands for in SQL."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.api.native.ask import Ask
from lakerunner.api.native.lookup import Lookup, Wanted
from lakerunner.api.native.tags import LOGS_TAGS, known_keys, literal, matcher_sql, tag_sql
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.segments import Raw, make_segments
from lakerunner.plan.scan import Attribute
from lakerunner.series.expression import Matcher
from query.sample_lake import FULL_SHRED, HOUR, NOW, OWN, START, Lake, Record, plain_map, random_records

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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def test_what_a_tag_stands_for() -> None:
    keys = [Attribute("scope_attributes", "a.b"), Attribute("attributes", "a_b"), Attribute("attributes", "other")]
    assert tag_sql(LOGS_TAGS, "a-b", keys) == "coalesce(attributes['a_b'], scope_attrs['a.b'])"
    assert tag_sql(LOGS_TAGS, "other", keys) == "attributes['other']"
    assert tag_sql(LOGS_TAGS, "none", keys) is None
    assert tag_sql(LOGS_TAGS, "level", [Attribute("attributes", "level")]) == "severity"
    assert tag_sql(LOGS_TAGS, "log.level", []) == "severity"
    assert tag_sql(LOGS_TAGS, "log.level", [Attribute("attributes", "log.level")]) == "attributes['log.level']"


def test_matchers_are_conditions() -> None:
    assert matcher_sql(Matcher("a", "=", "b'"), "x") == "x = 'b'''"
    assert matcher_sql(Matcher("a", "=", ""), "x") == "coalesce(x, '') = ''"
    assert matcher_sql(Matcher("a", "!=", "b"), "x") == "coalesce(x, '') <> 'b'"
    assert matcher_sql(Matcher("a", "=~", "b"), "x") == "regexp_full_match(coalesce(x, ''), 'b')"
    assert matcher_sql(Matcher("a", "!~", "b"), None) == "NOT regexp_full_match('', 'b')"


@pytest.fixture(scope="module")
def random_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two segments that keep their attributes in columns, and one that keeps them in maps."""
    lake = Lake(tmp_path_factory.mktemp("tags"))
    for seed, shred in enumerate((FULL_SHRED, None, FULL_SHRED)):
        lake.add(random_records(60, seed), shred=shred)
    return lake


def value_in(record: Record, name: str) -> str | None:
    """Worked out from the records, apart from the SQL that does it."""
    for pairs in (record.resource, record.attributes, record.scope):
        for key, value in plain_map(pairs).items():
            if re.sub(r"[^a-zA-Z0-9_]", "_", key) == name and value is not None:
                return value
    return None


def test_tags_and_values_are_those_of_the_records(random_lake: Lake) -> None:
    lookup = Lookup(Ask(random_lake.engine(), OWN, NOW), random_lake)
    wanted = Wanted(LOGS_TAGS, TimeRange(START, START + HOUR // 2))
    inside = [record for record, _ in random_lake.records if record.timestamp < START + HOUR // 2]
    names = {
        re.sub(r"[^a-zA-Z0-9_]", "_", key)
        for record in inside
        for pairs in (record.resource, record.attributes, record.scope)
        for key, _ in pairs
    }
    assert lookup.tags(wanted).items == sorted(names | {*LOGS_TAGS.fixed})
    for name in ("http_status_code", "http_Method", "ratio", "it_s", "pod"):
        told = [value for part in lookup.values(wanted, name) for value in part]
        there = {value for record in inside if (value := value_in(record, name))}
        assert told == sorted(there, key=str.encode), name


@pytest.mark.parametrize("operator", ["=", "!=", "=~", "!~"])
@pytest.mark.parametrize("value", ["200", "", "2.*", "teapot"])
def test_matchers_choose_the_records_that_meet_them(random_lake: Lake, operator: str, value: str) -> None:
    def meets(record: Record) -> bool:
        found = value_in(record, "http_status_code") or ""
        equal = found == value if operator in ("=", "!=") else re.fullmatch(value, found) is not None
        return equal == operator.startswith("=")

    lookup = Lookup(Ask(random_lake.engine(), OWN, NOW), random_lake)
    matchers = (Matcher("http.status_code", operator, value), Matcher("pod", "!=", "1"))
    wanted = Wanted(LOGS_TAGS, TimeRange(START, START + HOUR), matchers)
    told = [value for part in lookup.values(wanted, "trace_id") for value in part]
    chosen = [record for record, _ in random_lake.records if meets(record) and value_in(record, "pod") != "1"]
    assert told == sorted(record.trace_id.hex() for record in chosen if record.trace_id)
