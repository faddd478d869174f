"""JSON to Python values without losing anything on the way.

orjson is fast, but keeps only the last of equal names in an object and rounds integers past 64 bits. Both are found
afterwards by cheap signs; only then is the text read again by the standard library, which lets us keep it all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import orjson

from lakerunner.pipeline.transcode.values import MAX_NESTING, Members, Unfit, Written

_HUGE = float(1 << 63)


class _Rounded(Exception):
    """A number that may have had more digits."""


def loaded(text: bytes) -> Any:
    """What orjson makes of it. Unfit with the place where it is no JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "infinity" in error.msg:  # more digits than a double has: the slow way keeps them
            return exactly(text)
        raise _not_json(text, error) from None


def _not_json(text: bytes, error: json.JSONDecodeError) -> Unfit:
    try:
        text.decode()
    except UnicodeDecodeError as bad:
        return Unfit(f"byte {bad.start + 1}: not UTF-8")
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    # orjson guesses the word that was meant by its first letter: of a line of prose that says nothing.
    reason = "unexpected text" if error.msg.startswith("invalid literal") else error.msg
    return Unfit(f"{line}column {error.colno}: not JSON: {reason}")


def parsed(text: bytes) -> Any:
    """The value: objects are dicts, or Members where a name stands twice."""
    return whole(text, loaded(text))


def names_are_unique(text: bytes, value: Any) -> bool:
    """Whether no object of the text that orjson loaded as this value has a name twice; False where that is not sure."""
    try:
        return 0 <= _members_written(text) == _members_written(orjson.dumps(value))
    except TypeError:  # nested deeper than orjson writes
        return False


def whole(text: bytes, value: Any) -> Any:
    """The value that orjson loaded, or where it lost something, the exact one."""
    try:
        if _members_written(text) == _members_kept((value,)):
            return value
    except _Rounded:
        pass
    except RecursionError:
        raise _too_deep() from None
    return exactly(text)


def exactly(text: bytes) -> Any:
    """The same by the slow way. Numbers with a point know how they were written."""
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_double, parse_constant=_refused
        )
    except json.JSONDecodeError as error:
        raise _not_json(text, error) from None
    except RecursionError:
        raise _too_deep() from None


def inside(text: str) -> Any:
    """The value of a text that is JSON itself, exactly; None if it is none."""
    data = text.encode()
    try:
        loaded(data)
        return exactly(data)
    except Unfit:
        return None


def _refused(word: str) -> Any:
    raise Unfit(f"not JSON: {word}")


def _double(digits: str) -> Written | str:
    """A double; past the largest its digits."""
    number = Written(digits)
    return digits if math.isinf(number) else number


def _too_deep() -> Unfit:
    return Unfit(f"a value is nested deeper than {MAX_NESTING} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Members:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Members(pairs)


def _integer(digits: str) -> int | str:
    """An integer; past 64 bits its digits, which no field or attribute holds as a number."""
    return int(digits) if len(digits) <= 20 else digits


def _members_written(text: bytes) -> int:
    """How many names of members stand in the text, -1 if that would take reading it. Each is a quote and a colon; an
    escaped quote before a colon is inside a string."""
    if b" :" in text or b'\\\\":' in text or b"\t:" in text or b"\n:" in text or b"\r:" in text:
        return -1
    return text.count(b'":') - text.count(b'\\":')


def _members_kept(values: Iterable[Any]) -> int:
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
