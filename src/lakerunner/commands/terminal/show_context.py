"""Show the lines around each hit of a log query in its stream, as grep does with -A, -B and -C.

Comes in: the hits, and a function that asks for the context of one. Goes out: lines, oldest first, stream after stream;
`--` stands between lines that do not follow each other. What always holds: a line is shown once; lines of equal time
keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from lakerunner.model.display import go_quote

Place = tuple[int, ...]  # time and position: the order of a stream
Ask = Callable[[str, str], Mapping[str, Any]]  # of the selector of the stream and a time


class Hit(NamedTuple):
    time_ns: str
    line: str


class ContextLine(NamedTuple):
    """`follows`: it is the line directly after the one that was shown before."""

    time_ns: int
    line: str
    labels: Mapping[str, str]
    is_hit: bool
    follows: bool


@dataclass
class StreamContext:
    """The lines around the hits of one stream."""

    labels: Mapping[str, str]
    before: int
    after: int
    lines: dict[Place, Mapping[str, Any]] = field(default_factory=dict)
    hits: set[Place] = field(default_factory=set)
    following: dict[Place, Place] = field(default_factory=dict)

    def add(self, hit: Hit, found: Mapping[str, Any]) -> None:
        """Add the answer for one hit. A hit whose line the query has changed means all lines of its time."""
        lines: Sequence[Mapping[str, Any]] = [*found["before"], *found["at"], *found["after"]]
        places = [_place(line) for line in lines]
        self.following.update(pairwise(places))
        same = {_place(line) for line in found["at"] if line["line"] == hit.line}
        own = same or {_place(line) for line in found["at"]}
        self.hits |= own
        for number, place in enumerate(places):
            if place in own:
                first = max(0, number - self.before)
                for near in range(first, min(number + self.after + 1, len(lines))):
                    self.lines[places[near]] = lines[near]

    def shown(self) -> Iterator[ContextLine]:
        last: Place | None = None
        for place in sorted(self.lines):
            line = self.lines[place]
            follows = last is not None and self.following.get(last) == place
            labels = {**self.labels, **line["metadata"]}
            yield ContextLine(place[0], line["line"], labels, place in self.hits, follows)
            last = place


def _place(line: Mapping[str, Any]) -> Place:
    return (int(line["timestamp"]), *map(int, line["position"].split(".")))


def lines_around(streams: Iterable[Mapping[str, Any]], before: int, after: int, ask: Ask) -> Iterator[ContextLine]:
    """Yield the lines around the hits of these streams, which are those of an answer with labels by kind."""
    for stream in streams:
        own = StreamContext(stream["stream"], before, after)
        selector = selector_of(stream["stream"])
        for hit in {Hit(time_ns, line) for time_ns, line, _ in stream["values"]}:
            own.add(hit, ask(selector, hit.time_ns))
        yield from own.shown()


def selector_of(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={go_quote(labels[name])}" for name in sorted(labels)) + "}"
