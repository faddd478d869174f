"""Random LogQL gives the answers of a slow evaluator, and the same in lakes of every form (`make fuzz-logql`: more)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fuzz.logql.grammar import random_query
from fuzz.logql.run import RandomLogql, random_logql

SEED = 16


@pytest.fixture(scope="module")
def logql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RandomLogql]:
    with random_logql(tmp_path_factory.mktemp("random"), SEED) as found:
        yield found


@pytest.mark.parametrize(
    ("seed", "queries", "every"),
    [pytest.param(1, 100, 5), pytest.param(2, 500, 1, marks=pytest.mark.slow)],
)
def test_random_logql(logql: RandomLogql, seed: int, queries: int, every: int) -> None:
    chance = random.Random(seed)
    for number in range(queries):
        query = random_query(chance)
        assert logql.problem(query, everywhere=number % every == 0) is None, str(query)
    assert logql.counts["equal"] > queries // 4, "too few of the queries have an answer to compare"
