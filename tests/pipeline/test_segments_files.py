"""Real OTLP log files: every record, every field, every attribute with its type, as protobuf decodes them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lakerunner.model.segment import Column
from pipeline.otlp_oracle import actual, assert_same, decoded, expected, make, raw_of


def test_every_file_comes_back_whole(shared_data: Path) -> None:
    paths = sorted((shared_data / "logs").glob("*.gz"))
    assert len(paths) >= 3
    for path in paths:
        data = gzip.decompress(path.read_bytes())
        made, files = make(raw_of(data, path.name))
        assert made.failed == ()
        assert_same(actual(made.segments, files), expected([decoded(data)]))


def test_all_files_together_come_back_whole(shared_data: Path) -> None:
    paths = sorted((shared_data / "logs").glob("*.gz"))
    contents = [gzip.decompress(path.read_bytes()) for path in paths]
    made, files = make(*(raw_of(data, path.name) for path, data in zip(paths, contents, strict=True)))
    assert len(made.done) == len(paths)
    assert_same(actual(made.segments, files), expected(map(decoded, contents)))
    shredded = {column for segment in made.segments for column in segment.columns if column.type}
    assert Column("attributes._cardinalhq.fingerprint", "int64") in shredded
    assert Column("attributes.req", "json") in shredded
    assert Column("resource.process.command_args", "json") in shredded


@pytest.mark.parametrize("signal", ["metrics", "traces"])
def test_files_of_another_signal_are_refused_by_name(shared_data: Path, signal: str) -> None:
    paths = sorted((shared_data / signal).glob("*.gz"))
    assert paths
    for path in paths:
        made, files = make(raw_of(gzip.decompress(path.read_bytes()), path.name))
        assert files == {}
        ((_, reason),) = made.failed
        assert f"this looks like an OTLP {signal} request" in reason
