"""Domain values refuse nonsense at birth and are the same everywhere."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import Absent, Corrupt, LakerunnerError, Position, Unavailable, UserError
from lakerunner.model.labels import labels_of, labels_text, value_of, without_name
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization, checked_name
from lakerunner.model.segment import Column, Segment, digest64, field_fingerprints, segment_id
from lakerunner.model.signal import LOGS, METRICS, SIGNALS, TRACES, SignalSpec, signal_named
from lakerunner.model.source import SIGNAL_NAMES, SourceObject
from lakerunner.model.time import HOUR_NS, TimeRange

ORG = DEFAULT_ORGANIZATION.id


def segment(start_ns: int = 1766577969305000000, rows: int = 1) -> Segment:
    return Segment(
        id=segment_id("logs", 1, ["a"]),
        organization=ORG,
        collector="edge",
        signal="logs",
        time=TimeRange(start_ns, start_ns + 1),
        rows=rows,
        bytes=10,
        sort_version=1,
        columns=(Column("timestamp", ""),),
    )


def test_a_segment_path_states_whose_and_when() -> None:
    made = segment()
    assert made.path == (f"db/12340000-0000-4000-8000-000000000000/edge/20251224/logs/12/tbl_{made.id}.parquet")


def test_a_segment_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="must have rows"):
        segment(rows=0)


def test_segment_ids_derive_from_the_work_and_nothing_else() -> None:
    assert segment_id("logs", 1, ["a", "b"]) == segment_id("logs", 1, ["a", "b"])
    assert segment_id("logs", 1, ["a", "b"]) == UUID("7851267f-409d-5d63-b31a-59f3c553e9dd")


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_segment_ids_do_not_collide_by_joining(one: list[str], other: list[str]) -> None:
    assert (segment_id(one) == segment_id(other)) == (one == other)
    assert (digest64(*one) == digest64(*other)) == (one == other)


def test_field_fingerprints_hold_presence_then_values() -> None:
    assert field_fingerprints("service_name", ["cart"]) == (
        digest64("service_name"),
        digest64("service_name", "cart"),
    )


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-(2**63) - 1, 0), (0, 2**63)])
def test_an_empty_or_impossible_time_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a time range"):
        TimeRange(start, end)


def test_time_ranges_are_half_open() -> None:
    hour = TimeRange(0, HOUR_NS)
    assert hour.overlaps(TimeRange(HOUR_NS - 1, HOUR_NS))
    assert not hour.overlaps(TimeRange(HOUR_NS, HOUR_NS + 1))
    assert not hour.overlaps(TimeRange(-1, 0))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a" * 129, "ä"])
def test_names_that_cannot_stand_in_a_path_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="is invalid"):
        checked_name("collector", name)
    with pytest.raises(UserError):
        Organization(ORG, name)


def test_a_source_needs_its_identity() -> None:
    with pytest.raises(ValueError, match="etag"):
        SourceObject("b", "k", "", 1, 1)
    assert SourceObject("b", "k", "e", 1, 1).identity == ("b", "k", "e")


def test_labels_are_sorted_and_unique() -> None:
    assert labels_of({"b": "2", "a": "1", "c": ""}) == (("a", "1"), ("b", "2"))
    assert labels_of([("a", "1"), ("a", "2")]) == (("a", "2"),)
    labels = labels_of({"__name__": "up", "__unit__": "s", "job": "a"})
    assert (value_of(labels, "job"), value_of(labels, "pod")) == ("a", "")
    assert without_name(labels) == (("job", "a"),)
    for own in (
        {"Zone": "z", "__name__": "m", "job": "a"},
        {"__name__": "m", "__type__": "t", "job": "a"},
        {"job": "a"},
    ):
        kept = {name: value for name, value in own.items() if not name.startswith("__")}
        assert without_name(labels_of(own)) == labels_of(kept)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({}, "{}"),
        ({"__name__": "up"}, "up"),
        ({"__name__": "up", "job": 'a"b'}, 'up{job="a\\"b"}'),
        ({"__name__": "http.server", "k8s.pod": "x"}, '{"http.server", "k8s.pod"="x"}'),
    ],
)
def test_labels_are_written_as_promql_writes_them(labels: dict[str, str], text: str) -> None:
    assert labels_text(labels_of(labels)) == text


def test_signals_are_rows_of_a_table() -> None:
    assert list(SIGNALS) == ["logs", "metrics", "traces"] == list(SIGNAL_NAMES)
    assert [spec.table for spec in SIGNALS.values()] == ["logs", "metrics", "spans"]
    assert signal_named("traces") is TRACES
    assert LOGS.sort_by == ("service_name", "timestamp")
    assert METRICS.sort_by == ("metric_name", "series", "timestamp")
    with pytest.raises(UserError, match="one of logs, metrics, traces"):
        signal_named("profiles")
    with pytest.raises(ValueError, match="nope is not in its schema"):
        SignalSpec("x", "x", LOGS.schema, ("nope",), 1, 100, ())


def test_the_error_tree_says_who_mends_it() -> None:
    assert str(UserError("unknown column x", Position(2, 7))) == "unknown column x (line 2, column 7)"
    assert [error.http_status for error in (UserError, Unavailable, Corrupt, Absent)] == [400, 503, 422, 422]
    assert issubclass(Absent, Corrupt)
    assert all(issubclass(error, LakerunnerError) for error in (UserError, Unavailable, Corrupt))
