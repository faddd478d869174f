"""Reading a text index: what it says of itself, what it refuses, and that cases of letters are alike as in SQL."""

from __future__ import annotations

import re
import sys
import zlib

import duckdb
import pytest

from lakerunner.model.errors import Corrupt
from lakerunner.model.text_index import (
    CHECKSUM,
    HEADER,
    MAGIC,
    RUN_LEAST,
    TOKENS,
    TextIndex,
    TextQuery,
    attribute_query,
    digest,
    fold,
    grams,
    text_query,
)


def summed(file: bytes) -> bytes:
    return file + CHECKSUM.pack(zlib.crc32(file))


NOTHING = summed(HEADER.pack(MAGIC, 2, 0, 3, 0, 7, 0, 5, 0, 4))
# Three row groups; the tokens' bloom has one row of bits, in which the first and the last group have theirs.
ONE_ROW = summed(HEADER.pack(MAGIC, 2, 0, 3, 1, 7, 0, 5, 0, 4) + bytes([0b101]))
BEFORE = HEADER.pack(MAGIC, 1, 0, 3, 1, 7, 0, 5, 0, 4) + bytes([0b101])  # without a checksum


def test_the_hash_never_changes() -> None:
    """It is in the files that are there."""
    assert [digest(data, 1) for data in (b"", b"a", b"timeout", b"8 bytes!", b"more than 8 bytes")] == [
        0x1155780EEDA5205E,
        0x9D56A0FD51604362,
        0x8D146A235D668CF4,
        0xA21B91C45E2284E8,
        0x818DE30064941AD4,
    ]


def test_a_segment_without_any_text_has_no_candidate() -> None:
    assert TextIndex(NOTHING).holding(text_query("text")) == []
    assert TextIndex(NOTHING).holding(text_query("te")) == [0, 1, 2]  # nothing in it can be asked for
    assert TextIndex(NOTHING).holding(text_query("")) == [0, 1, 2]
    assert TextIndex(NOTHING).holding(attribute_query("short")) == [0, 1, 2]
    assert TextIndex(NOTHING).holding(attribute_query("f" * RUN_LEAST)) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "wrong first bytes"),
        (NOTHING[:35], "wrong first bytes"),
        (b"PAR1" + NOTHING[4:], "wrong first bytes"),
        (NOTHING + b"\0", "its header says 40"),
        (ONE_ROW[:-1], "its header says 41"),
        (BEFORE + b"\0", "its header says 37"),
        (MAGIC + b"\1\0" + ONE_ROW[6:], "its header says 37"),
        (MAGIC + b"\3\0" + NOTHING[6:], "version 3, this release reads versions up to 2"),
        (ONE_ROW[:36] + bytes([0b100]) + ONE_ROW[37:], "checksum of the text index is wrong"),
        (ONE_ROW[:16] + b"\6" + ONE_ROW[17:], "checksum of the text index is wrong"),
        (ONE_ROW[:-1] + bytes([ONE_ROW[-1] ^ 1]), "checksum of the text index is wrong"),
    ],
)
def test_what_is_no_index_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason):
        TextIndex(data).holding(text_query("text"))


def test_an_index_of_before_checksums_is_read() -> None:
    assert TextIndex(BEFORE).holding(TextQuery(((TOKENS, 5, 7),))) == [0, 2]
    assert TextIndex(ONE_ROW).holding(TextQuery(((TOKENS, 5, 7),))) == [0, 2]


def test_every_sign_that_sql_takes_for_an_ascii_letter_is_folded_to_it() -> None:
    signs = [chr(code) for code in range(128, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    with duckdb.connect() as connection:
        query = "select sign, lower(sign), upper(sign) from (select unnest(?) as sign)"
        lowered = connection.execute(query, [signs]).fetchall()
    for sign, lower, upper in lowered:
        for other in (lower, upper):
            if len(other) == 1 and other.isascii():
                assert fold(sign.encode()) == other.lower().encode(), hex(ord(sign))


def test_every_sign_that_a_regular_expression_takes_for_an_ascii_letter_is_folded_to_it() -> None:
    beyond = "".join(chr(code) for code in range(128, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    for letter in "abcdefghijklmnopqrstuvwxyz":
        for sign in re.findall(f"(?i){letter}", beyond):
            assert fold(sign.encode()) == letter.encode(), hex(ord(sign))


def test_runs_that_share_enough_share_a_gram() -> None:
    one, other = b"id-4bf92f3577b34da6a3ce929d0e0e4736", b"xx_577b34da6a3ce929zz"
    shared = b"577b34da6a3ce929"
    assert len(shared) == RUN_LEAST
    assert list(grams(shared)) != []
    assert set(grams(shared)) <= set(grams(one)) & set(grams(other))
    assert list(grams(shared[1:])) == []
