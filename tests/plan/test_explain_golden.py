"""Query -> plan as EXPLAIN shows it, as files to read: tests/golden/explain/*.txt. `make golden` rewrites what follows
each query. A file holds cases, each a query between two lines of dashes, then its plan.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.plan.explain import plan_lines
from suites.bound import bound_types
from suites.golden import check_golden, files_of

OWN = UUID("12340000-0000-4000-8000-000000000000")
NOW = 1_704_164_645_123_456_789  # 2024-01-02T03:04:05.123456789Z
TYPES = bound_types()
FILES = files_of("explain")


def described(sql: str) -> str:
    return "\n".join(plan_lines(compile_sql(sql, OWN, NOW, types=TYPES)))


def test_golden_files_are_there() -> None:
    assert len(FILES) >= 2


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_golden(path: Path) -> None:
    check_golden(path, described)
