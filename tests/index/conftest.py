"""Every index test runs on the embedded server and on the system's own, each in a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from index_values import ACME, OTHER

from lakerunner.index.index import Index
from servers.postgres import drop_database, fresh_database


@pytest.fixture(params=["embedded", "debian"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database."""
    url = fresh_database(request.getfixturevalue(f"{request.param}_postgres_url"))
    yield url
    drop_database(url)


@pytest.fixture
def index(database_url: str) -> Iterator[Index]:
    """Migrated, with two organizations."""
    opened = Index.open(database_url, connections=12)
    opened.migrate()
    opened.organizations.create(ACME)
    opened.organizations.create(OTHER)
    yield opened
    opened.close()
