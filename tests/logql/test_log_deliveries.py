"""Lines that were delivered twice count once; equal lines of one delivery are as many as were sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.logql_check import log_problem
from conformance.logql_script import LogCase, parse_logql_script
from conformance.logql_subject import EngineLogSubject

ONE = '{app="a"} "x" @ 1s [metadata m="1"]'
LINES = 'eval select from 0s to 9s {direction} {{app="a"}}\n'
COUNT = 'eval instant at 9s count_over_time({app="a"}[9s])\n  {app="a", m="1"} '


def cases(lines: int, expected: int) -> list[LogCase]:
    """Return questions about so many equal lines, of which so many are expected."""
    shown = f"  {ONE}\n" * expected
    asked = "".join(LINES.format(direction=direction) + shown for direction in ("forward", "backward"))
    loaded = "load\n" + f"  {ONE}\n" * lines
    return parse_logql_script(f"{loaded}{asked}{COUNT}{expected}\n", Path("deliveries.logqltest"))


@pytest.mark.parametrize(("lines", "parts", "expected"), [(2, 1, 2), (2, 2, 1), (6, 3, 2)])
def test_a_delivery_that_came_again_counts_once(lines: int, parts: int, expected: int) -> None:
    # Parts of equal lines have the same bytes: they are one delivery.
    with EngineLogSubject(parts) as subject:
        assert [log_problem(case, subject) for case in cases(lines, expected)] == [None, None, None]


def test_a_limit_does_not_count_what_came_again() -> None:
    script = (
        f'load\n  {ONE}\n  {ONE}\neval select from 0s to 9s forward limit 2 {{app="a"}} | line_format "y"\n'
        '  {app="a"} "y" @ 1s [metadata m="1"]\n'
    )
    with EngineLogSubject(2) as subject:
        (case,) = parse_logql_script(script, Path("deliveries.logqltest"))
        assert log_problem(case, subject) is None
