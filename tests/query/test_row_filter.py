"""The relation of an operator on stored rows has every row that meets the scan's conditions, and few others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, Labelled, NotNull, Present
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE, Attribute
from lakerunner.model.streams.attribute_text import flattened, value_text
from lakerunner.model.streams.label_names import label_name
from lakerunner.model.time import ALL_TIME
from lakerunner.model.typed_json import KeyValues
from lakerunner.plan.scan import ROW_NUMBER, Scan
from lakerunner.query.sandbox.instance import MACROS
from lakerunner.query.segment_cache.lease import LeasedFile
from lakerunner.query.segment_cache.relation import Projections, relation_sql
from query.sample_lake import FULL_SHRED, START, Lake, Record, Shred, plain_map, random_records

TRACE, OTHER = bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), bytes(16)
SCOPE_OF = {scope.map_column: scope for scope in (ATTRIBUTES, RESOURCE, SCOPE)}
MAPS = tuple(SCOPE_OF)
SCAN = Scan("s", "logs", ALL_TIME, ("message", "body"), internal=(ROW_NUMBER, *MAPS))
SOME = Shred(attributes={"http.status_code": "string", "http.method": "string", "ratio": "int64", "nested": "json"})
SHREDS = (None, FULL_SHRED, SOME, Shred(attributes={"ok": "string", "raw": "string"}, resource={"pod": "int64"}))


def attribute(key: str) -> Attribute:
    return Attribute(ATTRIBUTES.map_column, key)


def rows_of(connection: duckdb.DuckDBPyConnection, lake: Lake, scan: Scan, number: int) -> set[int]:
    """The numbers of the segment's rows that the relation has."""
    segment = lake.all[number]
    sql = relation_sql(scan, [segment], {segment.id: LeasedFile(lake.store.root / segment.path)})
    return {row for (row,) in connection.execute(f'SELECT "s.row_number.internal" FROM ({sql})').fetchall()}


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    for macro in MACROS:
        made.execute(macro)
    return made


# ---- what is left out

STORED = Shred(attributes={"user": "string", "code": "int64", "cart": "json"}, resource={"pod": "string"})
USERS = tuple(
    Record(
        START + n,
        service,
        trace_id=trace,
        attributes=(("user", user), *(((code, n),) if code else ())),
        resource=(("pod", user),),
    )
    for n, (service, trace, user, code) in enumerate(
        [("a", TRACE, "u0", "code"), ("b", OTHER, "u1", "code"), ("c", None, "it's", ""), ("d", OTHER, "u0", "rare")]
    )
)
EVERY = {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Equals("service_name", ("a", "c")), {0, 2}),
        (Equals("service_name", ("absent",)), set()),
        (Equals("trace_id", (TRACE.hex(),)), {0}),
        (Equals("trace_id", ("not an id",)), EVERY),
        (Equals("trace_id", ()), set()),
        (Equals("message", ("\0",)), EVERY),
        (Equals(attribute("user"), ("u0",)), {0, 3}),
        (Equals(attribute("user"), ("it's",)), {2}),
        (Equals(attribute("code"), ("0",)), {0, 1}),
        (Equals(attribute("absent"), ("0",)), set()),
        (Present((attribute("rare"), attribute("absent"))), {3}),
        (Labelled("attributes", "rare"), {3}),
        (Labelled("attributes", "user", ("u1",)), {1}),
        (Labelled("resource_attributes", "pod", ("u0",)), {0, 3}),
        (Labelled("scope_attributes", "pod", ("u0",)), set()),
        (NotNull("body"), set()),
        (Contains("message", "absent"), EVERY),
        (AnyOf((Equals("service_name", ("a",)), Contains("message", "absent"))), EVERY),
        (AnyOf((Equals("service_name", ("a",)), Labelled("attributes", "rare", ("3",)))), {0, 3}),
        (AllOf((Equals("service_name", ("a", "b")), Contains("message", "absent"))), {0, 1}),
        (AnyOf(()), set()),
        (AllOf(()), EVERY),
    ],
)
def test_rows_that_do_not_meet_a_condition_are_left_out(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, condition: Condition, expected: set[int]
) -> None:
    lake = Lake(tmp_path)
    lake.add(USERS, shred=STORED)
    scan = replace(SCAN, conditions=(condition,))
    assert rows_of(connection, lake, scan, 0) == expected
    assert rows_of(connection, lake, replace(scan, conditions=(condition, Equals("service_name", ("a",)))), 0) == (
        expected & {0}
    )


def test_what_is_tested_is_fetched_but_no_large_column_for_it_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    segment = lake.add(USERS, shred=STORED)
    user, rare = Equals(attribute("user"), ("u0",)), Present((attribute("rare"),))
    scan = replace(SCAN, columns=("message",), internal=(ROW_NUMBER, "attributes"))

    def stored(scan: Scan) -> list[str]:
        return Projections(scan).stored(segment)

    read = stored(scan)
    assert stored(replace(scan, conditions=(Equals("trace_id", (TRACE.hex(),)), user))) == [*read, "trace_id"]
    assert stored(replace(scan, conditions=(AnyOf((Equals("service_name", ("a",)), rare)),))) == [*read, "service_name"]
    bare = replace(scan, internal=(ROW_NUMBER,))
    assert stored(replace(bare, conditions=(user, rare, NotNull("body")))) == ["message"]
    mixed = AllOf((AnyOf((user, Equals("trace_id", (TRACE.hex(),)))), Equals("service_name", ("a",))))
    assert stored(replace(bare, conditions=(mixed,))) == ["message", "service_name"]


def test_sql_of_users_has_its_own_filter(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    segment = lake.add(USERS, shred=STORED)
    scan = Scan("s", "logs", ALL_TIME, ("message",), conditions=(Equals("service_name", ("a",)),))
    assert "WHERE" not in relation_sql(scan, [segment], {segment.id: LeasedFile(lake.store.root / segment.path)})


def test_segments_with_the_same_columns_are_one_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for _ in range(3):
        lake.add(USERS, shred=STORED)
    scan = replace(SCAN, conditions=(Labelled("attributes", "user", ("u1",)),))
    files = {one.id: LeasedFile(lake.store.root / one.path, ((0, 2),)) for one in lake.all}
    assert relation_sql(scan, lake.all, files).count("read_parquet") == 1


# ---- what is not


def meets(record: Record, condition: Condition) -> bool:
    match condition:
        case AnyOf(conditions):
            return any(meets(record, one) for one in conditions)
        case AllOf(conditions):
            return all(meets(record, one) for one in conditions)
        case Equals(Attribute(scope, key), values):
            return bool(texts(record, scope, key) & set(values))
        case Equals(str() as column, values):
            value = getattr(record, {"severity_text": "severity"}.get(column, column))
            return (value.hex() if isinstance(value, bytes) else value) in values
        case Contains(str() as column, literal):
            return literal in getattr(record, column)
        case Present(attributes):
            return any(texts(record, one.scope, one.key) for one in attributes)
        case Labelled(scope, name, values):
            found = {text for own, text in labels(record, scope) if own == name}
            return bool(found if values is None else found & set(values))
        case NotNull(column):
            return getattr(record, column) is not None
    raise AssertionError(condition)


def texts(record: Record, scope: str, key: str) -> set[str]:
    """The attribute's text, as LakeQL and as Loki writes it."""
    pairs = record.pairs(SCOPE_OF[scope])
    found = plain_map(pairs).get(key)
    if found is None:
        return set()
    return {found, value_text(next(value for own, value in pairs if own == key))}


def labels(record: Record, scope: str) -> set[tuple[str, str]]:
    """The labels of all attributes, by OTLP's rules and as those of a Loki stream."""
    return {
        label
        for key, value in record.pairs(SCOPE_OF[scope])
        for name in {key, label_name(key)}
        for label in flattened(name, value)
    }


KEYS = [*FULL_SHRED.attributes, *FULL_SHRED.resource, *FULL_SHRED.scope, "absent"]
TEXTS = ["200", "teapot", "GET", 'we"ird\\\n', "", "lower", "second", "0.5", "3", "NaN", "true", "AP8=", "text", "1"]
TEXTS += ["10000000000000000", "1e16", "quote", "x", "zz", "cart", "été", "ERROR", "0", '[1,2.5,"x",null,[true]]']
NAMES = [*{label_name(key) for key in KEYS}, "nested_a", "nested_b_c", "wrapped_bytesValue", "http.Method"]
some_texts = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map(tuple)
attributes = st.builds(Attribute, st.sampled_from(MAPS), st.sampled_from(KEYS))
leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Equals, attributes | st.sampled_from(["service_name", "severity_text", "message"]), some_texts),
    st.builds(Labelled, st.sampled_from(MAPS), st.sampled_from(NAMES), st.none() | some_texts),
    st.builds(Present, st.lists(attributes, min_size=1, max_size=2).map(tuple)),
    st.builds(Equals, st.sampled_from(["trace_id", "span_id"]), st.sampled_from([(TRACE.hex(),), ("00",)])),
    st.sampled_from([NotNull("body"), NotNull("observed_timestamp"), Contains("message", "logged")]),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda kind, some: kind(tuple(some)), st.sampled_from([AnyOf, AllOf]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(tmp_path_factory.mktemp("odd"))
    extra = Record(START, "cart", trace_id=TRACE, attributes=(("nested", KeyValues((("a", "x"),))),))
    for seed, shred in enumerate(SHREDS):
        made.add([extra, *random_records(80, seed)], shred=shred)
    return made


@settings(max_examples=150, deadline=None)
@given(condition=conditions, reads_maps=st.booleans())
@example(Labelled("attributes", "nested_a", ("x",)), True)
@example(Equals("trace_id", (TRACE.hex(),)), False)
def test_no_row_that_meets_a_condition_is_left_out(
    lake: Lake, connection: duckdb.DuckDBPyConnection, condition: Condition, reads_maps: bool
) -> None:
    internal = (ROW_NUMBER, *MAPS) if reads_maps else (ROW_NUMBER,)
    scan = replace(SCAN, conditions=(condition,), internal=internal)
    for number in range(len(SHREDS)):
        records = [record for record, _ in lake.records[number * 81 : (number + 1) * 81]]
        ordered = sorted(records, key=lambda record: (record.service_name, record.timestamp))
        expected = {row for row, record in enumerate(ordered) if meets(record, condition)}
        assert expected <= rows_of(connection, lake, scan, number)
