"""Servers that several modules take parts away from, or ask only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.lake import Lake, query_api
from suites.cluster import Cluster
from suites.cluster import cluster as started


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("failing")) as made:
        yield made


@pytest.fixture(scope="session")
def cluster_api(cluster: Cluster) -> Iterator[Lake]:
    with query_api(cluster.directory / "api", cluster.environment) as served:
        yield served
