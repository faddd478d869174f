"""Query -> plan, as files to read: tests/golden/promql/*.txt. `make golden` rewrites what follows each query.

A file holds cases, each a query between two lines of dashes, then its plan. The query is one over an hour from
2024-01-01T00:00:00Z in steps of a minute; a comment at its end says otherwise: `# instant`, `# step 15s`, `# from 7s`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakerunner.model.errors import UserError
from lakerunner.plan.explain import plan_lines
from lakerunner.promql.operators import Limits
from lakerunner.promql.plan import PromqlFinish, PromqlQuestion, compile_promql
from lakerunner.series.values import Steps
from suites.golden import check_golden, files_of, queries_of

FILES = files_of("promql")
OPTION = re.compile(r"# (instant|raw|step|from)(?: (\d+)s)?$", re.M)
START = 1_704_067_200_000


def question_of(text: str) -> PromqlQuestion:
    options = dict(OPTION.findall(text))
    start = START + 1000 * int(options.get("from", 0))
    steps = Steps(start, START + 3_600_000, 1000 * int(options.get("step", 60)))
    if "instant" in options:
        steps = Steps(start, start)
    return PromqlQuestion(text, steps, "instant" in options, START * 1_000_000, raw="raw" in options)


def described(text: str) -> str:
    try:
        return "\n".join(plan_lines(compile_promql(question_of(text), Limits())))
    except UserError as error:
        return f"{type(error).__name__}: {error}"


def test_golden_files_are_there() -> None:
    assert len(FILES) >= 3


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_golden(path: Path) -> None:
    check_golden(path, described)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_plan_is_a_value(path: Path) -> None:
    """The same question gives the same plan, which can be a key; some of the steps give a plan of their own."""
    for query in queries_of(path):
        try:
            plan, again = (compile_promql(question_of(query), Limits()) for _ in range(2))
        except UserError:
            continue
        assert plan == again
        assert len({plan, again}) == 1
        assert repr(plan) == repr(again)
        assert isinstance(plan.finish, PromqlFinish)
        steps = plan.finish.query.steps
        assert plan.finish.within(steps) == plan
