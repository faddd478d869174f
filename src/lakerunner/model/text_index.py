"""The text index of a log segment: which row groups may hold a text. docs/formats/text_index.md states the file.

Comes in: the bytes of the side file `text.bin` and a literal that a message must contain. Goes out: the numbers of the
row groups that may hold such a message. What always holds: a row group that holds one is among them, whatever the
literal; others may be too. Pure, so that whoever plans a query may ask; pipeline/sides/text_index.py builds the file.

A message and a literal are compared after `fold`, which takes letters of either case for the same: the index cannot
tell cases apart, and serves searches that do and that do not.
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
_WITHOUT_CHECKSUM = 1  # the version before: the same but for that

# Signs beyond ASCII that are an ASCII letter in another case: long s, Kelvin sign, dotted and dotless i.
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
# Of trigrams, any three bytes, only the lower seven bits of each count.
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
class Sought:
    """What a text must have in it, hashed once, to be looked for in many indexes: of each entry its bloom, and both
    halves of its hash. What is rarest, and so rules out most, comes first."""

    entries: tuple[tuple[Bloom, int, int], ...]

    @classmethod
    def of(cls, asked: Iterable[tuple[Bloom, set[bytes]]]) -> Sought:
        made = []
        for bloom, entries in asked:
            for entry in sorted(entries):
                hash_ = digest(entry, bloom.seed) | 1
                made.append((bloom, hash_ & _LOW, hash_ >> 32 | 1))
        return cls(tuple(made))


def sought(literal: str, *, ignore_case: bool = False) -> Sought:
    """A message with this literal in it. Ignoring case means one letter for one letter, as SQL's ILIKE and regular
    expressions do it."""
    # What another case of a sign beyond ASCII looks like is not for us to know: then nothing near it is asked for.
    parts = _BEYOND_ASCII.split(literal) if ignore_case else [literal]
    folded = [fold(part.encode()) for part in parts]
    return Sought.of(
        [
            (TOKENS, {token for part in folded for token in _bounded_tokens(part)}),
            (GRAMS, {gram for part in folded for gram in grams(part)}),
            (TRIGRAMS, {trigram for part in folded for trigram in _trigrams(part)}),
        ]
    )


def sought_in_attribute(value: str) -> Sought:
    """A record with this string, or a longer one that holds it, as the value of one of its own attributes: for ids,
    since only long runs of letters and digits are known."""
    return Sought.of([(GRAMS, set(grams(fold(value.encode()))))])


def fold(text: bytes) -> bytes:
    """One of all texts that differ only in the case of ASCII letters."""
    text = text.lower()
    for sign, letter in OTHER_CASE.items():
        text = text.replace(sign, letter)
    return text


def digest(data: bytes, seed: int) -> int:
    """pipeline/read/memory.digest of these bytes."""
    value = _multiplied(seed ^ 0x9E3779B97F4A7C15, len(data) ^ 0xE7037ED1A0B428DB)
    for at in range(0, max(len(data) - 8, 0), 8):
        value = _multiplied(value ^ int.from_bytes(data[at : at + 8], "little"), 0xA0761D6478BD642F)
    if data:
        last = (len(data) - 1) // 8 * 8
        value = _multiplied(value ^ int.from_bytes(data[last:], "little"), 0x8EBC6AF09C88C6E3)
    return value


def grams(folded: bytes) -> Iterator[bytes]:
    """The grams that are kept of the long runs in a folded text."""
    for match in _RUN.finditer(folded):
        run = match.group()
        all_of_it = [run[at : at + GRAM] for at in range(len(run) - GRAM + 1)]
        order = [digest(gram, ORDER) for gram in all_of_it]
        for first in range(len(all_of_it) - WINDOW + 1):
            yield all_of_it[order.index(min(order[first : first + WINDOW]), first)]


def _multiplied(one: int, other: int) -> int:
    """The halves of the 128-bit product, xored."""
    product = one * other
    return (product ^ product >> 64) & _MASK


def _bounded_tokens(folded: bytes) -> Iterator[bytes]:
    """The tokens that end inside: one at the literal's edge may be part of a longer one in the message."""
    for match in _TOKEN.finditer(folded):
        if match.start() > 0 and match.end() < len(folded) and TOKEN_LEAST <= len(match.group()) < RUN_LEAST:
            yield match.group()


def _trigrams(folded: bytes) -> Iterator[bytes]:
    classes = bytes(byte & (1 << TRIGRAM_BITS) - 1 for byte in folded)
    for at in range(len(classes) - 2):
        yield classes[at : at + 3]


class TextIndex:
    """The file, with its header understood. Corrupt if it is not one that we know, or not as it was written: an index
    that lacks a bit would leave out rows that are there."""

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

    def holding(self, what: Sought) -> list[int]:
        """The row groups that may hold it: those whose blooms have all of its entries."""
        groups = self.groups
        alive = (1 << groups) - 1  # a bit for each row group: a probe is one number, of however many of them
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
