"""Segments are left out by their fingerprints, in PostgreSQL, and only those that hold nothing that is wanted."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index.index_values import ACME, segment
from lakerunner.index.commit import Commit
from lakerunner.index.database import load_queries
from lakerunner.index.index import Index
from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, NotNull, Present
from lakerunner.model.organization import Organization
from lakerunner.model.segment import INCOMPLETE, Segment, digest64, field_fingerprints
from lakerunner.model.signal import Attribute
from lakerunner.model.time import ALL_TIME, TimeRange
from lakerunner.plan.scan import fingerprint_groups

# A row is its service, its span name, and the keys of its attributes and of its resource.
Row = tuple[str, str, frozenset[str], frozenset[str]]

SERVICES, NAMES, KEYS = ["cart", "pay", "shop"], ["GET", "POST"], ["k", "K", "http.method"]
_keys = st.frozensets(st.sampled_from(KEYS), max_size=2)
_rows = st.lists(st.tuples(st.sampled_from(SERVICES), st.sampled_from(NAMES), _keys, _keys), min_size=1, max_size=3)
_attributes = st.builds(Attribute, st.sampled_from(["attributes", "resource_attributes"]), st.sampled_from(KEYS))
_leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Equals, st.just("service_name"), st.lists(st.sampled_from(SERVICES), min_size=1, max_size=2).map(tuple)),
    st.builds(Equals, st.just("name"), st.sampled_from(NAMES).map(lambda name: (name,))),
    st.builds(Present, st.lists(_attributes, min_size=1, max_size=2).map(tuple)),
    st.builds(Equals, _attributes, st.just(("any",))),
    st.builds(Contains, _attributes, st.just("any")),
    st.builds(Contains, st.just("status_message"), st.just("nothing that is fingerprinted")),
    st.just(NotNull("parent_span_id")),
)
_conditions: st.SearchStrategy[Condition] = st.recursive(
    _leaves,
    lambda inner: st.builds(
        lambda kind, some: kind(tuple(some)),
        st.sampled_from([AnyOf, AllOf]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


def fingerprints(rows: Iterable[Row]) -> tuple[int, ...]:
    made: set[int] = set()
    for service, name, attributes, resource in rows:
        made.update(field_fingerprints("service_name", [service]), field_fingerprints("name", [name]))
        made.update(digest64(f"attributes.{key}") for key in attributes)
        made.update(digest64(f"resource.{key}") for key in resource)
    return tuple(sorted(made))


def has(row: Row, attribute: Attribute) -> bool:
    return attribute.key in (row[2] if attribute.scope == "attributes" else row[3])


def may_meet(row: Row, condition: Condition) -> bool:
    """Whether the row can meet it, whatever its attributes' values are."""
    match condition:
        case Equals("service_name", values):
            return row[0] in values
        case Equals("name", values):
            return row[1] in values
        case Present(attributes):
            return any(has(row, attribute) for attribute in attributes)
        case AnyOf(conditions):
            return any(may_meet(row, one) for one in conditions)
        case AllOf(conditions):
            return all(may_meet(row, one) for one in conditions)
        case Equals(Attribute() as attribute) | Contains(Attribute() as attribute):
            return has(row, attribute)
    return True


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    held=st.lists(st.tuples(_rows, st.integers(0, 5), st.booleans()), max_size=8),
    conditions=st.lists(_conditions, max_size=6).map(tuple),
)
def test_a_pruned_pick_has_every_row_that_is_wanted(
    index: Index, held: list[tuple[list[Row], int, bool]], conditions: tuple[Condition, ...]
) -> None:
    organization = Organization(uuid4(), f"org-{uuid4().hex}")
    index.organizations.create(organization)
    rows_of: dict[UUID, list[Row]] = {}
    segments = []
    for n, (rows, start, incomplete) in enumerate(held):
        told = (INCOMPLETE,) if incomplete else fingerprints(rows)
        made = segment(
            f"{organization.id} {n}", start, start + 2, organization=organization.id, signal="traces", fingerprints=told
        )
        segments.append(made)
        rows_of[made.id] = rows
    index.commit(Commit(tuple(segments), (), ()))

    asked = TimeRange(2, 4)
    picked = index.segments.pick(organization.id, "traces", asked, conditions=conditions)
    all_of_it = index.segments.pick(organization.id, "traces", asked)
    assert picked.considered == all_of_it.considered == len(all_of_it.segments)
    assert [s for s in all_of_it.segments if s in picked.segments] == list(picked.segments)

    def wanted(segments: Iterable[Segment]) -> list[Row]:
        rows = [row for one in segments for row in rows_of[one.id]]
        return [row for row in rows if all(may_meet(row, condition) for condition in conditions)]

    assert wanted(picked.segments) == wanted(all_of_it.segments)


def test_segments_without_what_is_wanted_are_left_out(index: Index) -> None:
    cart = segment("cart", fingerprints=field_fingerprints("service_name", ["cart"]))
    pay = segment(
        "pay", fingerprints=(*field_fingerprints("service_name", ["pay"]), *field_fingerprints("attributes.k"))
    )
    many = segment("many", fingerprints=(INCOMPLETE,))
    index.commit(Commit((cart, pay, many), (), ()))

    def picked(*conditions: Condition) -> set[UUID]:
        found = index.segments.pick(ACME.id, "logs", ALL_TIME, conditions=conditions)
        assert found.considered == 3
        return {one.id for one in found.segments}

    there = Present((Attribute("attributes", "k"),))
    assert picked(Equals("service_name", ("cart",))) == {cart.id, many.id}
    assert picked(Equals("service_name", ("cart", "pay"))) == {cart.id, pay.id, many.id}
    assert picked(Equals("service_name", ("cart",)), there) == {many.id}
    assert picked(there) == picked(Equals(Attribute("attributes", "k"), ("v",))) == {pay.id, many.id}
    assert picked(Present((Attribute("attributes", "k"), Attribute("resource_attributes", "k")))) == {pay.id, many.id}
    assert picked(Equals("message", ("cart",)), Contains("message", "cart")) == {cart.id, pay.id, many.id}


def test_none_left_still_tells_how_many_there_were(index: Index) -> None:
    index.commit(Commit((segment("cart", fingerprints=field_fingerprints("service_name", ["cart"])),), (), ()))
    found = index.segments.pick(ACME.id, "logs", ALL_TIME, conditions=(Equals("service_name", ("pay",)),))
    assert (found.segments, found.considered) == ((), 1)


def test_values_prune_before_presence() -> None:
    """Beyond so many groups the index is not asked: then values, which say more, are the ones that are."""
    present = [Present((Attribute("attributes", str(n)),)) for n in range(5)]
    groups = fingerprint_groups("logs", [*present, Equals("service_name", ("cart",)), present[0]])
    assert len(groups) == 6
    assert groups[0] == {digest64("service_name", "cart"), INCOMPLETE}


@pytest.mark.slow
def test_a_rare_value_is_found_through_its_index(index: Index) -> None:
    """Over all time, among 100,000 segments."""
    index.commit(Commit((segment("seed", fingerprints=field_fingerprints("service_name", ["rare"])),), (), ()))
    with index.pool.connection() as connection:
        connection.execute(
            "INSERT INTO lrdb.segments (id, organization, collector, signal, start_ns, end_ns, frequency_ms, level,"
            " sort_version, rows, bytes, column_set, statistics, fingerprints)"
            " SELECT gen_random_uuid(), organization, collector, signal, n * 10, n * 10 + 10, 0, 0, 1, 1, 1,"
            " column_set, statistics, ARRAY[n % 1000, n % 7 + 2000, n % 11 + 3000]"
            " FROM lrdb.segments, generate_series(1, 100000) AS n"
        )
        connection.execute("ANALYZE lrdb.segments")
    conditions = (Equals("service_name", ("rare",)),)
    values = {"organization": ACME.id, "signal": "logs", "frequency_ms": 0, "start_ns": -1, "end_ns": 2**62}
    wanted = {"wanted_1": list(fingerprint_groups("logs", conditions)[0]), "wanted_2": None, "wanted_3": None}
    with index.pool.connection() as connection:
        query = b"EXPLAIN " + load_queries()["segments.pick_pruned"]
        plan = connection.execute(query, {**values, **wanted, "wanted_4": None}).fetchall()
    assert "segments_by_fingerprint" in str(plan)
    found = index.segments.pick(ACME.id, "logs", TimeRange(-1, 2**62), conditions=conditions)
    assert (len(found.segments), found.considered) == (1, 100_001)
