"""Numbers of things in messages: `1 line`, `2 lines`, `1,000 lines`."""

from __future__ import annotations


def plural(count: float, one: str, many: str = "") -> str:
    """Return the number with the word for one thing, or for any other number of them; by default that with an `s`."""
    number = f"{count:g}" if isinstance(count, float) else f"{count:,}"
    return f"{number} {one if count == 1 else many or one + 's'}"
