"""The text index of a log segment: which row groups may hold a text. docs/formats/text_index.md states the file.

Comes in: the bytes of the side file `text.bin` and a literal that a message must contain. Goes out: the numbers of the
row groups that may hold such a message. What always holds: a row group that holds one is among them, whatever the
literal; others may be too. Nothing is read here, so any planner may use it; pipeline/segment/text_index.py builds the
file.

A message and a literal are compared after `fold`, which equates letters of either case: the index serves searches
that respect case and those that ignore it.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakerunner.model.errors import Corrupt

SIDE_FILE = "text.bin"
MAGIC = b"LRTX"
VERSION = 2
_WITHOUT_CHECKSUM = 1  # the version before: the same without a checksum

# Characters beyond ASCII that are an ASCII letter in another case: long s, Kelvin sign, dotted and dotless i.
OTHER_CASE = {b"\xc5\xbf": b"s", b"\xe2\x84\xaa": b"k", b"\xc4\xb0": b"i", b"\xc4\xb1": b"i"}
# A token is a run of these bytes, kept where it has TOKEN_LEAST to RUN_LEAST - 1 of them.
TOKEN_BYTES = rb"0-9a-z_\x80-\xff"
TOKEN_LEAST = 3
# A run is one of these bytes, and long ones are ids: kept are the grams of GRAM bytes that come first, by the hash
# ORDER, in some window of WINDOW grams. So two runs that share RUN_LEAST bytes in a row share a gram that is kept.
RUN_BYTES = rb"0-9a-z_\-"
RUN_LEAST = 16
GRAM = 8
WINDOW = RUN_LEAST - GRAM + 1
# Trigrams are any three bytes; only the lower seven bits of each byte count.
TRIGRAM_BITS = 7


@dataclass(frozen=True)
class Bloom:
    """One kind of entries: the seed of their hash, and how many bits and probes each gets."""

    seed: int
    bits: int
    probes: int


TOKENS, GRAMS, TRIGRAMS = Bloom(1, 10, 7), Bloom(2, 8, 5), Bloom(3, 8, 4)
BLOOMS = (TOKENS, GRAMS, TRIGRAMS)
ORDER = 4

HEADER = struct.Struct("<4sHHI" + "II" * len(BLOOMS))  # magic, version, 0, row groups, and (rows, probes) of each bloom
CHECKSUM = struct.Struct("<I")  # behind the bits: the CRC-32 of all before it

_MASK = 2**64 - 1
_LOW = 2**32 - 1
_TOKEN = re.compile(rb"[" + TOKEN_BYTES + rb"]+")
_RUN = re.compile(rb"[" + RUN_BYTES + rb"]{%d,}" % RUN_LEAST)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")


@dataclass(frozen=True)
class TextQuery:
    """What a text must contain, hashed once to be looked up in many indexes: for each entry its bloom, and both halves
    of its hash. The rarest entries, which rule out most, come first."""

    entries: tuple[tuple[Bloom, int, int], ...]

    @classmethod
    def build(cls, kinds: Iterable[tuple[Bloom, set[bytes]]]) -> TextQuery:
        made = []
        for bloom, entries in kinds:
            for entry in sorted(entries):
                hash_ = digest(entry, bloom.seed) | 1
                made.append((bloom, hash_ & _LOW, hash_ >> 32 | 1))
        return cls(tuple(made))


def text_query(literal: str, *, ignore_case: bool = False, is_word: bool = False) -> TextQuery:
    """Return the query for messages that contain this literal. Ignoring case maps one letter to one letter, as SQL's
    ILIKE and regular expressions do. `is_word`: no byte of a token is before or behind it."""
    # The other case of a character beyond ASCII is unknown here: nothing next to it is looked up.
    parts = _BEYOND_ASCII.split(literal) if ignore_case else [literal]
    folded = [fold(part.encode()) for part in parts]
    whole = is_word and len(folded) == 1
    return TextQuery.build(
        [
            (TOKENS, {token for part in folded for token in _bounded_tokens(part, whole=whole)}),
            (GRAMS, {gram for part in folded for gram in grams(part)}),
            (TRIGRAMS, {trigram for part in folded for trigram in _trigrams(part)}),
        ]
    )


def attribute_query(value: str) -> TextQuery:
    """Return the query for records with this string, or a longer one that contains it, as the value of one of their own
    attributes: for ids, since the index has only long runs of letters and digits of attributes."""
    return TextQuery.build([(GRAMS, set(grams(fold(value.encode()))))])


def fold(text: bytes) -> bytes:
    """Return the same text for all texts that differ only in the case of ASCII letters."""
    text = text.lower()
    for sign, letter in OTHER_CASE.items():
        text = text.replace(sign, letter)
    return text


def digest(data: bytes, seed: int) -> int:
    """Compute pipeline/read/memory.digest of these bytes."""
    value = _multiplied(seed ^ 0x9E3779B97F4A7C15, len(data) ^ 0xE7037ED1A0B428DB)
    for at in range(0, max(len(data) - 8, 0), 8):
        value = _multiplied(value ^ int.from_bytes(data[at : at + 8], "little"), 0xA0761D6478BD642F)
    if data:
        last = (len(data) - 1) // 8 * 8
        value = _multiplied(value ^ int.from_bytes(data[last:], "little"), 0x8EBC6AF09C88C6E3)
    return value


def grams(folded: bytes) -> Iterator[bytes]:
    """Yield the grams that are kept of the long runs in a folded text."""
    for match in _RUN.finditer(folded):
        run = match.group()
        all_of_it = [run[at : at + GRAM] for at in range(len(run) - GRAM + 1)]
        order = [digest(gram, ORDER) for gram in all_of_it]
        for first in range(len(all_of_it) - WINDOW + 1):
            yield all_of_it[order.index(min(order[first : first + WINDOW]), first)]


def _multiplied(one: int, other: int) -> int:
    """Return the xor of both halves of the 128-bit product."""
    product = one * other
    return (product ^ product >> 64) & _MASK


def _bounded_tokens(folded: bytes, *, whole: bool) -> Iterator[bytes]:
    """Yield the tokens that end inside the literal: one at its edge may be part of a longer token in the message,
    unless the literal is a `whole` word."""
    for match in _TOKEN.finditer(folded):
        ends_inside = whole or (match.start() > 0 and match.end() < len(folded))
        if ends_inside and TOKEN_LEAST <= len(match.group()) < RUN_LEAST:
            yield match.group()


def _trigrams(folded: bytes) -> Iterator[bytes]:
    classes = bytes(byte & (1 << TRIGRAM_BITS) - 1 for byte in folded)
    for at in range(len(classes) - 2):
        yield classes[at : at + 3]


class TextIndex:
    """A text index whose header was read. Raise Corrupt if the file has an unknown version, or differs from what was
    written: an index that lacks a bit would hide rows."""

    def __init__(self, file: bytes | memoryview) -> None:
        data = memoryview(file)
        if len(data) < HEADER.size or bytes(data[:4]) != MAGIC:
            raise Corrupt("not a text index: wrong first bytes")
        _, version, _, self.groups, *sizes = HEADER.unpack_from(data)
        if version not in (VERSION, _WITHOUT_CHECKSUM):
            raise Corrupt(f"text index has version {version}, this release reads versions up to {VERSION}")
        self._slices = {}
        at = HEADER.size
        for bloom, rows, probes in zip(BLOOMS, sizes[::2], sizes[1::2], strict=True):
            end = at + -(-rows * self.groups // 8)
            self._slices[bloom] = data[at:end], rows, probes
            at = end
        self.bits = data[HEADER.size : at]
        whole = at + CHECKSUM.size if version == VERSION else at
        if len(data) != whole:
            raise Corrupt(f"text index has {len(data)} bytes, its header says {whole}")
        if whole > at and CHECKSUM.unpack_from(data, at) != (zlib.crc32(data[:at]),):
            raise Corrupt("checksum of the text index is wrong")

    def holding(self, what: TextQuery) -> list[int]:
        """Return the row groups that may match: those whose blooms have all entries of the query."""
        groups = self.groups
        alive = (1 << groups) - 1  # one bit for each row group: a probe tests all of them in one operation
        for bloom, at, step in what.entries:
            bits, rows, probes = self._slices[bloom]
            if not rows:
                return []  # no row group has any entry
            for _ in range(probes):
                first = (at * rows >> 32) * groups
                alive &= int.from_bytes(bits[first >> 3 : first + groups + 7 >> 3], "little") >> (first & 7)
                if not alive:
                    return []
                at = at + step & _LOW
        return [group for group in range(groups) if alive >> group & 1]
