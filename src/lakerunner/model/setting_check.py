"""Checks of settings: what a value may be.

Comes in: a value of the setting's type. Goes out: what is wrong with it and what to write instead, or "" if it is
fine. Nothing is opened or looked up here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from lakerunner.model.errors import UserError
from lakerunner.model.retention_policy import parse_retention

Check = Callable[[Any], str]
LARGEST_PORT = 65_535
_JAVA_MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)
_SPARK_MASTER = re.compile(r"local|local\[[^\]]+\]|local-cluster\[[^\]]+\]|yarn|(spark|k8s)://.+")


def anything(_: Any) -> str:
    return ""


def share(number: float) -> str:
    return "" if 0 <= number <= 1 else "must be between 0 and 1"


def positive(number: float) -> str:
    return "" if number > 0 else "must be greater than 0"


def zero_or_more(number: float) -> str:
    return "" if number >= 0 else "must be 0 or more"


def port(number: int) -> str:
    return "" if 0 <= number <= LARGEST_PORT else f"is not a port: write 1 to {LARGEST_PORT}, or 0 for a free one"


def one_of(*words: str) -> Check:
    *most, last = words
    known = f"{', '.join(most)} or {last}"
    return lambda word: "" if word in words else f"is unknown: write {known}"


def memory(text: str) -> str:
    return "" if memory_bytes(text) else "is not a size of memory: write 500MB, 2GB, 1GiB or 50%"


def java_memory(text: str) -> str:
    return "" if _JAVA_MEMORY.fullmatch(text) else "is not a size of a Java heap: write 512m or 2g"


def spark_master(text: str) -> str:
    if _SPARK_MASTER.fullmatch(text):
        return ""
    return "is not a Spark master: write local[*], local-cluster[...], spark://host:port, k8s://... or yarn"


def listen_address(text: str) -> str:
    host, _, number = text.rpartition(":")
    if host and number.isdecimal() and int(number) <= LARGEST_PORT:
        return ""
    return "is not an address: write host:port, for example 127.0.0.1:7080"


def postgresql_url(text: str) -> str:
    if not text or text.startswith(("postgresql://", "postgres://")) or "://" not in text:
        return ""
    return "is not a PostgreSQL URL: write postgresql://user:password@host:port/database"


def retention(pairs: Mapping[str, str]) -> str:
    try:
        parse_retention(pairs.items())
    except UserError as error:
        return f"cannot be used: {error}"
    return ""


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[KMGT]i?B)\s*", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


def memory_bytes(text: str) -> int | None:
    """Parse a size of memory (`500MB`, `2GB`, `1GiB`, `50%` of the machine's memory) as DuckDB does: GB are powers of
    1000, GiB of 1024. Return None if the text is not a size."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    number, unit = float(found[1]), found[2].upper()
    if unit == "%":
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * number / 100)
    return int(number * (1024 if "I" in unit else 1000) ** _POWERS[unit[0]])
