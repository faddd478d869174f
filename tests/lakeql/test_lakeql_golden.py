"""Query -> plan -> SQL, as files to read: tests/golden/lakeql/*.txt. `make golden` rewrites what follows each query.

A file holds cases, each a query between two lines of dashes, then its plan. A comment at the query's end that is a JSON
object holds its parameters.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import UUID

import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, Present
from lakerunner.model.errors import UserError
from lakerunner.model.signal import Attribute
from lakerunner.model.time import MAX_NS, MIN_NS, time_text
from lakerunner.plan.scan import Scan
from suites.bound import bound_types
from suites.golden import check_golden, files_of
from suites.plans import finish_of, leaf_sql

OWN = UUID("12340000-0000-4000-8000-000000000000")
NOW = 1_704_164_645_123_456_789  # 2024-01-02T03:04:05.123456789Z
TYPES = bound_types()
FILES = files_of("lakeql")
PARAMETERS = re.compile(r"-- (\{.*\})$")


def described(sql: str) -> str:
    try:
        given = PARAMETERS.search(sql)
        plan = compile_sql(sql, OWN, NOW, types=TYPES, parameters=json.loads(given[1]) if given else {})
    except UserError as error:
        return f"{type(error).__name__}: {error}"
    leaves = [line for leaf in plan.leaves for line in (described_scan(leaf.scan), f"    {leaf_sql(leaf)}")]
    rounds = [f"rounds: {finish_of(plan).rounds}"] if finish_of(plan).rounds else []
    return "\n".join([*leaves, *rounds, finish_of(plan).sql])


def described_scan(scan: Scan) -> str:
    start = time_text(scan.time.start_ns) if scan.time.start_ns > MIN_NS else ""
    end = time_text(scan.time.end_ns) if scan.time.end_ns < MAX_NS else ""
    lines = [f"{scan.relation}: {scan.signal} [{start} .. {end})", f"    columns {', '.join(scan.columns)}"]
    lines += [f"    attribute {attribute.scope} {attribute.key}" for attribute in scan.attributes]
    lines += [f"    bytes of {column}" for column in scan.ids]
    lines += [f"    where {described_condition(condition)}" for condition in scan.conditions]
    return "\n".join(line.rstrip() for line in lines)


def described_condition(condition: Condition) -> str:
    match condition:
        case Equals(column, values):
            return f"{named(column)} is {' or '.join(map(repr, values))}"
        case Contains(column, literal, ignore_case, is_word):
            return (
                f"{named(column)} holds {'word ' if is_word else ''}{literal!r}{' in any case' if ignore_case else ''}"
            )
        case Present(attributes):
            return f"{' or '.join(map(named, attributes))} is there"
        case AnyOf(conditions):
            return " or ".join(f"({described_condition(one)})" for one in conditions)
        case AllOf(conditions):
            return " and ".join(f"({described_condition(one)})" for one in conditions)
    raise AssertionError(f"SQL states no {condition}")


def named(column: str | Attribute) -> str:
    return column if isinstance(column, str) else f"{column.scope} {column.key}"


def test_golden_files_are_there() -> None:
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_golden(path: Path) -> None:
    check_golden(path, described)
