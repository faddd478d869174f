"""What points of rules answer is what lines answer, with the same bits for lines and bytes, however far the rules cover
the lines and whether they are merged."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from fuzz.logql.ruled import Ruled, Series, answer, query_for, ruled_lakes


def same(one: Series | str, other: Series | str, *, whole: bool) -> bool:
    """Return whether both are equal, bit for bit if they count lines or bytes."""
    if whole or isinstance(one, str) or isinstance(other, str):
        return repr(one) == repr(other)
    if list(one) != list(other) or any(one[labels].keys() != other[labels].keys() for labels in one):
        return False
    return all(close(value, other[labels][time]) for labels, values in one.items() for time, value in values.items())


def close(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-9)


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.heavy), 2])
def ruled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ruled]:
    with ruled_lakes(tmp_path_factory.mktemp("ruled"), request.param) as found:
        yield found


def test_points_answer_like_lines(ruled: Ruled) -> None:
    chance = random.Random(7)
    used = dict.fromkeys(ruled.engines, 0)
    for _ in range(40):
        version = chance.choice(ruled.versions)
        query = query_for(chance, version)
        whole = not str(version.rule.measure).startswith("sum")
        for name, engine in ruled.engines.items():
            lines, nothing = answer(engine, query)
            points, saved = answer(engine, query, ruled.versions)
            assert nothing == 0
            used[name] += saved != 0
            assert same(points, lines, whole=whole), f"{name}: {version.rule}: {query}"
    assert used.pop("twice") == 0, "lines that came twice and are not merged are counted once, as lines"
    assert min(used.values()) > 5, used


@pytest.mark.parametrize("signal", ["logs", "metrics"])
def test_lines_are_read_where_rows_or_points_have_expired(ruled: Ruled, signal: str) -> None:
    lake, engine = ruled.lakes["once"], ruled.engines["once"]
    chance = random.Random(3)
    asked = ((one, query_for(chance, one)) for one in chance.choices(ruled.versions, k=200))
    query = next(query for one, query in asked if answer(engine, query, ruled.versions)[1])
    lines, _ = answer(engine, query)
    lake.expired_ns[signal] = query.end
    try:
        points, saved = answer(engine, query, ruled.versions)
    finally:
        del lake.expired_ns[signal]
    assert (repr(points), saved) == (repr(lines), 0)
