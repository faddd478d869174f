"""Functions of templates on times, and JSON: what makes values of other types out of texts."""

from __future__ import annotations

import json
import re
from typing import Any

from lakerunner.model.display import go_quote
from lakerunner.model.templates.go_time import GoTime, format_time, load_zone
from lakerunner.model.templates.go_time_parse import parse_time
from lakerunner.model.templates.go_values import Int64, JsonMap
from lakerunner.model.templates.literals import parse_integer
from lakerunner.model.templates.signatures import ANY, STRING, TIME, Rendering, TemplateFunction

_INT_LIMIT = 1 << 63
_UNIT_NS = {5: 86_400_000_000_000, 10: 1_000_000_000, 13: 1_000_000, 16: 1_000, 19: 1}  # by the number of digits
_LONE = re.compile("[\ud800-\udfff]")


def _date(run: Rendering, layout: str, value: Any) -> str:
    """Write a time, or seconds since the epoch; anything else stands for now."""
    if isinstance(value, GoTime):
        return format_time(GoTime(value.seconds, value.nanos), layout)
    if type(value) in (int, Int64):
        return format_time(GoTime(int(value)), layout)
    return format_time(GoTime.from_ns(run.now_ns), layout)


def _to_date(layout: str, text: str) -> GoTime:
    """Read a time; Go's zero time, the first of January 1, for a text that does not follow the layout."""
    return parse_time(layout, text) or GoTime()


def _to_date_in_zone(layout: str, zone: str, text: str) -> GoTime:
    return parse_time(layout, text, load_zone(zone)) or GoTime()


def _unix_to_time(text: str) -> GoTime:
    """Read days, seconds, milli-, micro- or nanoseconds since the epoch, told apart by their number of digits."""
    number = parse_integer(text, is_decimal=True)
    fault = None
    if number is None:
        fault = "invalid syntax"
    elif not -_INT_LIMIT <= number < _INT_LIMIT:
        fault = "value out of range"
    if fault:
        raise ValueError(f"unable to parse time '{text}': strconv.ParseInt: parsing {go_quote(text)}: {fault}")
    unit = _UNIT_NS.get(len(text))
    if unit is None or number is None:
        raise ValueError(f"unable to parse time '{text}': %!w(<nil>)")  # Go's own slip: it has no error to show
    return GoTime.from_ns(number * unit)


def _double(text: str) -> float | None:
    value = float(text)
    return value if abs(value) != float("inf") else None


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _from_json(text: str) -> Any:
    """Return the value of a JSON text, nothing for a text that is not JSON."""
    try:
        value = json.loads(
            text, object_pairs_hook=JsonMap, parse_int=_double, parse_float=_double, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return None
    return _clean(value) if "\\u" in text or not text.isascii() else value


def _clean(value: Any) -> Any:
    """Replace halves of surrogate pairs and bytes that are not UTF-8, as Go's decoder does."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, JsonMap):
        return JsonMap((_clean(key), _clean(member)) for key, member in value.items())
    return [_clean(member) for member in value] if isinstance(value, list) else value


TIME_FUNCTIONS: dict[str, TemplateFunction] = {
    "now": TemplateFunction(lambda run: GoTime.from_ns(run.now_ns), needs_rendering=True),
    "date": TemplateFunction(_date, (STRING, ANY), needs_rendering=True),
    "toDate": TemplateFunction(_to_date, (STRING, STRING)),
    "toDateInZone": TemplateFunction(_to_date_in_zone, (STRING, STRING, STRING)),
    "unixToTime": TemplateFunction(_unix_to_time, (STRING,)),
    "unixEpoch": TemplateFunction(lambda time: str(time.seconds), (TIME,)),
    "unixEpochMillis": TemplateFunction(lambda time: str(time.ns // 1_000_000), (TIME,)),
    "unixEpochNanos": TemplateFunction(lambda time: str(time.ns), (TIME,)),
    "fromJson": TemplateFunction(_from_json, (STRING,)),
}
