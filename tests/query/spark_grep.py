"""What tasks of Spark run for tests: units of every operator, and of a language that nobody else knows."""

from __future__ import annotations

from collections.abc import Iterator

from lakerunner.query.operator_table import OPERATORS
from lakerunner.services.spark_units import run_unit_with
from query.grep_language import Grep


def run_unit(settings: bytes, content: bytes) -> Iterator[bytes]:
    return run_unit_with(settings, content, {**OPERATORS, "grep": Grep})
