"""A unit of work travels as JSON and comes back as it was, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.condition import AllOf, AnyOf, Contains, Equals, Labelled, NotNull, Present
from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Attribute
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Shard
from lakerunner.promql.operators import Selection, SeriesFragment
from lakerunner.promql.parse import parse
from lakerunner.query.unit import MAX_LEVELS, VERSION, Unit
from lakerunner.series.values import Steps
from query.sample_lake import FULL_SHRED, NOW, OWN, START, Record, write_segment


@pytest.fixture
def unit() -> Unit:
    segments = [write_segment([Record(START + n)], collector=c)[0] for n, c in enumerate("ab")]
    shredded = write_segment([Record(START)], shred=FULL_SHRED)[0]
    plan = compile_sql(
        "SELECT message, attributes['é \"k\"'] FROM logs WHERE trace_id = 'AB' AND timestamp >= '2024-01-01' "
        "AND \"a.b\" > 5 AND attributes['c'] <> '7'",
        OWN,
        NOW,
    )
    (scan,) = plan.scans
    conditions = (
        Equals("service_name", ("a", "é")),
        Contains(Attribute("attributes", "k"), "x", ignore_case=True),
        Present((Attribute("resource_attributes", "k"),)),
        AnyOf((NotNull("body"), AllOf((Labelled("attributes", "k"), Labelled("attributes", "k", ("a", "b")))))),
    )
    return Unit(
        OWN, Leaf(replace(scan, conditions=conditions), SqlRows("SELECT 1", steady=False)), (*segments, shredded)
    )


def bare(segment: Segment) -> Segment:
    return replace(segment, statistics={}, fingerprints=())


def test_there_and_back(unit: Unit) -> None:
    back = Unit.from_bytes(unit.to_bytes())
    assert back == replace(unit, segments=back.segments)
    assert [bare(one) for one in back.segments] == [bare(one) for one in unit.segments]


def test_a_type_that_is_not_a_number_type_is_refused(unit: Unit) -> None:
    assert [typed.type for typed in unit.leaf.scan.typed] == ["DOUBLE", "stored"]
    with pytest.raises(Corrupt, match="attributes cannot be read as 'BLOB'"):
        Unit.from_bytes(unit.to_bytes().replace(b'"DOUBLE"', b'"BLOB"'))


def test_column_sets_travel_once(unit: Unit) -> None:
    wire = json.loads(unit.to_bytes())
    assert len(wire["column_sets"]) == 2
    assert len(wire["segments"]) == 3


def test_statistics_and_fingerprints_stay_home() -> None:
    segment = replace(
        write_segment([Record(START)])[0], statistics={"a": 1, "side_bytes": {"text.bin": 7}}, fingerprints=(1, 2)
    )
    (leaf,) = compile_sql("SELECT 1 FROM logs", OWN, NOW).leaves
    (sent,) = Unit.from_bytes(Unit(segment.organization, leaf, (segment,)).to_bytes()).segments
    assert (sent.statistics, sent.fingerprints) == ({"side_bytes": {"text.bin": 7}}, ())


def test_a_segment_of_another_signal_is_refused() -> None:
    (leaf,) = compile_sql("SELECT 1 FROM logs", OWN, NOW).leaves
    with pytest.raises(ValueError, match="holds traces, the scan reads logs"):
        Unit(OWN, leaf, (replace(write_segment([Record(START)])[0], signal="traces"),))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":1}',
        b'{"version":%d,"organization":"x","operator":{"name":"sql"},"column_sets":[],"segments":[],"scan":{}}'
        % VERSION,
        b'{"version":%d,"organization":"x","operator":{"name":"none"},"column_sets":[],"segments":[],"scan":{}}'
        % VERSION,
        b"\xff",
    ],
)
def test_what_is_no_unit_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        Unit.from_bytes(data)


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 900, 3_000, 100_000])
@pytest.mark.parametrize("start", ['{"metrics": ', '{"scan": ', '{"version": 3, "segments": '])
def test_a_unit_that_is_nested_without_end_is_refused(start: str, levels: int) -> None:
    with pytest.raises(Corrupt, match=f"nested deeper than {MAX_LEVELS} levels"):
        Unit.from_bytes(f"{start}{'[' * levels}{']' * levels}}}".encode())


def test_the_deepest_expression_of_promql_is_a_unit() -> None:
    expression = parse("abs(" * 98 + "up" + ")" * 98)
    selection = Selection((Matcher("__name__", "=", "up"),), 0, 60_000)
    assert selection.scan
    fragment = SeriesFragment(expression, Steps(0, 60_000, 60_000), selection, 300_000, delayed_names=True)
    unit = Unit(OWN, Leaf(selection.scan, fragment), (), Shard(1, 3), {60_000: ((0, 60_000),)})
    assert Unit.from_bytes(unit.to_bytes()) == unit
