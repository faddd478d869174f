"""Doubles and integers in jitted code come out as Python's repr writes them."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from lakerunner.model.number_text import put_int, put_python_double


@njit
def doubles(bits: Any, out: Any, ends: Any) -> None:
    at = np.int64(0)
    for place in range(len(bits)):
        at = put_python_double(out, at, bits[place])
        ends[place] = at


@njit
def integers(numbers: Any, out: Any, ends: Any) -> None:
    at = np.int64(0)
    for place in range(len(numbers)):
        at = put_int(out, at, numbers[place])
        ends[place] = at


def texts(write: Any, values: Any) -> list[str]:
    out, ends = np.zeros(32 * len(values), np.uint8), np.zeros(len(values), np.int64)
    write(values, out, ends)
    whole = out.tobytes().decode()
    return [whole[start:end] for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]


def check(values: list[float]) -> None:
    finite = [value for value in values if math.isfinite(value)]
    assert texts(doubles, np.array(finite, np.float64).view(np.uint64)) == [repr(value) for value in finite]


def test_doubles_at_the_edges() -> None:
    edges = [0.0, -0.0, 1.0, 0.1, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e15, 1e16, 1e17, 1e22, 1e23]
    edges += [0.001, 0.0001, 0.00001, 123456789012345680.0, 9007199254740993.0, 0.3, 2 / 3, 1e-5, 299792458.0]
    check(edges + [-value for value in edges])


def test_powers_of_two_and_ten_and_their_neighbours() -> None:
    powers = [2.0**exponent for exponent in range(-1074, 1024)] + [
        float(f"1e{exponent}") for exponent in range(-323, 309)
    ]
    check([near for power in powers for near in (power, math.nextafter(power, 0), math.nextafter(power, math.inf))])


def test_a_hundred_thousand_random_doubles() -> None:
    chance = np.random.default_rng(5)
    check(chance.integers(0, 2**64, 60_000, np.uint64).view(np.float64).tolist())
    check(np.round(chance.random(40_000) * 1000, 3).tolist())


@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_double(value: float) -> None:
    check([value])
    (text,) = texts(doubles, np.array([value]).view(np.uint64))
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    assert {".", "e"} & set(text)


def test_integers() -> None:
    numbers = [0, 1, -1, 9, 10, 99, 100, -100, 2**63 - 1, -(2**63)]
    assert texts(integers, np.array(numbers, np.int64)) == [str(number) for number in numbers]
