"""Where a merge's row groups end: where they are full, or before a value of the first sort column that would go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from lakerunner.model.signal import LOGS
from lakerunner.pipeline.merge.output import RowGroups

SPEC = replace(LOGS, row_group_rows=8)


def groups_of(services: str, piece: int) -> list[str]:
    """The services of each row group's rows, a letter each; the batches have so many rows."""
    names = pa.array(list(services), pa.string())
    batch = pa.record_batch({"service_name": names, "timestamp": pa.array(range(len(services)), pa.int64())})
    groups = RowGroups((batch.slice(start, piece) for start in range(0, len(services), piece)), SPEC)
    return ["".join(group.column("service_name").to_pylist()) for group in taken(groups)]


def taken(groups: RowGroups) -> Iterator[pa.RecordBatch]:
    while (group := groups.take()) is not None:
        yield group


@pytest.mark.parametrize("piece", [1, 3, 8, 9, 100])
def test_a_service_that_would_go_on_begins_a_row_group(piece: int) -> None:
    assert groups_of("aaabbbbbbbbb", piece) == ["aaa", "bbbbbbbb", "b"]
    assert groups_of("aaaabbbbcccc", piece) == ["aaaabbbb", "cccc"]
    assert groups_of("aaabbbcccddd", piece) == ["aaabbb", "cccddd"]


@pytest.mark.parametrize("piece", [1, 3, 8, 9, 100])
def test_a_row_group_of_few_rows_is_filled(piece: int) -> None:
    assert groups_of("abbbbbbbbbb", piece) == ["abbbbbbb", "bbb"]
    assert groups_of("aabbbbbbbbb", piece) == ["aa", "bbbbbbbb", "b"]


@pytest.mark.parametrize("piece", [1, 3, 8, 9, 100])
def test_of_one_service_they_are_full(piece: int) -> None:
    assert groups_of("a" * 20, piece) == ["a" * 8, "a" * 8, "a" * 4]
    assert groups_of("aaabbbbb", piece) == ["aaabbbbb"]
