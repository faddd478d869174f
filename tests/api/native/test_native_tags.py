"""Tags of the native API: which there are, their values, and which rows a selector chooses."""

from __future__ import annotations

import re

import pytest

from lakerunner.api.native.lookup import Lookup, RequestQueries, RowSelection
from lakerunner.model.labels.matcher import Matcher, Operator
from lakerunner.model.labels.row_view import LOG_VIEW
from lakerunner.model.time import TimeRange
from query.sample_lake import FULL_SHRED, HOUR, NOW, OWN, START, Lake, Record, plain_map, random_records


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
    lookup = Lookup(RequestQueries(random_lake.engine(), OWN, NOW), random_lake)
    wanted = RowSelection(LOG_VIEW, TimeRange(START, START + HOUR // 2))
    inside = [record for record, _ in random_lake.records if record.timestamp < START + HOUR // 2]
    names = {
        re.sub(r"[^a-zA-Z0-9_]", "_", key)
        for record in inside
        for pairs in (record.resource, record.attributes, record.scope)
        for key, _ in pairs
    }
    assert lookup.tags(wanted)[0] == sorted(names | {*LOG_VIEW.fixed})
    for name in ("http_status_code", "http_Method", "ratio", "it_s", "pod"):
        told = [value for part in lookup.values(wanted, name) for value in part]
        there = {value for record in inside if (value := value_in(record, name))}
        assert told == sorted(there, key=str.encode), name


@pytest.mark.parametrize("operator", ["=", "!=", "=~", "!~"])
@pytest.mark.parametrize("value", ["200", "", "2.*", "teapot"])
def test_matchers_choose_the_records_that_meet_them(random_lake: Lake, operator: Operator, value: str) -> None:
    def meets(record: Record) -> bool:
        found = value_in(record, "http_status_code") or ""
        equal = found == value if operator in ("=", "!=") else re.fullmatch(value, found) is not None
        return equal == operator.startswith("=")

    lookup = Lookup(RequestQueries(random_lake.engine(), OWN, NOW), random_lake)
    matchers = (Matcher("http.status_code", operator, value), Matcher("pod", "!=", "1"))
    wanted = RowSelection(LOG_VIEW, TimeRange(START, START + HOUR), matchers)
    told = [value for part in lookup.values(wanted, "trace_id") for value in part]
    chosen = [record for record, _ in random_lake.records if meets(record) and value_in(record, "pod") != "1"]
    assert told == sorted(record.trace_id.hex() for record in chosen if record.trace_id)
