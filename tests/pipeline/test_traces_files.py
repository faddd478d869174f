"""Real OTLP trace files: every span, event and link, every field and attribute, as protobuf decodes them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lakerunner.model.signal import TRACES
from pipeline.otlp_oracle import actual, assert_same, make, raw_of
from pipeline.traces_oracle import decoded, expected, expected_index, index_of, with_items_by_key


def test_every_file_comes_back_whole(shared_data: Path) -> None:
    paths = sorted((shared_data / "traces").glob("*.gz"))
    assert len(paths) >= 3
    for path in paths:
        data = gzip.decompress(path.read_bytes())
        made, files = make(raw_of(data, path.name), spec=TRACES)
        assert made.failed == ()
        wanted = expected([decoded(data)])
        assert_same(with_items_by_key(actual(made.segments, files)), wanted)
        assert any(row["flags"] for row in wanted) or any(row["events"] for row in wanted)


def test_all_files_together_come_back_whole_with_their_index(shared_data: Path) -> None:
    paths = sorted((shared_data / "traces").glob("*.gz"))
    contents = [gzip.decompress(path.read_bytes()) for path in paths]
    raws = [raw_of(data, path.name) for path, data in zip(paths, contents, strict=True)]
    made, files = make(*raws, spec=TRACES)
    assert len(made.done) == len(paths)
    assert len(files) == 2 * len(made.segments)
    wanted = expected(map(decoded, contents))
    assert_same(with_items_by_key(actual(made.segments, files)), wanted)
    for segment in made.segments:
        rows, wanted = wanted[: segment.rows], wanted[segment.rows :]
        assert index_of(segment, files) == expected_index(rows)


@pytest.mark.parametrize("signal", ["logs", "metrics"])
def test_files_of_another_signal_are_refused(shared_data: Path, signal: str) -> None:
    paths = sorted((shared_data / signal).glob("*.gz"))
    assert paths
    for path in paths:
        made, files = make(raw_of(gzip.decompress(path.read_bytes()), path.name), spec=TRACES)
        assert files == {}
        ((_, reason),) = made.failed
        assert reason.startswith("not an OTLP traces request: byte ")
        assert f"this looks like an OTLP {signal} request" in reason or "Span.attributes" in reason
