"""The functions that every template has, and the methods of times.

`and`, `or` and `call` are not here: the evaluator treats them by itself, since they do not evaluate all arguments or
name what they call.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

from lakerunner.model.templates.go_time import (
    DAY_SECONDS,
    MONTHS,
    UTC_ZONE,
    WEEKDAYS,
    GoTime,
    days_from_civil,
    format_time,
)
from lakerunner.model.templates.go_values import (
    INTEGERS,
    MAPS,
    Int64,
    JsonMap,
    Month,
    Uint8,
    Weekday,
    decode_text,
    encode_text,
    is_true,
    print_values,
    type_name,
    value_text,
)
from lakerunner.model.templates.limits import check_length
from lakerunner.model.templates.printf import sprintf
from lakerunner.model.templates.signatures import ANY, INT, STRING, TIME, TemplateFunction

# ---- comparisons

_NO_KIND = ""


def _kind(value: Any) -> str:
    """Return the group of types within which values can be compared."""
    kind = type(value)
    if kind in INTEGERS:
        return "integer"  # Go compares signed and unsigned integers by value
    if kind in (str, float, bool, complex):
        return kind.__name__
    return _NO_KIND


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise ValueError("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(first: Any, other: Any) -> bool:
    kind = _kind(first)
    if kind != _kind(other):
        if first is None or other is None:
            return False
        raise ValueError(f"incompatible types for comparison: {type_name(first)} and {type_name(other)}")
    if kind or first is None or other is None:
        return bool(first == other)
    if type(first) is not type(other) and not (type(first) in MAPS and type(other) in MAPS):
        shown = sprintf("%s: %v, %s: %v", first, type_name(first), type_name(other), other)
        raise ValueError(f"non-comparable types {shown}")
    if type(other) in (list, *MAPS):
        raise ValueError(sprintf("non-comparable type %s: %s", other, type_name(other)))
    return bool(first == other)


def _less(first: Any, second: Any) -> bool:
    kind, other = _kind(first), _kind(second)
    if not kind or not other:
        raise ValueError("invalid type for comparison")
    if kind != other:
        raise ValueError(f"incompatible types for comparison: {type_name(first)} and {type_name(second)}")
    if kind in ("bool", "complex"):
        raise ValueError("invalid type for comparison")
    if kind == "str" and not (first.isascii() and second.isascii()):
        return encode_text(first) < encode_text(second)
    return bool(first < second)


def _less_or_equal(first: Any, second: Any) -> bool:
    return _less(first, second) or _same(first, second)


def _greater(first: Any, second: Any) -> bool:
    return not _less_or_equal(first, second)


def _greater_or_equal(first: Any, second: Any) -> bool:
    return not _less(first, second)


# ---- parts of values


def _position(value: Any, length: int) -> int:
    """Check an index of a text or a list."""
    if value is None:
        raise ValueError("cannot index slice/array with nil")
    if type(value) not in INTEGERS:
        raise ValueError(f"cannot index slice/array with type {type_name(value)}")
    if not 0 <= value <= length:
        raise ValueError(f"index out of range: {int(value)}")
    return int(value)


def _index(item: Any, *keys: Any) -> Any:
    if item is None:
        raise ValueError("index of untyped nil")
    for key in keys:
        if item is None:
            raise ValueError("index of nil pointer")
        item = _member(item, key)
    return item


def _member(item: Any, key: Any) -> Any:
    kind = type(item)
    if kind in MAPS:
        if key is None:
            raise ValueError("value is nil; should be of type string")
        if type(key) is not str:
            raise ValueError(f"value has type {type_name(key)}; should be string")
        return item.get(key) if kind is JsonMap else item.get(key, "")
    if kind not in (str, list):
        raise ValueError(f"can't index item of type {type_name(item)}")
    values = encode_text(item) if kind is str else item
    place = _position(key, len(values))
    if place == len(values):  # Go lets this index pass its check, and fails where it reads
        raise ValueError("reflect: " + ("string" if kind is str else "slice") + " index out of range")
    return Uint8(values[place]) if kind is str else values[place]


def _slice(item: Any, *places: Any) -> Any:
    if item is None:
        raise ValueError("slice of untyped nil")
    if len(places) > 3:
        raise ValueError(f"too many slice indexes: {len(places)}")
    if type(item) not in (str, list):
        raise ValueError(f"can't slice item of type {type_name(item)}")
    if type(item) is str and len(places) == 3:
        raise ValueError("cannot 3-index slice a string")
    values = encode_text(item) if type(item) is str else item
    bounds = [0, len(values), len(values)]
    for number, place in enumerate(places):
        bounds[number] = _position(place, len(values))
    for low, high in itertools.pairwise(bounds):
        if low > high:
            raise ValueError(f"invalid slice index: {low} > {high}")
    part = values[bounds[0] : bounds[1]]
    return decode_text(part) if isinstance(part, bytes) else part


def _length(item: Any) -> int:
    if item is None:
        raise ValueError("reflect: call of reflect.Value.Type on zero Value")
    if type(item) is str:
        return len(item) if item.isascii() else len(encode_text(item))
    if type(item) is not list and type(item) not in MAPS:
        raise ValueError(f"len of type {type_name(item)}")
    return len(item)


# ---- text

_HTML = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JAVASCRIPT = {
    **{chr(code): f"\\u{code:04X}" for code in (*range(32), *map(ord, "<>&="))},
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
}


def _printed(values: tuple[Any, ...]) -> str:
    return print_values(tuple("<no value>" if value is None else value for value in values))


def _html(*values: Any) -> str:
    text = _printed(values)
    check_length(len(text))
    return text.translate(_HTML)


def _javascript(*values: Any) -> str:
    return "".join(map(_javascript_sign, _printed(values)))


def _javascript_sign(sign: str) -> str:
    if sign.isascii():
        return _JAVASCRIPT.get(sign, sign)
    is_byte = 0xD800 <= ord(sign) < 0xE000  # Go copies bytes that are not UTF-8
    return sign if is_byte or sign.isprintable() else f"\\u{ord(sign):04X}"


def query_escape(text: str) -> str:
    """Escape a text for the query of a URL, with `+` for blanks."""
    return quote_plus(encode_text(text))


def _println(*values: Any) -> str:
    return " ".join(map(value_text, values)) + "\n"


BUILTINS: dict[str, TemplateFunction] = {
    "eq": TemplateFunction(_equal, (ANY,), ANY),
    "ne": TemplateFunction(lambda first, second: not _same(first, second), (ANY, ANY)),
    "lt": TemplateFunction(_less, (ANY, ANY)),
    "le": TemplateFunction(_less_or_equal, (ANY, ANY)),
    "gt": TemplateFunction(_greater, (ANY, ANY)),
    "ge": TemplateFunction(_greater_or_equal, (ANY, ANY)),
    "not": TemplateFunction(lambda value: not is_true(value), (ANY,)),
    "index": TemplateFunction(_index, (ANY,), ANY),
    "slice": TemplateFunction(_slice, (ANY,), ANY),
    "len": TemplateFunction(_length, (ANY,)),
    "print": TemplateFunction(lambda *values: print_values(values), (), ANY),
    "println": TemplateFunction(_println, (), ANY),
    "printf": TemplateFunction(sprintf, (STRING,), ANY),
    "html": TemplateFunction(_html, (), ANY),
    "js": TemplateFunction(_javascript, (), ANY),
    "urlquery": TemplateFunction(lambda *values: query_escape(_printed(values)), (), ANY),
}

# ---- methods


def _add_date(time: GoTime, years: int, months: int, days: int) -> GoTime:
    local = time.local()
    year, month = divmod((local.year + years) * 12 + local.month - 1 + months, 12)
    seconds = days_from_civil(year, month + 1, 1) + local.day - 1 + days
    seconds = seconds * DAY_SECONDS + local.rest
    _, offset = time.zone.at(seconds - local.offset)
    return GoTime(seconds - offset, time.nanos, time.zone)


def _of_local(read: Callable[[Any], Any]) -> TemplateFunction:
    return TemplateFunction(lambda time: read(time.local()))


METHODS: dict[type, dict[str, TemplateFunction]] = {
    GoTime: {
        "Format": TemplateFunction(format_time, (STRING,)),
        "String": TemplateFunction(str),
        "Unix": TemplateFunction(lambda time: Int64(time.seconds)),
        "UnixMilli": TemplateFunction(lambda time: Int64(time.ns // 1_000_000)),
        "UnixMicro": TemplateFunction(lambda time: Int64(time.ns // 1_000)),
        "UnixNano": TemplateFunction(lambda time: Int64(time.ns)),
        "Year": _of_local(operator.attrgetter("year")),
        "Month": _of_local(lambda local: Month(local.month)),
        "Day": _of_local(operator.attrgetter("day")),
        "YearDay": _of_local(operator.attrgetter("year_day")),
        "Weekday": _of_local(lambda local: Weekday(local.weekday)),
        "Hour": _of_local(operator.attrgetter("hour")),
        "Minute": _of_local(operator.attrgetter("minute")),
        "Second": _of_local(operator.attrgetter("second")),
        "Nanosecond": TemplateFunction(lambda time: time.nanos),
        "UTC": TemplateFunction(lambda time: GoTime(time.seconds, time.nanos)),
        "Local": TemplateFunction(lambda time: GoTime(time.seconds, time.nanos, UTC_ZONE)),
        "IsZero": TemplateFunction(lambda time: time.ns == GoTime().ns),
        "After": TemplateFunction(lambda time, other: time.ns > other.ns, (TIME,)),
        "Before": TemplateFunction(lambda time, other: time.ns < other.ns, (TIME,)),
        "Equal": TemplateFunction(lambda time, other: time.ns == other.ns, (TIME,)),
        "Compare": TemplateFunction(lambda time, other: (time.ns > other.ns) - (time.ns < other.ns), (TIME,)),
        "AddDate": TemplateFunction(_add_date, (INT, INT, INT)),
    },
    Month: {"String": TemplateFunction(lambda month: MONTHS[month - 1])},
    Weekday: {"String": TemplateFunction(lambda day: WEEKDAYS[day])},
}
