"""Interning gives each different name its number, in the order of first sight."""

from __future__ import annotations

import random

import numpy as np

from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.names import names_for, number_all, texts_of


def numbered(texts: list[bytes]) -> tuple[list[int], list[bytes]]:
    sizes = [len(text) for text in texts]
    at = np.cumsum([0, *sizes[:-1]]).astype(np.int32)
    data = np.frombuffer(b"".join(texts) + b"\xaa" * PADDING, np.uint8)
    names = names_for(len(texts))
    numbers = number_all(data.copy(), at, np.array(sizes, np.int32), names)
    return numbers.tolist(), texts_of(names, data)


def test_names_are_numbered_as_they_come() -> None:
    texts = [b"b", b"a", b"b", b"", b"a", b"b", b""]
    assert numbered(texts) == ([0, 1, 0, 2, 1, 0, 2], [b"b", b"a", b""])


def test_names_that_are_alike_at_the_word_borders_are_kept_apart() -> None:
    texts = [b"x" * size for size in range(40)]
    texts += [b"x" * (size - 1) + b"y" for size in range(1, 40)] + [b"y" + b"x" * size for size in range(39)]
    numbers, names = numbered(texts * 2)
    assert [names[number] for number in numbers] == texts * 2
    assert len(set(names)) == len(names) == len(set(texts))


def test_all_different_names_fit() -> None:
    chance = random.Random(3)
    texts = [chance.randbytes(chance.randint(1, 30)) + str(number).encode() for number in range(5000)]
    numbers, names = numbered(texts)
    assert numbers == list(range(5000))
    assert names == texts


def test_nulls_have_no_number() -> None:
    data = np.zeros(PADDING, np.uint8)
    names = names_for(3)
    at, size = np.array([-1, 0, -1], np.int32), np.zeros(3, np.int32)
    assert number_all(data, at, size, names).tolist() == [-1, 0, -1]
