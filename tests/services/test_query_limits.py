"""What settings make of the limits: one organization leaves slots for others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from lakerunner.api.limits import QueryLimits
from lakerunner.model.organization import Caller, Organization, Role
from lakerunner.services.parts import open_query_limits
from lakerunner.settings import Settings


@pytest.mark.parametrize(
    ("concurrency", "of_one", "ours", "theirs"),
    [(8, 0, 6, 2), (2, 0, 1, 1), (1, 0, 1, 0), (4, 1, 1, 1), (4, 9, 4, 0)],
)
def test_how_many_run_of_two_that_ask_without_end(concurrency: int, of_one: int, ours: int, theirs: int) -> None:
    settings = replace(Settings(), query_concurrency=concurrency, org_concurrent_queries=of_one)
    assert asyncio.run(running(open_query_limits(settings))) == [ours, theirs]


async def running(limits: QueryLimits) -> list[int]:
    counts = []
    for number in (1, 2):
        caller = Caller(Organization(UUID(int=number), f"org-{number}"), "key", frozenset({Role.READ}))
        tasks = [asyncio.create_task(limits.slot(caller)) for _ in range(10)]
        for _ in range(10):
            await asyncio.sleep(0)
        counts.append(sum(task.done() for task in tasks))
    return counts
