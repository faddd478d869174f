"""Puts tests/ on the path (for suites and servers) and starts the servers that several packages share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
REPO = TESTS.parent
sys.path.insert(0, str(TESTS))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real telemetry, beside the repo; not part of it."""
    data = REPO.parent / "shared" / "data" / "otlp"
    if not data.is_dir():
        pytest.skip("real telemetry is not there: ../shared/data/otlp is absent")
    return data
