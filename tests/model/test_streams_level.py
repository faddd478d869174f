"""How the level of a line is found: the rules that the table of ../shared (conformance/tables.py) leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from lakerunner.model.streams.line_level import line_level
from lakerunner.model.streams.log_record import (
    DETECTED_LEVEL,
    LOKI_STREAM,
    RecordFields,
    Resource,
    level_of_number,
    metadata_of,
    stream_of,
)
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules

BOUNDS = {"trace": (1, 4), "debug": (5, 8), "info": (9, 12), "warn": (13, 16), "error": (17, 20), "fatal": (21, 24)}


def record(**fields: Any) -> RecordFields:
    unset = RecordFields({}, 0, 0, 0, "", 0, 0, "", "", "")
    return unset._replace(**fields)


def detected(line: str, metadata: dict[str, str], labels: dict[str, str], rules: StreamRules = DEFAULT_RULES) -> Any:
    """The level of a line that was pushed to a Loki stream."""
    stream = stream_of(Resource(labels, LOKI_STREAM), rules)
    return metadata_of(record(attributes=metadata), stream, {}, line, rules).get(DETECTED_LEVEL)


@pytest.mark.parametrize(
    ("number", "level"),
    [
        *((str(bound), level) for level, bounds in BOUNDS.items() for bound in bounds),
        ("0", "unknown"),
        ("25", "unknown"),
        ("-3", "trace"),
        ("+9", "info"),
        ("nine", "info"),
        ("9.0", "info"),
        ("9" * 30, "info"),
    ],
)
def test_numbers(number: str, level: str) -> None:
    assert level_of_number(number) == level


@pytest.mark.parametrize(
    ("labels", "metadata", "line", "level"),
    [
        # Each of these would have another level by what comes after it in Loki's order.
        ({"level": "debug"}, {"detected_level": "WARNING", "level": "info"}, "error", "warn"),
        ({"level": "debug"}, {"detected_level": "loud"}, "error", "loud"),
        ({"lvl": "DBG", "level": "Trc"}, {"level": "info"}, "error", "trace"),
        ({"Severity": "loud"}, {"level": "info"}, "error", "loud"),
        ({"loglevel": "debug"}, {"severity": "INF"}, "error", "info"),
        ({}, {"severity_text": "Information", "severity_number": "17"}, "error", "info"),
        ({}, {"severity_text": "SPAM", "severity_number": "17"}, "error", "SPAM"),
        ({}, {"severity_number": "13"}, "level=error", "warn"),
        ({}, {"LeVeL": "info"}, "level=error", "error"),
        ({}, {"severity_number": ""}, "level=error", "error"),
        ({}, {"level": ""}, "error", None),  # Loki finds the name and nothing in it
        ({"level": ""}, {}, "error", "error"),  # an empty label of a stream is none
    ],
)
def test_the_order_in_which_a_level_is_looked_for(
    labels: dict[str, str], metadata: dict[str, str], line: str, level: str | None
) -> None:
    assert detected(line, metadata, labels) == level
    assert detected(line, metadata, labels, StreamRules(detect_levels=False)) == metadata.get(DETECTED_LEVEL)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ('{"a": {"level": "warn"}}', "warn"),
        ('{"a": {"b": {"level": "warn"}}, "c": "error"}', "warn"),  # too deep, but a word between quotes
        ('{"a": {"b": {"lvl": "wrn"}}, "c": 1}', "unknown"),
        ('  {"level":"WARN", broken}  ', "warn"),
        ('{"a": tru, "level": "warn", "b": "an error"}', "warn"),  # a fault before the key: then by words
        ('{"level": "loud", "msg": "an error"}', "error"),
        ('{"level": 30, "msg": "no word"}', "unknown"),
        ('{"lev\\u0065l": "wrn"}', "warn"),
        ('{"lvl": "wrn", "level": "dbg"}', "warn"),  # the first in the line
        ('{"msg": "\\"level\\": \\"debug\\"", "level": "wrn"}', "warn"),
        ('{"log.level": "dbg"}', "debug"),
        ('{"log": {"level": "dbg"}}', "debug"),
        ('{"a": {"level": ""}, "severity": "dbg"}', "unknown"),
        ('{"LeVeL": "dbg"}', "unknown"),  # keys of JSON are compared exactly
        ('["level", "dbg"]', "unknown"),
        ("severity=dbg lvl=wrn level=trc", "trace"),
        ("LVL=wrn SEVERITY=dbg", "debug"),
        ('msg="a \\"level=trc\\" b" level="wrn"', "warn"),
        ('msg=a"b level=trc', "unknown"),  # the reader stops at the fault
        ("level= a=b error", "error"),
        ("level a=b severity=trc", "unknown"),  # the first key has no value
        ("info:x", "info"),
        ("x:info", "unknown"),
        ("x/info y-error err.", "unknown"),
        ("İNFO: x", "info"),
        ("errorerror error", "error"),
        ("", "unknown"),
        ("\udcff error", "error"),
    ],
)
def test_lines(line: str, level: str) -> None:
    assert line_level(line) == level


def test_long_and_deep_lines_take_linear_time() -> None:
    for line in (
        '{"a":' * 200_000,
        '{"' + "\\" * 400_000 + "level",
        "level" * 200_000 + '"=',
        'a="' + "level " * 100_000,
    ):
        assert line_level(line + "}") == "unknown"
