"""The bus on PostgreSQL runs on the embedded server and on the system's own, in a migrated database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakerunner.index.index import Index
from servers.postgres import drop_database, fresh_database


@pytest.fixture(scope="session", params=["embedded", "debian"])
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    url = fresh_database(request.getfixturevalue(f"{request.param}_postgres_url"))
    index = Index.open(url, connections=2)
    index.migrate()
    index.close()
    yield url
    drop_database(url)
