"""Numbers, durations and sizes of the slow evaluator, as Go reads them. ValueError: it is none."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F]+(\.[0-9a-fA-F]*)?[pP][+-]?\d+", re.ASCII)
_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_SIZES = {"": 1, "b": 1} | {f"{p}{i}b": (1024 if i else 1000) ** n for n, p in enumerate("kmgtp", 1) for i in ("", "i")}
_SIZES |= {f"{p}{i}": (1024 if i else 1000) ** n for n, p in enumerate("kmgtp", 1) for i in ("", "i")}


def number(text: str) -> float:
    if re.fullmatch(r"[+-]?inf(inity)?|nan", text, re.IGNORECASE) or _NUMBER.fullmatch(text):
        return float(text)
    if _HEX.fullmatch(text):
        return float.fromhex(text)
    raise ValueError(text)


def duration_ns(text: str) -> int:
    sign, body = (-1 if text[:1] == "-" else 1), text.lstrip("+-") if text[:2] not in ("--", "++") else "?"
    if body == "0":
        return 0
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", body, re.ASCII)
    if not parts or "".join(a + b for a, b in parts) != body:
        raise ValueError(text)
    return sign * sum(int(Fraction(amount.rstrip(".")) * _UNITS[unit]) for amount, unit in parts)


def size_bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9.,]+) *([A-Za-z]*)", text)
    if not found or found[2].lower() not in _SIZES:
        raise ValueError(text)
    return int(number(found[1].replace(",", "")) * _SIZES[found[2].lower()])
