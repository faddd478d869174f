"""A plan's text says who does what, over which time, and what is known of the rows."""

from __future__ import annotations

from lakerunner.model.condition import Contains, Equals, Present
from lakerunner.model.signal import Attribute
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.plan.explain import plan_lines
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf, Plan, Rounds, SqlFinish
from lakerunner.plan.scan import Scan

START = 1_704_067_200_000_000_000  # 2024-01-01T00:00:00Z
SCAN = Scan("scan_1", "logs", TimeRange(START, START + HOUR_NS + 5), ("timestamp", "message"))


def rounds_line(rounds: Rounds) -> str:
    return plan_lines(Plan((Leaf(SCAN, SqlRows("SELECT 2")),), SqlFinish("SELECT 1", rounds)))[1].strip()


def test_everything_a_plan_can_say() -> None:
    scan = Scan(
        "scan_1",
        "logs",
        SCAN.time,
        ("timestamp", "message"),
        (Attribute("attributes", "it's"),),
        ("trace_id",),
        (
            Equals("service_name", ("shop",)),
            Equals(Attribute("resource_attributes", "pod"), ("1", "2")),
            Contains("message", "two\nlines", ignore_case=True),
            Present((Attribute("attributes", "it's"), Attribute("resource_attributes", "pod"))),
        ),
    )
    plan = Plan((Leaf(scan, SqlRows("SELECT 1")),), SqlFinish("SELECT *\nFROM scan_1", Rounds(True, HOUR_NS, 0, 10, 5)))
    assert plan_lines(plan, {plan.leaves[0]: ["segments 3"]}) == [
        "coordinator",
        "  in rounds, newest first, by whole buckets of 1 h, limit 10, offset 5",
        "  sql SELECT *\\nFROM scan_1",
        "  workers, scan_1",
        "    sql SELECT 1",
        "    scan logs [2024-01-01 00:00:00 .. 2024-01-01 01:00:00.000000005)",
        "      columns timestamp, message",
        "      attributes attributes['it''s']",
        "      bytes of trace_id",
        "      where service_name is 'shop'",
        "      where resource_attributes['pod'] is one of '1', '2'",
        "      where message contains 'two\\nlines' in any case",
        "      where attributes['it''s'] or resource_attributes['pod'] is there",
        "    segments 3",
    ]


def test_how_rounds_are_said() -> None:
    assert rounds_line(Rounds()) == "in rounds, oldest first"
    assert rounds_line(Rounds(bucket_ns=90_000_000_000)) == "in rounds, oldest first, by whole buckets of 90 s"
    assert rounds_line(Rounds(limit=0)) == "in rounds, oldest first, limit 0"
    by_week = Rounds(True, 7 * 24 * HOUR_NS, START)
    assert rounds_line(by_week) == "in rounds, newest first, by whole buckets of 7 d from 2024-01-01 00:00:00"


def test_what_goes_through_as_it_is() -> None:
    lines = plan_lines(Plan((Leaf(SCAN, SqlRows("SELECT 2")),), SqlFinish("SELECT 1", passes=True)))
    assert lines[1:3] == ["  all at once", "  rows as the workers give them"]
