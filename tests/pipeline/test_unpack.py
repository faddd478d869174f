"""unpack: whole content or a reason, and never more memory than allowed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from isal import isal_zlib

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.unpack import unpack

CONTENT = random.Random(1).randbytes(3000) + b"otlp" * 50_000
PACKED = gzip.compress(CONTENT, mtime=0)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as out:
        out.write(data)
    return bytes(sink.getvalue())


ZSTD = zstd(CONTENT)
BZIP2, XZ, LZ4 = bz2.compress(CONTENT), lzma.compress(CONTENT), lz4(CONTENT)
MAX = 1 << 20


def reason(key: str, data: bytes, max_bytes: int = MAX) -> str:
    with pytest.raises(Corrupt) as caught:
        unpack(key, memoryview(data), max_bytes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("otel-raw/a/b/x.binpb", CONTENT),
        ("otel-raw/a/b/x.binpb.gz", PACKED),
        ("otel-raw/a/b/X.BINPB.GZ", PACKED),
        ("otel-raw/a/b/packed-but-not-named-so.binpb", PACKED),
        (
            "members.binpb.gz",
            gzip.compress(CONTENT[:7], mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(CONTENT[7:], mtime=0),
        ),
        ("padded.binpb.gz", PACKED + bytes(1000)),
        ("trailer-of-another.binpb.gz", gzip.compress(CONTENT[:-9], mtime=0) + gzip.compress(CONTENT[-9:], mtime=0)),
        ("x.pb", CONTENT),
        ("x.binpb.zst", ZSTD),
        ("packed-but-not-named-so.binpb", ZSTD),
        ("named-gz-but-zstd.binpb.gz", ZSTD),
        ("frames.pb.zst", zstd(CONTENT[:7]) + zstd(b"") + zstd(CONTENT[7:])),
        ("skippable.pb.zst", b"\x50\x2a\x4d\x18\x03\0\0\0abc" + ZSTD),
        ("x.binpb.bz2", BZIP2),
        ("x.binpb.xz", XZ),
        ("x.binpb.lz4", LZ4),
        ("named-otherwise.binpb.gz", BZIP2),
        ("not-named-so.pb", XZ),
        ("not-named-so.pb", LZ4),
        ("streams.pb.bz2", bz2.compress(CONTENT[:7]) + bz2.compress(b"") + bz2.compress(CONTENT[7:])),
        ("streams.pb.xz", lzma.compress(CONTENT[:7]) + bytes(4) + lzma.compress(CONTENT[7:]) + bytes(200_000)),
        ("frames.pb.lz4", lz4(CONTENT[:7]) + lz4(CONTENT[7:])),
        ("rotated.binpb.1", CONTENT),
        ("rotated.binpb-20261117.gz", PACKED),
        ("rotated.binpb.2026-11-17_13.bz2", BZIP2),
    ],
)
def test_content_comes_out_whole(key: str, data: bytes) -> None:
    assert unpack(key, memoryview(data), MAX) == ("otlp", CONTENT)


def test_plain_content_is_not_copied() -> None:
    data = memoryview(CONTENT)
    assert unpack("x.binpb", data, MAX)[1] is data


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        ("binpb", "otlp"),
        ("pb", "otlp"),
        ("json", "otlp_json"),
        ("jsonl", "jsonl"),
        ("ndjson", "jsonl"),
        ("csv", "csv"),
        ("parquet", "parquet"),
        ("prw1", "prw1"),
        ("prw2", "prw2"),
        ("lokipb", "lokipb"),
        ("lokijson", "lokijson"),
    ],
)
def test_the_ending_says_the_format_however_it_is_packed(ending: str, found: str) -> None:
    assert unpack(f"a/b/x.{ending}", memoryview(CONTENT), MAX) == (found, CONTENT)
    assert unpack(f"a/b/x.{ending}.gz", memoryview(PACKED), MAX) == (found, CONTENT)
    assert unpack(f"a/b/x.{ending.upper()}.zst", memoryview(ZSTD), MAX) == (found, CONTENT)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (lambda: ZSTD[:-3], "cut short"),
        (lambda: ZSTD[:4], "cut short"),
        (lambda: ZSTD + b"something else", "damaged"),
        (lambda: ZSTD[:-10] + b"\xff" * 10, "damaged"),
        (lambda: CONTENT, "damaged, or not zstd"),
    ],
)
def test_what_is_no_whole_zstd_says_why(data: Callable[[], bytes], expected: str) -> None:
    assert expected in reason("x.csv.zst", data())


@pytest.mark.parametrize(
    ("key", "data", "expected"),
    [
        ("x.log.bz2", BZIP2[:-3], "the bzip2 file is cut short"),
        ("x.log.bz2", BZIP2 + b"something else", "the bzip2 file is damaged, or not bzip2: "),
        ("x.log.bz2", CONTENT, "the bzip2 file is damaged, or not bzip2: "),
        ("x.log.xz", XZ[:-3], "the xz file is cut short"),
        ("x.log.xz", XZ[:-20] + b"\xff" * 20, "the xz file is damaged, or not xz: "),
        ("x.log.lz4", LZ4[:-9], "the lz4 file is cut short"),
        ("x.log.lz4", CONTENT, "the lz4 file is damaged, or not lz4: "),
        ("x.log.bz2", bz2.compress(b"") * 100_001, "the bzip2 file has more than 100000 streams"),
    ],
)
def test_what_is_no_whole_bzip2_xz_or_lz4_says_why(key: str, data: bytes, expected: str) -> None:
    assert reason(key, data).startswith(expected)


@pytest.mark.parametrize("packed", [bz2.compress, lzma.compress, lz4])
def test_other_bombs_are_stopped_at_the_limit(packed: Callable[[bytes], bytes]) -> None:
    assert "more than 1048576 bytes" in reason("x.log", packed(b"a" * (8 << 20)))


def framed(*messages: bytes) -> bytes:
    """As the collector's file exporter writes them."""
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


@pytest.mark.parametrize(
    ("key", "data", "expected"),
    [
        ("x.pb", framed(b"\x0a\x00", b"\x0a\x01\x0a"), b"\x0a\x00\x0a\x01\x0a"),
        ("x.binpb.gz", gzip.compress(framed(b"\x0a\x00"), mtime=0), b"\x0a\x00"),
        ("x.pb", framed(zstd(b"\x0a\x00"), zstd(CONTENT)), b"\x0a\x00" + CONTENT),
        ("x.json", framed(zstd(b'{"a":1}'), zstd(b'{"b":2}')), b'{"a":1}\n{"b":2}\n'),
        ("x.jsonl", b"\0\0\0\xff{}", b"\0\0\0\xff{}"),
        ("x.pb", b"\0\0\0", b"\0\0\0"),
        ("x.log", framed(b"text"), framed(b"text")),
    ],
)
def test_frames_of_the_file_exporter_are_taken_off(key: str, data: bytes, expected: bytes) -> None:
    assert unpack(key, memoryview(data), MAX)[1] == expected


def test_a_frame_that_is_cut_short_is_named() -> None:
    cut = "byte 6: a frame of the collector's file exporter is cut short"
    assert reason("x.pb", framed(b"\x0a\x00", b"\x0a\x00")[:-1]) == cut
    assert reason("x.pb", framed(b"\x0a\x00") + b"\0\0") == cut
    assert "more than 100 bytes" in reason("x.pb", framed(b"\x0a\x00", zstd(bytes(200))), 100)
    assert "more than 1000000 frames" in reason("x.pb", bytes(4_000_004), 1 << 23)


def test_a_zip_archive_is_not_taken_for_lines() -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("x.log", "one line\n")
    assert reason("x.log", archive.getvalue()) == (
        "this is a zip archive: unpack it, and pack each file with gzip or zstd if it is large"
    )


def test_a_zstd_bomb_is_stopped_at_the_limit() -> None:
    packed = zstd(bytes(64 << 20))
    assert len(packed) < 16 << 10
    assert "more than 1048576 bytes" in reason("x.csv.zst", packed)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PACKED[:-3], "cut short"),
        (PACKED[: len(PACKED) // 2], "cut short"),
        (PACKED[:5], "cut short"),
        (PACKED[:-8] + b"\1\2\3\4" + PACKED[-4:], "CRC"),
        (PACKED[:-4] + b"\1\2\3\4", "length"),
        (PACKED + b"something else", "damaged"),
        (PACKED[:10] + b"\xff" * 30 + PACKED[40:], "damaged"),
        (CONTENT, "not gzip"),
    ],
)
def test_what_cannot_be_unpacked_says_why(data: bytes, expected: str) -> None:
    assert expected in reason("x.binpb.gz", data)


@pytest.mark.parametrize(
    ("key", "data"),
    [("x.binpb", b""), ("x.csv.gz", b""), ("x.csv.gz", gzip.compress(b"", mtime=0)), ("x.json.zst", zstd(b""))],
)
def test_what_is_empty_packed_or_not_is_empty(key: str, data: bytes) -> None:
    assert unpack(key, memoryview(data), MAX)[1] == b""


def test_an_unknown_ending_names_the_known_ones() -> None:
    assert reason("otel-raw/a/b/x.xyz.gz", b"{}") == (
        "'otel-raw/a/b/x.xyz.gz' has an unknown ending. Known are .binpb, .pb, .json, .jsonl, .ndjson, .csv, .tsv, "
        ".parquet, .log, .txt, .prw1, .prw2, .lokipb, .lokijson, each also with .gz, .zst, .bz2, .xz or .lz4"
    )


@pytest.mark.parametrize(
    "packed",
    [CONTENT, PACKED, BZIP2, XZ, LZ4, gzip.compress(CONTENT[:5], mtime=0) + gzip.compress(CONTENT[5:], mtime=0), ZSTD],
)
def test_the_limit_is_exact(packed: bytes) -> None:
    assert len(unpack("x.binpb", memoryview(packed), len(CONTENT))[1]) == len(CONTENT)
    assert reason("x.binpb", packed, len(CONTENT) - 1) == (
        f"the file unpacks to more than {len(CONTENT) - 1} bytes: raise object_max_bytes to ingest it"
    )


def test_many_empty_members_take_linear_time() -> None:
    assert unpack("x.binpb.gz", memoryview(gzip.compress(b"", mtime=0) * 200_000), 1 << 30)[1] == b""


def bomb(path: Path, size: int, stated: int | None = None) -> None:
    """`size` zeros, gzipped, without ever holding them; `stated` is what the trailer says."""
    packer, crc, block = isal_zlib.compressobj(wbits=-15), 0, bytes(1 << 20)
    with path.open("wb") as out:
        out.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff")
        for _ in range(size >> 20):
            crc = isal_zlib.crc32(block, crc)
            out.write(packer.compress(block))
        out.write(packer.flush())
        out.write(crc.to_bytes(4, "little") + (size if stated is None else stated).to_bytes(4, "little"))


_IN_A_PROCESS_OF_ITS_OWN = """
import resource, sys
from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.unpack import unpack
data = memoryview(open(sys.argv[1], "rb").read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpack("bomb.binpb.gz", data, 32 << 20)
except Corrupt as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("stated", [None, 0, 5])
def test_a_bomb_of_a_gigabyte_is_stopped_at_the_limit(tmp_path: Path, stated: int | None) -> None:
    path = tmp_path / "bomb.binpb.gz"
    bomb(path, 1 << 30, stated)
    assert path.stat().st_size < 8 << 20
    run = [sys.executable, "-c", _IN_A_PROCESS_OF_ITS_OWN, str(path)]
    message, grown_mb = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert message == f"the file unpacks to more than {32 << 20} bytes: raise object_max_bytes to ingest it"
    assert int(grown_mb) < 48  # the limit, and some slack; not the gigabyte


def test_a_small_file_that_claims_to_be_large_holds_little(tmp_path: Path) -> None:
    path = tmp_path / "liar.binpb.gz"
    bomb(path, 1 << 20, stated=1 << 29)
    assert "length" in reason("liar.binpb.gz", path.read_bytes(), 1 << 30)
