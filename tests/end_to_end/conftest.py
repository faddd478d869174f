"""Servers that several modules take parts away from, or ask only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.lake import Lake, lake, query_api
from suites.cluster import Cluster
from suites.cluster import cluster as started
from suites.otlp_metrics import SmallLake, small_lake


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("failing")) as made:
        yield made


@pytest.fixture(scope="session")
def cluster_api(cluster: Cluster) -> Iterator[Lake]:
    with query_api(cluster.directory / "api", cluster.environment) as served:
        yield served


@pytest.fixture(scope="session")
def small(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallLake]:
    """In this process, without ingest: the tests in it use metrics of their own names."""
    with small_lake(tmp_path_factory.mktemp("small") / "lake", embedded_postgres_url) as made:
        yield made


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A whole lake, for slow tests: each uses metrics of its own names."""
    with lake(tmp_path_factory.mktemp("up") / "home", {"LAKERUNNER_ORG_QUERIES_PER_SECOND": "1000"}) as running:
        yield running
