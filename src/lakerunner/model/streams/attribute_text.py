"""Attribute values and bodies as text, as Loki writes them.

Comes in: a value of typed JSON. Goes out: its text, or the labels that it is flattened to. The form is that of the
OpenTelemetry Collector's libraries, which Loki uses: maps and arrays are JSON as Go writes it (keys sorted, `<`, `>`
and `&` escaped), doubles have no exponent from 1e-6 up to 1e21, bytes are base64.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from decimal import Decimal

from lakerunner.model.streams.label_names import label_name
from lakerunner.model.typed_json import KeyValues, Value

_ESCAPES = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"})
_SMALLEST, _LARGEST = 1e-6, 1e21


def value_text(value: Value) -> str:
    """Return the text of a body, or of an attribute that is not a map."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _double_text(value) if math.isfinite(value) else f"json: unsupported value: {_go_infinite(value)}"
        case bytes():
            return base64.b64encode(value).decode()
    try:
        return _json_text(value)
    except ValueError:
        return ""  # Go's JSON has no NaN and no infinities: the Collector's libraries then write nothing at all


def flattened(name: str, value: Value) -> Iterator[tuple[str, str]]:
    """Yield the labels of an attribute whose label has this name. A map has one for each of its values."""
    if not isinstance(value, KeyValues):
        yield name, value_text(value)
        return
    for key, inner in value.pairs:
        yield from flattened(label_name(f"{name}_{key}"), inner)


def _json_text(value: Value) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)
        case None:
            return "null"
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} is not in JSON")
            return _double_text(value)
        case tuple():
            return f"[{','.join(map(_json_text, value))}]"
        case KeyValues(pairs):
            members = sorted(dict(pairs).items())  # of equal keys the last counts
            return f"{{{','.join(f'{_json_text(key)}:{_json_text(inner)}' for key, inner in members)}}}"
        case bytes():
            return f'"{value_text(value)}"'
    return value_text(value)


def _double_text(value: float) -> str:
    """Return the shortest digits that read back the same."""
    text = repr(value)
    if value == 0 or _SMALLEST <= abs(value) < _LARGEST:
        return format(Decimal(text), "f").removesuffix(".0")
    return text.removesuffix(".0").replace("e-0", "e-")


def _go_infinite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
