"""Bloom filters as pyarrow writes them: no value that is there is missed, and few others are found."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.query.segment_cache.prune import NEUTRAL, ReadAt, bloom_hash, may_hold


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(value: bytes, expected: int) -> None:
    assert bloom_hash(value) == expected


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 12, 15, 16, 31, 32, 33, 40, 64, 71])
def test_every_value_is_found_whatever_its_length(size: int) -> None:
    chance = random.Random(size)
    values = [chance.randbytes(size) for _ in range(500)]
    read, place = written(values)
    assert all(may_hold(read, place, [bloom_hash(value)]) for value in values)
    if size >= 4:
        others = [chance.randbytes(size) for _ in range(500)]
        assert sum(may_hold(read, place, [bloom_hash(value)]) for value in others) < 50
        assert may_hold(read, place, [bloom_hash(others[0]), bloom_hash(values[0])])


def test_one_that_rules_nothing_out_does_so_here_too() -> None:
    chance = random.Random(0)
    values = [chance.randbytes(16) for _ in range(100)]
    assert all(may_hold(reading(NEUTRAL), (0, len(NEUTRAL)), [bloom_hash(value)]) for value in values)


@pytest.mark.parametrize("header", [b"\x00" * 50, b"\xff" * 50, NEUTRAL[:10], b"\x15\x41" + NEUTRAL[2:]])
def test_what_is_no_filter_that_we_know_rules_nothing_out(header: bytes) -> None:
    assert may_hold(reading(header), (0, len(header)), [bloom_hash(b"x")])


def written(values: list[bytes]) -> tuple[ReadAt, tuple[int, int]]:
    sink = io.BytesIO()
    table = pa.table({"id": pa.array(values, pa.binary())})
    pq.write_table(table, sink, bloom_filter_options={"id": {"ndv": 500, "fpp": 0.01}})
    chunk = pq.read_metadata(sink).row_group(0).column(0)
    return reading(sink.getvalue()), (chunk.bloom_filter_offset, chunk.bloom_filter_offset + chunk.bloom_filter_length)


def reading(data: bytes) -> ReadAt:
    return lambda start, length: data[start : start + length]
