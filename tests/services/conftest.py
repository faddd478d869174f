"""A real index with two organizations, for doors that record in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tending_lake import OTHER, Lake

from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization
from servers.postgres import drop_database, fresh_database
from suites.recorded import ACME


@pytest.fixture(scope="module")
def index(embedded_postgres_url: str) -> Iterator[Index]:
    """Shared by a module's tests, which keep apart by their buckets."""
    url = fresh_database(embedded_postgres_url)
    opened = Index.open(url, connections=12)
    opened.migrate()
    for organization in (DEFAULT_ORGANIZATION, Organization(ACME.id, ACME.name)):
        opened.organizations.create(organization)
    yield opened
    opened.close()
    drop_database(url)


@pytest.fixture
def tended(embedded_postgres_url: str) -> Iterator[Lake]:
    """An index of a test's own, and jobs that make rows of it only."""
    url = fresh_database(embedded_postgres_url)
    opened = Index.open(url)
    opened.migrate()
    for organization in (Organization(ACME.id, ACME.name), OTHER):
        opened.organizations.create(organization)
    yield Lake(opened)
    opened.close()
    drop_database(url)
