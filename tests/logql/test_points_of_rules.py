"""What points of rules answer is what lines answer, with the same bits for lines and bytes, however far the rules cover
the lines and whether they are merged."""

from __future__ import annotations

import math
import random

import pytest

from fuzz.logql.ruled import Ruled, Series, answer, query_for, ruled_lakes


def same(one: Series | str, other: Series | str, *, whole: bool) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    if whole:
        return repr(one) == repr(other)
    if list(one) != list(other) or any(one[labels].keys() != other[labels].keys() for labels in one):
        return False
    pairs = ((value, other[labels][time]) for labels, values in one.items() for time, value in values.items())
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-9) for a, b in pairs
    )


@pytest.fixture(scope="module", params=[1, 2])
def ruled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    with ruled_lakes(tmp_path_factory.mktemp("ruled"), request.param) as found:
        yield found


def test_points_answer_like_lines(ruled: Ruled) -> None:
    chance = random.Random(7)
    used = dict.fromkeys(ruled.engines, 0)
    for _ in range(120):
        version = chance.choice(ruled.versions)
        query = query_for(chance, version)
        for name, engine in ruled.engines.items():
            raw, nothing = answer(engine, query)
            made, saved = answer(engine, query, ruled.versions)
            assert nothing == 0
            used[name] += saved != 0
            assert same(made, raw, whole=not str(version.rule.measure).startswith("sum")), (
                f"{name} {version.rule} {query}"
            )
    assert min(used.values()) > 10, used
