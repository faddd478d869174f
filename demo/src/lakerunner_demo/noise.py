"""Random numbers without state: every draw is a pure function of a world, a name and a key.

Comes in: a world (one 64-bit number per shop), the name of what is drawn, an array of keys (requests, pods, ...).
Goes out: one uint64 per key. Nothing remembers what was drawn before, so any stretch of the shop's time can be made
alone and comes out the same. All arithmetic is on integers: the same on every machine.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from lakerunner.model.segment import digest64

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = (np.uint64(bits) for bits in (30, 27, 31, 32))

_QUANTILES = 4096
_SPREAD = 0.5  # sigma of the logarithm: the slowest of a thousand takes about five times the median
SPREAD_UNIT = 1024


def _spread_table() -> I64:
    normal = NormalDist()
    quantiles = [normal.inv_cdf((i + 0.5) / _QUANTILES) for i in range(_QUANTILES)]
    return np.array([round(SPREAD_UNIT * math.exp(_SPREAD * q)) for q in quantiles], np.int64)


_SPREADS = _spread_table()
MOST_SPREAD = int(_SPREADS[-1])


@lru_cache(maxsize=4096)
def _salt(world: int, name: str) -> np.uint64:
    return np.uint64(digest64(str(world), name) & 0xFFFF_FFFF_FFFF_FFFF)


def draw(world: int, name: str, keys: U64) -> U64:
    """Return 64 uniform bits per key, independent between names (the finalizer of splitmix64)."""
    bits = keys * _GOLDEN + _salt(world, name)
    bits = (bits ^ (bits >> _30)) * _MIX_1
    bits = (bits ^ (bits >> _27)) * _MIX_2
    return bits ^ (bits >> _31)


def draw_one(world: int, name: str, key: int = 0) -> int:
    return int(draw(world, name, np.array([key], np.uint64))[0])


def below(bits: U64, bound: int) -> I64:
    """Return uniform numbers 0 <= n < bound; bound is at most 2^31."""
    return (((bits >> _32) * np.uint64(bound)) >> _32).astype(np.int64)


def spread(bits: U64) -> I64:
    """Return a log-normal factor in units of 1/SPREAD_UNIT, with median 1 and at most MOST_SPREAD."""
    return _SPREADS[below(bits, _QUANTILES)]


def wave(world: int, name: str, at: I64, period: int) -> I64:
    """Return a slow, smooth 0..1000 over time: random at multiples of period, with straight lines between."""
    step, rest = np.divmod(at, period)
    left = below(draw(world, name, step.astype(np.uint64)), 1001)
    right = below(draw(world, name, (step + 1).astype(np.uint64)), 1001)
    return left + (right - left) * rest // period
