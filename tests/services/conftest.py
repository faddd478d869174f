"""A real index with two organizations, for doors that record in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization
from servers.postgres import empty_index
from suites.recorded import ACME
from suites.tending_lake import OTHER, Lake


@pytest.fixture(scope="module")
def index(embedded_postgres_url: str) -> Iterator[Index]:
    """Shared by a module's tests, which keep apart by their buckets."""
    organizations = (DEFAULT_ORGANIZATION, Organization(ACME.id, ACME.name))
    with empty_index(embedded_postgres_url, *organizations, connections=12) as opened:
        yield opened


@pytest.fixture
def tended(embedded_postgres_url: str) -> Iterator[Lake]:
    """An index of a test's own, and jobs that make rows of it only."""
    with empty_index(embedded_postgres_url, Organization(ACME.id, ACME.name), OTHER) as opened:
        yield Lake(opened)
