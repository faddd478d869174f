"""Read the attributes of a scope as the internal columns of scans give them (plan/scan.py)."""

from __future__ import annotations

import re

import orjson

from lakerunner.model.errors import Corrupt
from lakerunner.model.typed_json import Value, decode_value

_WORD = re.compile("-?[0-9]+|true|false")


def attributes_of(text: str | None) -> dict[str, Value]:
    """Return the attributes by their keys, those of the overflow map too; none of None."""
    if text is None:
        return {}
    own, rest = orjson.loads(text)
    found: dict[str, Value] = {}
    for key, value in own.items():
        if isinstance(value, str):
            found[key] = value
        elif value is not None and value[0] is not None:
            found[key] = _typed(value[0])
    for entry in rest or ():
        if entry["key"] not in found:
            found[entry["key"]] = _stored(entry["value"])
    return found


def _stored(value: str) -> Value:
    """Read a value of the overflow map; of numbers and truths the text is enough."""
    if value == "null":
        return ""
    return value if _WORD.fullmatch(value) else _typed(value)


def _typed(value: str) -> Value:
    """Read typed JSON; other text stays as it is."""
    try:
        return decode_value(value)
    except Corrupt:
        return value
