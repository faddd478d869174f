"""Room on the local disk: nobody's is cleared away while he works, everybody's when he is dead."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakerunner.pipeline.merge.inputs import SCRATCH_PREFIX, scratch


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_ours_and_gone_afterwards(parent: Path) -> None:
    with scratch() as directory:
        (directory / "rows.parquet").write_bytes(b"rows")
        with scratch() as other:
            assert other != directory
        assert (directory / "rows.parquet").read_bytes() == b"rows"
    assert list(parent.iterdir()) == []


def test_what_the_dead_left_behind_is_cleared_away(parent: Path) -> None:
    left = parent / f"{SCRATCH_PREFIX}dead"
    left.mkdir()
    (left / "lock").touch()
    (left / "rows.parquet").write_bytes(b"rows")
    with scratch() as directory:
        assert list(parent.iterdir()) == [directory]


def test_many_who_begin_at_once_leave_each_other_alone(parent: Path) -> None:
    def work(_: int) -> bytes:
        with scratch() as directory:
            (directory / "rows.parquet").write_bytes(b"rows")
            return (directory / "rows.parquet").read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(2_000))) == {b"rows"}
    assert list(parent.iterdir()) == []
