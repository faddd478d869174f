"""Count different series without listing them: HyperLogLog sketches of their digests.

Comes in: 64-bit digests. Goes out: sketches of at most 2 KB, their union, and an estimate of how many different digests
went in. What always holds: a sketch depends on the set alone, bit for bit: in any order, with any repetition and in
any number of parts, the union is the same bytes. So rollups may be made and merged in any way.

The upper 11 bits of a mixed digest choose one of 2,048 registers, and the number of leading zeros of the next 30 bits,
plus one, is its rank; a register has the highest rank of its digests. The estimate is Ertl's (arXiv:1702.01284), which
needs no corrections at either end. Its standard error is RELATIVE_ERROR, less for small sets.

In bytes: the precision (11), then, where fewer than half of the registers have a rank, those as uint16, little-endian,
register << 5 | rank, by register; else the ranks of all, a byte each. docs/formats/segments.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from lakerunner.model.errors import Corrupt

CARDINALITY = "cardinality.parquet"  # the side file of a rollup segment that has a sketch for each metric and window
PRECISION = 11
REGISTERS = 1 << PRECISION
RELATIVE_ERROR = 1.04 / math.sqrt(REGISTERS)
_MOST_ZEROS = 30
_RANK_BITS = 5
_HEAD = bytes([PRECISION])


def find_registers(digests: Any) -> tuple[Any, Any]:
    """Return (register, rank) of each of these int64 digests."""
    mixed = np.asarray(digests, np.int64).view(np.uint64).copy()
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(33)
    below = mixed >> np.uint64(64 - PRECISION - _MOST_ZEROS) & np.uint64((1 << _MOST_ZEROS) - 1)
    # The exponent of a double that holds it exactly is its number of bits.
    bits = np.frexp(below.astype(np.float64))[1]
    return (mixed >> np.uint64(64 - PRECISION)).astype(np.int64), (_MOST_ZEROS + 1 - bits).astype(np.uint8)


def sketch(digests: Any) -> bytes:
    """Return the sketch of these digests."""
    registers = np.zeros((1, REGISTERS), np.uint8)
    at, ranks = find_registers(digests)
    np.maximum.at(registers[0], at, ranks)
    return pack(registers)[0]


def pack(registers: Any) -> list[bytes]:
    """Return the sketches of these registers, one row each."""
    sketches, at = np.nonzero(registers)
    entries = (at << _RANK_BITS | registers[sketches, at]).astype("<u2").tobytes()
    ends = 2 * np.searchsorted(sketches, np.arange(len(registers) + 1))
    few = np.diff(ends) < REGISTERS
    return [
        _HEAD + (entries[start:end] if is_few else registers[row].tobytes())
        for row, (start, end, is_few) in enumerate(zip(ends.tolist(), ends[1:].tolist(), few.tolist(), strict=False))
    ]


def union(sketches: Iterable[bytes]) -> bytes:
    """Return the sketch of the union; of no sketches, that of the empty set."""
    registers = np.zeros((1, REGISTERS), np.uint8)
    for one in sketches:
        np.maximum(registers[0], unpack(one), out=registers[0])
    return pack(registers)[0]


def estimate(one: bytes) -> float:
    """Estimate how many different digests went in."""
    counts = np.bincount(unpack(one), minlength=_MOST_ZEROS + 2).tolist()
    total = REGISTERS * _tau(1 - counts[_MOST_ZEROS + 1] / REGISTERS)
    for rank in range(_MOST_ZEROS, 0, -1):
        total = (total + counts[rank]) / 2
    total += REGISTERS * _sigma(counts[0] / REGISTERS)
    return REGISTERS * REGISTERS / (2 * math.log(2) * total)


def unpack(one: bytes) -> Any:
    """Return the registers of a sketch. Raise Corrupt if the bytes are not a sketch."""
    if one[:1] != _HEAD:
        raise Corrupt(f"not a sketch of {REGISTERS} registers: wrong first byte")
    body = np.frombuffer(one, np.uint8, offset=1)
    if len(body) == REGISTERS:
        ranks = body
    elif len(body) < REGISTERS and len(body) % 2 == 0:
        entries = body.view("<u2").astype(np.int64)
        ranks = np.zeros(REGISTERS, np.uint8)
        ranks[entries >> _RANK_BITS] = entries & (1 << _RANK_BITS) - 1
    else:
        raise Corrupt(f"sketch has {len(one)} bytes, which fits no encoding of {REGISTERS} registers")
    if ranks.max() > _MOST_ZEROS + 1:
        raise Corrupt("sketch has a rank that no digest can have")
    return ranks


def _sigma(share: float) -> float:
    """Return what registers without a digest add (Ertl's sigma)."""
    if share == 1:
        return math.inf
    total, before, weight = share, -1.0, 1.0
    while total != before:
        share *= share
        before = total
        total += share * weight
        weight *= 2
    return total


def _tau(share: float) -> float:
    """Return what registers of the highest rank take away (Ertl's tau)."""
    if share in (0, 1):
        return 0.0
    total, before, weight = 1 - share, -1.0, 1.0
    while total != before:
        share = math.sqrt(share)
        before = total
        weight /= 2
        total -= (1 - share) ** 2 * weight
    return total / 3
