"""Sketches of how many different digests there are: sets bit for bit, and estimates as close as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import Corrupt
from lakerunner.model.hll import REGISTERS, RELATIVE_ERROR, estimate, find_registers, pack, sketch, union

DIGESTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50)


def random_digests(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count)


@settings(max_examples=200)
@given(DIGESTS, st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([0, 100, 1500, 5000]))
def test_the_union_of_parts_is_the_whole_bit_for_bit(own: list[int], parts: int, seed: int, more: int) -> None:
    digests = np.concatenate([np.array(own, np.int64), random_digests(seed, more)])
    chance = np.random.default_rng(seed)
    shares = [digests[chance.random(len(digests)) < 0.6] for _ in range(parts)]
    shares.append(digests)
    whole = sketch(digests)
    assert union([sketch(share) for share in shares]) == whole
    assert union([whole, whole]) == union([whole]) == sketch(digests[::-1]) == whole
    assert union([union([sketch(shares[0]), whole]), sketch(digests[:1])]) == whole


@pytest.mark.parametrize("count", [1, 2, 10, 100, 400, 1000, 2000, 5000, 20_000, 300_000])
def test_estimates_are_within_three_standard_errors(count: int) -> None:
    runs = 20 if count > 50_000 else 60
    errors = np.array([estimate(sketch(random_digests(seed, count))) / count - 1 for seed in range(runs)])
    assert np.quantile(np.abs(errors), 0.95) < 3 * RELATIVE_ERROR
    assert abs(errors.mean()) < 3 * RELATIVE_ERROR / np.sqrt(runs)


def test_digests_that_differ_in_few_bits_are_told_apart() -> None:
    for step in (1, 2**11, 2**40, 2**53):
        digests = np.arange(1000) * np.int64(step)
        found = estimate(sketch(digests)) / len(np.unique(digests))
        assert abs(found - 1) < 4 * RELATIVE_ERROR


def test_none_and_one() -> None:
    assert union([]) == sketch([]) == b"\x0b"
    assert estimate(b"\x0b") == 0
    assert round(estimate(sketch([7, 7, 7])), 2) == 1


def test_the_bytes_are_as_the_format_says() -> None:
    """Those of 0, of which every bit stays 0 when mixed, and of 1, whose murmur finalizer is known."""
    mixed = 0xB456BCFC34C2CB2C
    below = mixed >> 23 & 2**30 - 1
    entry = mixed >> 53 << 5 | 31 - below.bit_length()
    assert [int(one[0]) for one in find_registers([1])] == [mixed >> 53, 31 - below.bit_length()]
    assert sketch([1, 0]) == b"\x0b" + (0 << 5 | 31).to_bytes(2, "little") + entry.to_bytes(2, "little")
    full = sketch(random_digests(1, 3000))
    assert len(full) == 1 + REGISTERS
    at, ranks = find_registers(random_digests(1, 3000))
    assert full[1 + at[5]] == max(ranks[at == at[5]])


def test_several_are_packed_as_one_by_one() -> None:
    registers = np.zeros((4, REGISTERS), np.uint8)
    registers[1, 5], registers[1, 2047] = 3, 31
    registers[2, ::2] = 1
    registers[3, ::2], registers[3, 1] = 1, 2
    registers[3, 0] = 0
    alone = [pack(registers[row : row + 1])[0] for row in range(4)]
    assert pack(registers) == alone
    assert [len(one) for one in alone] == [1, 5, 2049, 2049]


@pytest.mark.parametrize("odd", [b"", b"\x0c", b"\x0b\0", b"\x0b" + bytes(2050), b"\x0b" + b"\x20" * 2048])
def test_what_is_no_sketch_is_refused(odd: bytes) -> None:
    with pytest.raises(Corrupt, match="sketch"):
        estimate(odd)
