"""Numbers of things in messages."""

from __future__ import annotations

import pytest

from lakerunner.model.display import plural


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (1, ("line",), "1 line"),
        (0, ("line",), "0 lines"),
        (2, ("line",), "2 lines"),
        (1_234_567, ("byte",), "1,234,567 bytes"),
        (1, ("box", "boxes"), "1 box"),
        (3, ("box", "boxes"), "3 boxes"),
        (1.0, ("query", "queries"), "1 query"),
        (0.5, ("query", "queries"), "0.5 queries"),
    ],
)
def test_the_word_fits_the_number(count: float, words: tuple[str, ...], text: str) -> None:
    assert plural(count, *words) == text
