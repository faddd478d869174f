"""Real OTLP metrics files: every point, every field, every attribute with its type, as protobuf decodes them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipeline.metrics_oracle import actual, decoded, expected, expected_series, make_metrics, series_rows
from pipeline.otlp_oracle import assert_same


def contents(shared_data: Path, signal: str = "metrics") -> list[bytes]:
    paths = sorted((shared_data / signal).glob("*.gz"))
    assert len(paths) >= 3
    return [gzip.decompress(path.read_bytes()) for path in paths]


@pytest.mark.slow
def test_every_file_comes_back_whole(shared_data: Path) -> None:
    for data in contents(shared_data):
        made, files = make_metrics(data)
        assert made.failed == ()
        assert_same(actual(made, files), expected([decoded(data)]))


@pytest.mark.slow
def test_all_files_together_come_back_whole_with_their_series(shared_data: Path) -> None:
    datas = contents(shared_data)
    made, files = make_metrics(*datas)
    assert len(made.done) == len(datas)
    assert len(files) == 2 * len(made.segments)
    wanted = expected(map(decoded, datas))
    assert_same(actual(made, files), wanted)
    kinds = {row["metric_type"] for row in wanted}
    assert kinds >= {"gauge", "sum", "histogram"}
    for segment in made.segments:
        rows, wanted = wanted[: segment.rows], wanted[segment.rows :]
        assert series_rows(segment, files) == expected_series(rows)


@pytest.mark.parametrize("signal", ["logs", "traces"])
def test_files_of_another_signal_are_refused(shared_data: Path, signal: str) -> None:
    for data in contents(shared_data, signal):
        made, files = make_metrics(data)
        assert files == {}
        ((_, reason),) = made.failed
        assert reason.startswith("not an OTLP metrics request: byte ")
