"""Severity from number and text."""

from __future__ import annotations

import pytest

from lakerunner.pipeline.steps.record_columns import severity_of
from pipeline.otlp_oracle import actual, make, raw_of, request_type

CASES = [
    (1, "", "TRACE"),
    (4, "whatever", "TRACE"),
    (5, "", "DEBUG"),
    (9, "INFO", "INFO"),
    (12, "error", "INFO"),
    (13, "", "WARN"),
    (17, "", "ERROR"),
    (24, "", "FATAL"),
    (0, "", ""),
    (0, "Information", "INFO"),
    (0, "notice", "INFO"),
    (0, " warning ", "WARN"),
    (0, "err", "ERROR"),
    (25, "SEVERE", "ERROR"),
    (-1, "crit", "FATAL"),
    (0, "emerg", "FATAL"),
    (0, "verbose", "TRACE"),
    (0, "custom level", "CUSTOM LEVEL"),
    (0, "straße", "STRASSE"),
]


@pytest.mark.parametrize(("number", "text", "severity"), CASES)
def test_one_severity(number: int, text: str, severity: str) -> None:
    assert severity_of(number, text) == severity


def test_the_column_says_the_same() -> None:
    request = request_type()()
    records = request.resource_logs.add().scope_logs.add().log_records
    for place, (number, text, _) in enumerate(CASES):
        records.add(time_unix_nano=place + 1, severity_number=number, severity_text=text.encode())
    made, files = make(raw_of(request.SerializeToString()))
    rows = actual(made.segments, files)
    assert [row["severity"] for row in rows] == [severity for _, _, severity in CASES]
    assert [row["severity_text"] for row in rows] == [text for _, text, _ in CASES]
