"""The labels of one line in the slow evaluator: one table of names, each with its kind and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

STREAM, METADATA, PARSED = range(3)
ERROR, DETAILS, PRESERVE = "__error__", "__error_details__", "__preserve_error__"


class Undefined(Exception):
    """The answer is not determined, or not told by this evaluator: nothing is compared."""


@dataclass(frozen=True)
class Needs:
    """What parsers must extract: everything (`names` None), or these names and nothing behind them."""

    names: frozenset[str] | None = None

    def wants(self, name: str) -> bool:
        return self.names is None or name in self.names

    def wants_below(self, prefix: str) -> bool:
        return self.names is None or any(name.startswith(prefix) for name in self.names)


EVERYTHING = Needs()


class SlowLabels:
    """`error` is "" while no stage has failed. `taken`: names that a parser has set once, dropped ones too."""

    def __init__(self, stream: Mapping[str, str], metadata: Mapping[str, str], needs: Needs) -> None:
        self.needs = needs
        self.of_stream = frozenset(stream)
        self.table: dict[str, tuple[int, str]] = {name: (STREAM, value) for name, value in stream.items()}
        for name, value in metadata.items():
            self.table[f"{name}_extracted" if name in stream else name] = (METADATA, value)
        self.dropped: set[str] = set()
        self.taken: set[str] = set()
        self.error = self.details = ""

    def get(self, name: str) -> str | None:
        return self.table[name][1] if name in self.table else None

    def collides(self, name: str) -> bool:
        return name in self.of_stream or self.table.get(name, (STREAM, ""))[0] == METADATA

    def put(self, name: str, value: str) -> None:
        self.table[name] = (PARSED, value)
        self.taken.add(name)

    def drop(self, name: str) -> None:
        self.table.pop(name, None)
        self.dropped.add(name)

    def parse(self, name: str, value: str) -> None:
        """Set what a parser found: the first value counts, a stored name gets a suffix."""
        own = f"{name}_extracted" if self.collides(name) else name
        if self.needs.wants(own) and own not in self.taken:
            self.put(own, value)

    @property
    def is_done(self) -> bool:
        """Return whether nothing more has to be extracted."""
        return self.needs.names is not None and self.needs.names <= self.taken

    def fail(self, error: str) -> None:
        """Record the error of a parser; a query that names errors keeps them."""
        self.error = error
        self.details = "?"
        if self.needs.names is not None and ERROR in self.needs.names:
            self.put(PRESERVE, "true")

    def by_kind(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        found = tuple(
            {n: v for n, (kind, v) in self.table.items() if kind == own} for own in (STREAM, METADATA, PARSED)
        )
        is_changed = bool(self.dropped) or any(kind != STREAM for kind, _ in self.table.values())
        if self.error or is_changed:
            errors = ((ERROR, self.error), (DETAILS, self.details))
            found[PARSED].update({name: value for name, value in errors if value})
        return found  # type: ignore[return-value]

    def all(self) -> dict[str, str]:
        stream, metadata, parsed = self.by_kind()
        return {**stream, **metadata, **parsed}


def with_bases(names: Iterable[str]) -> frozenset[str]:
    """Return the names, and what `<name>_extracted` is called in the line."""
    found = [one for one in names if one]
    return frozenset((*found, *(one.removesuffix("_extracted") for one in found if one != "_extracted")))
