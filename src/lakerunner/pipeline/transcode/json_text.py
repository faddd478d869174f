"""JSON to Python values without losing anything.

orjson is fast, but keeps only the last of equal names in an object and rounds integers past 64 bits. Both are detected
afterwards by cheap signs; only then is the text parsed again by the standard library, whose hooks keep everything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import orjson

from lakerunner.pipeline.transcode.any_values import MAX_NESTING, Members, Unfit, Written

_HUGE = float(1 << 63)


class _Rounded(Exception):
    """Raised for a number that may have had more digits."""


def load_fast(text: bytes) -> Any:
    """Parse with orjson. Raise Unfit, with the place, for text that is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "infinity" in error.msg:  # a number past the largest double: the slow parser keeps its digits
            return parse_exactly(text)
        raise _not_json(text, error) from None


def _not_json(text: bytes, error: json.JSONDecodeError) -> Unfit:
    try:
        text.decode()
    except UnicodeDecodeError as bad:
        return Unfit(f"byte {bad.start + 1}: not UTF-8")
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    # orjson guesses the intended word (true, null) by its first letter, which misleads in a line of prose.
    reason = "unexpected text" if error.msg.startswith("invalid literal") else error.msg
    return Unfit(f"{line}column {error.colno}: not JSON: {reason}")


def parse_json(text: bytes) -> Any:
    """Return the value; objects are dicts, or Members if a name occurs twice."""
    return restore_losses(text, load_fast(text))


def names_are_unique(text: bytes, value: Any) -> bool:
    """Return whether no object of the text, which orjson parsed to this value, has a name twice; False if unsure."""
    try:
        return 0 <= _members_written(text) == _members_written(orjson.dumps(value))
    except TypeError:  # nested deeper than orjson writes
        return False


def restore_losses(text: bytes, value: Any) -> Any:
    """Return the value from orjson, or the exact one if orjson lost something."""
    try:
        if _members_written(text) == _members_kept((value,)):
            return value
    except _Rounded:
        pass
    except RecursionError:
        raise _too_deep() from None
    return parse_exactly(text)


def parse_exactly(text: bytes) -> Any:
    """Parse with the standard library. Numbers with a point keep their text (Written)."""
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_double, parse_constant=_refused
        )
    except json.JSONDecodeError as error:
        raise _not_json(text, error) from None
    except RecursionError:
        raise _too_deep() from None


def parse_embedded(text: str) -> Any:
    """Return the exact value of a text that is itself JSON; None if it is not."""
    data = text.encode()
    try:
        load_fast(data)
        return parse_exactly(data)
    except Unfit:
        return None


def _refused(word: str) -> Any:
    raise Unfit(f"not JSON: {word}")


def _double(digits: str) -> Written | str:
    """Return a double, or the digits of a number past the largest one."""
    number = Written(digits)
    return digits if math.isinf(number) else number


def _too_deep() -> Unfit:
    return Unfit(f"a value is nested deeper than {MAX_NESTING} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Members:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Members(pairs)


def _integer(digits: str) -> int | str:
    """Return an integer, or the digits of one past 64 bits, which no field or attribute holds as a number."""
    return int(digits) if len(digits) <= 20 else digits


def _members_written(text: bytes) -> int:
    """Count the names of members in the text without parsing it; -1 if that cannot be done. Each ends in a quote and a
    colon; an escaped quote before a colon is inside a string, unless its backslash is itself escaped."""
    if b" :" in text or b'\\\\":' in text or b"\t:" in text or b"\n:" in text or b"\r:" in text:
        return -1
    return text.count(b'":') - text.count(b'\\":')


def _members_kept(values: Iterable[Any]) -> int:
    """Count the members in these values. Raise _Rounded for a double that may have been a longer integer."""
    count = 0
    for value in values:
        kind = type(value)
        if kind is dict:
            count += len(value) + _members_kept(value.values())
        elif kind is list:
            count += _members_kept(value)
        elif kind is float and not -_HUGE < value < _HUGE:
            raise _Rounded
    return count
