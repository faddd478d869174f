"""Puts tests/ on the path (for suites and servers) and starts the servers that several packages share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).resolve().parent
REPO = TESTS.parent
sys.path.insert(0, str(TESTS))

from servers.kafka import KafkaBroker, kafka_broker  # noqa: E402
from servers.postgres import debian_postgres, embedded_postgres  # noqa: E402
from servers.seaweedfs import S3Server, seaweedfs  # noqa: E402

Temporary = pytest.TempPathFactory

# Examples are the same in every run, so that a landing is judged by its own change; `make test-all` draws new ones.
settings.register_profile("steady", derandomize=True, deadline=None)  # the first example may compile a kernel
settings.register_profile("random", print_blob=True, deadline=None)
settings.load_profile("random" if os.environ.get("EXAMPLES") == "random" else "steady")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real telemetry, beside the repo; not part of it."""
    data = REPO.parent / "shared" / "data" / "otlp"
    if not data.is_dir():
        pytest.skip("real telemetry is not there: ../shared/data/otlp is absent")
    return data


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: Temporary) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: Temporary) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka"), REPO / ".cache" / "kafka-libs") as broker:
        yield broker


@pytest.fixture(scope="session")
def embedded_postgres_url(tmp_path_factory: Temporary) -> Iterator[str]:
    with embedded_postgres(tmp_path_factory.mktemp("embedded_postgres")) as url:
        yield url


@pytest.fixture(scope="session")
def debian_postgres_url(tmp_path_factory: Temporary) -> Iterator[str]:
    with debian_postgres(tmp_path_factory.mktemp("debian_postgres")) as url:
        yield url
