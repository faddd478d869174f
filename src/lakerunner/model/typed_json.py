"""Typed JSON: one text form for every OTLP AnyValue, from which value and type come back exactly.

| value | text |
|---|---|
| string | a JSON string |
| int | digits: `42` |
| double | the shortest digits that read back the same, always with `.` or `e`: `42.0`, `1e+16`, `-0.0` |
| NaN, infinities | `{"doubleValue":"NaN"}`, `"Infinity"`, `"-Infinity"` |
| bool, empty | `true`, `false`, `null` |
| bytes | `{"bytesValue":"<base64>"}` |
| array | `[...]` |
| kvlist | `{...}`, keys in their order, also where one occurs twice |
| kvlist of one pair whose key is one of the three wrappers' names | `{"kvlistValue":{...}}` |

There is no space between tokens. NaN payloads are not kept: every NaN reads back as the one NaN.
pipeline/steps/json_text.py writes the same text from the wire, byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from lakerunner.model.errors import Corrupt

WRAPPERS = ("bytesValue", "doubleValue", "kvlistValue")
_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class KeyValues:
    """A kvlist: pairs in their order. A key may occur twice."""

    pairs: tuple[tuple[str, Value], ...]


Value = None | bool | int | float | str | bytes | tuple["Value", ...] | KeyValues


class _Object(list[tuple[str, Any]]):
    """A JSON object as it was parsed, before it is known whether it is a wrapper."""


def encode_value(value: Value) -> str:
    """Return the typed JSON of this value."""
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(value)
        case float():
            return _encode_double(value)
        case bytes():
            return f'{{"bytesValue":"{base64.b64encode(value).decode()}"}}'
        case tuple():
            return f"[{','.join(map(encode_value, value))}]"
        case KeyValues(pairs):
            text = ",".join(f"{json.dumps(key, ensure_ascii=False)}:{encode_value(item)}" for key, item in pairs)
            wrapped = len(pairs) == 1 and pairs[0][0] in WRAPPERS
            return f'{{"kvlistValue":{{{text}}}}}' if wrapped else f"{{{text}}}"


def decode_value(text: str) -> Value:
    """Return the value of this typed JSON. Raise Corrupt if the text is not typed JSON."""
    try:
        parsed = json.loads(text, object_pairs_hook=_Object, parse_constant=_refuse)
        return _decoded(parsed)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not typed JSON: {error}: {text[:100]!r}") from error


def _encode_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return f'{{"doubleValue":"{_INFINITE.get(value, "NaN")}"}}'


def _decoded(parsed: Any) -> Value:
    if isinstance(parsed, _Object):
        if len(parsed) == 1 and parsed[0][0] in WRAPPERS:
            return _unwrapped(*parsed[0])
        return KeyValues(tuple((key, _decoded(item)) for key, item in parsed))
    if isinstance(parsed, list):
        return tuple(map(_decoded, parsed))
    value: Value = parsed
    return value


def _unwrapped(wrapper: str, inner: Any) -> Value:
    if wrapper == "kvlistValue" and isinstance(inner, _Object):
        return KeyValues(tuple((key, _decoded(item)) for key, item in inner))
    if wrapper == "doubleValue" and inner in _DOUBLES:
        return _DOUBLES[inner]
    if wrapper == "bytesValue" and isinstance(inner, str):
        try:
            return base64.b64decode(inner, validate=True)
        except binascii.Error as error:
            raise ValueError(f"bytesValue is not base64: {error}") from error
    raise ValueError(f"{wrapper} has a value of a wrong type")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not wrapped in doubleValue")
