"""Doors are tested on a real index and on real stores: local files and S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lakerunner.api.push.push_store import PushStore
from lakerunner.index.index import Index
from lakerunner.model.source import Routes
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectMeta, ObjectStore
from lakerunner.pipeline.push_check import warm
from lakerunner.services.announce import Announcer
from servers.postgres import empty_index
from suites.doors import Doors, open_doors
from suites.pushed import ACME, OTHER


@pytest.fixture
def index(embedded_postgres_url: str) -> Iterator[Index]:
    """Migrated, with two organizations, in a database of its own."""
    with empty_index(embedded_postgres_url, ACME, OTHER) as opened:
        yield opened


@pytest.fixture(params=["local", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    if request.param == "s3":
        bucket: StoreAddress = request.getfixturevalue("s3_server").address("push")
        return replace(bucket, url=f"{bucket.url}/{uuid4().hex}")
    (tmp_path / "store").mkdir()
    return StoreAddress((tmp_path / "store").as_uri())


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return open_store(address)


@pytest.fixture
def announce(index: Index, store: ObjectStore) -> Callable[[Sequence[ObjectMeta]], object]:
    return Announcer(index, store, Routes().route_of).metas


@pytest.fixture
def keeper(index: Index, store: ObjectStore, announce: Callable[[Sequence[ObjectMeta]], object]) -> PushStore:
    """One that does not wait for others that may still be storing."""
    return PushStore(store, index.pushes, announce, claim_seconds=0)


@pytest.fixture(scope="session")
def warmed() -> None:
    """Machine code is there: a client's patience is not for compilers."""
    warm()


@pytest.fixture
def doors(index: Index, keeper: PushStore, warmed: None) -> Iterator[Doors]:
    with open_doors(index, keeper) as opened:
        yield opened
