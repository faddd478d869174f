"""Sizes of memory as people write them: `500MB`, `2GB`, `1GiB`, `50%` of the machine's memory."""

from __future__ import annotations

import os
import re

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[KMGT]i?B)\s*", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


def memory_bytes(text: str) -> int | None:
    """Return the bytes as DuckDB reads them: GB are powers of 1000, GiB of 1024. None if the text is not a size."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    number, unit = float(found[1]), found[2].upper()
    if unit == "%":
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * number / 100)
    return int(number * (1024 if "I" in unit else 1000) ** _POWERS[unit[0]])
