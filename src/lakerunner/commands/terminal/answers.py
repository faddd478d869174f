"""A question in SQL to a running lake, and its answer as it comes.

Rows come as server-sent events, which end with `done` or `error`: an answer that breaks off is an error, never short.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from lakerunner.model.errors import Unavailable, error_from

_ROW = b'data: {"type":"result","data":'
Row = dict[str, Any]
OnProgress = Callable[[int, int], None]


class Output(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


@dataclass(frozen=True)
class Query:
    """What is asked. `partial`: what cannot be read is named as missing instead of being an error."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "duckdb"
    partial: bool = False

    def body(self) -> dict[str, Any]:
        said = {"query": self.text, "engine": self.engine, "partial": self.partial}
        return said | ({"parameters": dict(self.parameters)} if self.parameters else {})


@dataclass(frozen=True)
class Ended:
    """The last word of an answer."""

    row_count: int = 0
    complete: bool = True
    missing: tuple[Mapping[str, Any], ...] = ()
    degraded: str | None = None
    warnings: tuple[str, ...] = ()


class Rows:
    """An answer as it comes: its columns, then its rows, once. `ended` is there when all rows are."""

    def __init__(self, lines: Iterator[bytes], on_progress: OnProgress) -> None:
        self.ended = Ended()
        self._lines = lines
        self._on_progress = on_progress
        schema = next(self._events(), None)
        if schema is None:
            raise broken_off()
        self.columns: list[str] = schema["columns"]

    def raw(self) -> Iterator[bytes]:
        """Rows as JSON, just as they were sent. Raises where the answer breaks off."""
        for event in self._events():
            if isinstance(event, bytes):
                yield event
            else:
                self.ended = event["ended"]
                return
        raise broken_off()

    def __iter__(self) -> Iterator[Row]:
        """Rows as values; a number that is no integer keeps its digits (`Digits`)."""
        for row in self.raw():
            yield json.loads(row, parse_float=Digits)

    def _events(self) -> Iterator[Any]:
        """The schema, rows as bytes, and the end."""
        for line in self._lines:
            if line.startswith(_ROW):
                yield line[len(_ROW) : -1]
            elif line.startswith(b"data: "):
                yield from self._other(orjson.loads(line[6:]))

    def _other(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        match event["type"]:
            case "schema":
                yield {"columns": [column["name"] for column in event["columns"]]}
            case "progress":
                self._on_progress(event["segments_done"], event["segments_total"])
            case "error":
                raise error_from(event["error"])
            case "done":
                missing, warnings = tuple(event["missing"]), tuple(event["warnings"])
                yield {"ended": Ended(event["row_count"], event["complete"], missing, event["degraded"], warnings)}


class Digits(float):
    """A number that remembers how it was written."""

    def __new__(cls, text: str) -> Digits:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def broken_off() -> Unavailable:
    return Unavailable("the answer ended too early")
