"""JSON around records: a list inside an object, or objects one behind the other without a line end.

CloudTrail (`Records`), Azure (`records`) and CloudWatch (`logEvents`) write the former, Firehose and `jq` the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from lakerunner.pipeline.transcode.values import Members

_LISTS = ("Records", "records", "logEvents")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # only the ends of the objects are looked for
_MAX_DOCUMENTS = 1_000_000  # of one line, which is read once more to find them
_BLANK = " \t\r\n"


class Envelope(NamedTuple):
    """The items of the list, and the members beside it, which every item shares."""

    items: list[Any]
    shared: list[tuple[str, Any]]


def may_carry(names: Iterable[str]) -> bool:
    """Whether one of these members could be the list."""
    return any(name in _LISTS for name in names)


def opened(value: Any) -> Envelope | None:
    """Return what this object carries in its list of objects; None where it has no such list, or two of them."""
    pairs = list(value.items()) if type(value) is dict else value if type(value) is Members else []
    found = [index for index, (name, items) in enumerate(pairs) if name in _LISTS and _is_list_of_objects(items)]
    if len(found) != 1:
        return None
    (at,) = found
    return Envelope(pairs[at][1], [*pairs[:at], *pairs[at + 1 :]])


def _is_list_of_objects(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(one) is dict or type(one) is Members for one in value)


def with_shared(item: Any, shared: list[tuple[str, Any]]) -> Members:
    """Return the item with the members that all items share behind its own."""
    return Members([*(item.items() if type(item) is dict else item), *shared])


def documents(data: bytes) -> Iterator[tuple[int, int, bytes]] | None:
    """Return (lines before it, offset, text) of each of the objects that stand one behind the other; None where the
    data is anything else."""
    try:
        text = data.decode()
        ends = _ends(text)
    except (ValueError, RecursionError):
        return None
    return _cut(text, ends) if len(ends) > 1 else None


def _ends(text: str) -> list[int]:
    ends: list[int] = []
    at = 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
            continue
        if text[at] != "{" or len(ends) == _MAX_DOCUMENTS:
            raise ValueError(text[at])
        _, at = _DECODER.raw_decode(text, at)
        ends.append(at)
    return ends


def _cut(text: str, ends: list[int]) -> Iterator[tuple[int, int, bytes]]:
    start = lines = offset = 0
    for end in ends:
        piece = text[start:end]
        blank = len(piece) - len(piece.lstrip(_BLANK))
        lines += piece.count("\n", 0, blank)
        document = piece[blank:].encode()
        yield lines, offset + blank, document
        lines += document.count(b"\n")
        start, offset = end, offset + blank + len(document)
