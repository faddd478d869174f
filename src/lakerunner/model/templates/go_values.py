"""The values of a template as Python has them, with the names of their types in Go, their truth and their text.

string               str; a byte that is not UTF-8 is a lone surrogate, and lengths count bytes
bool, float64        bool, float
int                  int; int64 and uint8 are classes of their own, since a function that takes one refuses another
map[string]string    dict: the labels of a template
interface {} values  of JSON: JsonMap, list, None for null
time.Time            GoTime; Month and Weekday print their names
no value, nil        None
"""

from __future__ import annotations

import math
from typing import Any

from lakerunner.model.templates.go_time import MONTHS, WEEKDAYS, GoTime

NO_VALUE = "<no value>"
NIL = "<nil>"
_INT64_WRAP = 1 << 64
_INT64_LIMIT = 1 << 63
_LARGE = 1e6  # from here on Go shows an exponent


class TemplateError(ValueError):
    """A template that is wrong, or that failed on its data, in the words of Go's text/template."""


class Int64(int):
    """An int64."""

    __slots__ = ()


class Uint8(int):
    """A byte."""

    __slots__ = ()


class Month(int):
    """A month, 1 to 12, that prints its name."""

    __slots__ = ()

    def __str__(self) -> str:
        return MONTHS[self - 1]


class Weekday(int):
    """A day of the week, 0 for Sunday, that prints its name."""

    __slots__ = ()

    def __str__(self) -> str:
        return WEEKDAYS[self]


class JsonMap(dict[str, Any]):
    """An object of JSON. A key that it lacks has no value, while a label that a template lacks is empty."""

    __slots__ = ()


TYPE_NAMES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int",
    Int64: "int64",
    Uint8: "uint8",
    float: "float64",
    complex: "complex128",
    dict: "map[string]string",
    JsonMap: "map[string]interface {}",
    list: "[]interface {}",
    GoTime: "time.Time",
    Month: "time.Month",
    Weekday: "time.Weekday",
}
INTEGERS: frozenset[type] = frozenset({int, Int64, Uint8, Month, Weekday})
STRINGERS: frozenset[type] = frozenset({GoTime, Month, Weekday})
MAPS: tuple[type, ...] = (dict, JsonMap)


def type_name(value: Any) -> str:
    return TYPE_NAMES[type(value)]


def wrap_int64(value: int) -> Int64:
    """Return the value as an int64, with Go's wrap around its bounds."""
    if -_INT64_LIMIT <= value < _INT64_LIMIT:
        return Int64(value)
    return Int64((value + _INT64_LIMIT) % _INT64_WRAP - _INT64_LIMIT)


def is_true(value: Any) -> bool:
    """Return whether a value is not the zero of its type; a time is always true."""
    return True if type(value) is GoTime else bool(value)


def encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decode_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def sorted_items(value: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the members in the order in which Go prints and ranges over them: by the bytes of their keys."""
    if all(map(str.isascii, value)):
        return sorted(value.items())  # keys are unique: values are never compared
    return sorted(value.items(), key=lambda item: encode_text(item[0]))


def float_text(value: float) -> str:
    """Write a double as Go's %v does: the shortest digits, with an exponent below 1e-4 and from 1e6 on.

    Numbers of more than six digits before the point get an exponent too: 1.234567e+06.
    """
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    if abs(value) < _LARGE or "e" in text:
        return text.removesuffix(".0")
    sign, digits = ("-", text[1:]) if value < 0 else ("", text)
    whole, _, fraction = digits.partition(".")
    rest = (whole[1:] + fraction).rstrip("0")
    return f"{sign}{whole[0]}{'.' if rest else ''}{rest}e+{len(whole) - 1:02}"


def complex_text(value: complex) -> str:
    imaginary = float_text(value.imag)
    return f"({float_text(value.real)}{'' if imaginary[0] in '+-' else '+'}{imaginary}i)"


def value_text(value: Any) -> str:
    """Write a value as Go's %v does."""
    kind = type(value)
    if kind is str:
        return str(value)
    if value is None:
        return NIL
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return float_text(value)
    if kind in MAPS:
        return "map[" + " ".join(f"{key}:{value_text(member)}" for key, member in sorted_items(value)) + "]"
    if kind is list:
        return "[" + " ".join(map(value_text, value)) + "]"
    return complex_text(value) if kind is complex else str(value)


def print_values(values: tuple[Any, ...]) -> str:
    """Write values side by side, with a blank between two of which neither is a string, as Go's Sprint does."""
    if len(values) == 1:
        return value_text(values[0])
    parts: list[str] = []
    for place, value in enumerate(values):
        if place and type(value) is not str and type(values[place - 1]) is not str:
            parts.append(" ")
        parts.append(value_text(value))
    return "".join(parts)
