"""A unit of work travels as JSON and comes back as it was, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sample_lake import FULL_SHRED, NOW, OWN, START, Record, write_segment

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import Corrupt
from lakerunner.query.unit import ScanInput, WorkUnit


@pytest.fixture
def unit() -> WorkUnit:
    segments = [write_segment([Record(START + n)], collector=c)[0] for n, c in enumerate("ab")]
    shredded = write_segment([Record(START)], shred=FULL_SHRED)[0]
    plan = compile_sql(
        "SELECT a.message, b.attributes['é \"k\"'] FROM logs a, logs b WHERE a.trace_id = 'AB' AND "
        "b.timestamp >= '2024-01-01'",
        OWN,
        NOW,
    )
    chosen = [(segments[0], shredded), (segments[1], shredded)]
    return WorkUnit(OWN, plan.sql, tuple(ScanInput(s, c) for s, c in zip(plan.scans, chosen, strict=True)))


def test_there_and_back(unit: WorkUnit) -> None:
    assert WorkUnit.from_bytes(unit.to_bytes()) == unit


def test_column_sets_travel_once(unit: WorkUnit) -> None:
    wire = json.loads(unit.to_bytes())
    assert len(wire["column_sets"]) == 2
    assert len(wire["segments"]) == 3


def test_statistics_and_fingerprints_stay_home() -> None:
    segment = replace(write_segment([Record(START)])[0], statistics={"a": 1}, fingerprints=(1, 2))
    (scan,) = compile_sql("SELECT 1 FROM logs", OWN, NOW).scans
    (sent,) = ScanInput(scan, (segment,)).segments
    assert (sent.statistics, sent.fingerprints) == ({}, ())


def test_a_segment_of_another_signal_is_refused() -> None:
    (scan,) = compile_sql("SELECT 1 FROM logs", OWN, NOW).scans
    with pytest.raises(ValueError, match="holds traces, the scan reads logs"):
        ScanInput(scan, (replace(write_segment([Record(START)])[0], signal="traces"),))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2}',
        b'{"version":1,"organization":"x","sql":"","column_sets":[],"segments":{},"inputs":[]}',
        b'{"version":1,"organization":"12340000-0000-4000-8000-000000000000","sql":"","column_sets":[],'
        b'"segments":{},"inputs":[{"scan":{},"segments":[]}]}',
        b"\xff",
    ],
)
def test_what_is_no_unit_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        WorkUnit.from_bytes(data)
