"""Every index test runs on the embedded server and on the system's own, each in a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from index.index_values import ACME, OTHER
from lakerunner.index.index import Index
from servers.postgres import drop_database, empty_index, fresh_database


@pytest.fixture(params=["embedded", "debian"])
def server_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_postgres_url")
    return url


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    """An empty database."""
    url = fresh_database(server_url)
    yield url
    drop_database(url)


@pytest.fixture
def index(server_url: str) -> Iterator[Index]:
    """Migrated, with two organizations."""
    with empty_index(server_url, ACME, OTHER, connections=12) as opened:
        yield opened
