"""What to write instead of what DuckDB refuses: remedies for the slips that telemetry invites.

Comes in: DuckDB's sentence and the words of the user's query. Goes out: a sentence that ends in the remedy; one that is
not known here comes back as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lakerunner.lakeql.describe import KINDS, STATUS_CODES

_COMPARED = re.compile(
    r"Cannot (?:compare|mix) values of type (.+?) and (?:type )?(.+?)(?: in .*?)? - an explicit cast is required.*",
    re.S,
)
_BY_ZERO = re.compile(r"(Division by zero in expression .+)\. Use TRY", re.S)  # and then names SET, which we refuse
_MIXED = "Cannot mix aggregates with non-aggregated columns"
_NOT_A_NUMBER = re.compile(r"Could not convert string '(\w+)' to INT32$")
_TEXT = re.compile("VARCHAR")
_NUMBER = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DOUBLE|FLOAT|DECIMAL.*")
_TIME = re.compile(r"TIMESTAMP(?:_NS)?")
_ZONED = re.compile("TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ.*")
_INTERVAL = re.compile("INTERVAL")
# What two types, in either order, need to be compared.
_REMEDIES = (
    (_TEXT, _NUMBER, "attributes are text, cast them as in try_cast(attributes['key'] AS DOUBLE)"),
    (_TIME, _NUMBER, "write the number as a time, with to_timestamp(seconds), epoch_ms(ms) or make_timestamp_ns(ns)"),
    (_TIME, _ZONED, "times are UTC without a zone, cast the other one to TIMESTAMP"),
    (_NUMBER, _INTERVAL, "duration is in nanoseconds, a second is 1e9"),
)
# The numbers of these columns, which other systems show as words.
_WORDS = {"status_code": STATUS_CODES, "kind": KINDS}


def with_remedy(message: str, words: Collection[str]) -> str:
    compared = _COMPARED.fullmatch(message)
    if compared:
        one, other = compared.groups()
        return f"{one} and {other} cannot be compared: {_to_compare(one, other)}"
    if by_zero := _BY_ZERO.match(message):
        return f"{by_zero[1]}: divide by nullif(divisor, 0), or write TRY(...) around it, to get NULL"
    if message.startswith(_MIXED) and "all" in words:
        return f"{_MIXED}: write the columns in GROUP BY instead of ALL"
    text = _NOT_A_NUMBER.search(message)
    if text is None:
        return message
    word = re.compile(rf"\b{text[1].lower()}\b")
    meant = (
        f". {column} is {numbers}" for column, numbers in _WORDS.items() if column in words and word.search(numbers)
    )
    return message + next(meant, "")


def _to_compare(one: str, other: str) -> str:
    for left, right, remedy in _REMEDIES:
        if any(left.fullmatch(first) and right.fullmatch(second) for first, second in ((one, other), (other, one))):
            return remedy
    return "cast one of them"
