"""The labels of one line on its way through a pipeline: of the stream, metadata and parsed ones.

What always holds: a name stands once. The labels of the stream (`base`) are those that were stored; stages never change
them but lay deletions and additions over them, so that all lines of a stream share them. Metadata whose name the stream
has gets the suffix `_extracted`; parsers do the same with what they find (stages/parsed.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

ERROR, ERROR_DETAILS, PRESERVE_ERROR = "__error__", "__error_details__", "__preserve_error__"
EXTRACTED = "_extracted"


class LabelKind(IntEnum):
    STREAM = 0
    METADATA = 1
    PARSED = 2


class LineLabels:
    """`added` has a dictionary for each kind, in the order in which stages set them. `error` and `error_details` are ""
    while no stage has failed. `extracted` has the name of every parsed label that was ever set on the line, dropped
    ones too: the first parser that finds a label decides its value."""

    __slots__ = ("added", "base", "deleted", "error", "error_details", "extracted")

    def __init__(self, base: Mapping[str, str], metadata: Mapping[str, str]) -> None:
        self.base = base
        self.deleted: set[str] = set()
        self.extracted: set[str] = set()
        self.added: tuple[dict[str, str], dict[str, str], dict[str, str]] = ({}, {}, {})
        self.error = self.error_details = ""
        for name, value in metadata.items():
            own = name + EXTRACTED if name in base else name
            if own == ERROR:
                self.error = value
            elif own == ERROR_DETAILS:
                self.error_details = value
            else:
                self.added[LabelKind.METADATA][own] = value

    def get(self, name: str) -> str | None:
        """Return the value, None if the line has no such label. Errors are not among them."""
        for own in self.added:
            if (value := own.get(name)) is not None:
                return value
        return None if name in self.deleted else self.base.get(name)

    def kind_of(self, name: str) -> LabelKind | None:
        for kind in LabelKind:
            if name in self.added[kind]:
                return kind
        return LabelKind.STREAM if name in self.base and name not in self.deleted else None

    def is_stored(self, name: str) -> bool:
        """Return whether a parsed label of this name must be renamed: the stream has it, even if it was dropped, or the
        metadata has it, unless it was dropped."""
        return name in self.base or name in self.added[LabelKind.METADATA]

    def set(self, kind: LabelKind, name: str, value: str) -> None:
        """Set a label. A parsed one replaces the others of its name, metadata replaces one of the stream; a label of a
        lesser kind is not set where a greater one stands."""
        if any(name in self.added[greater] for greater in range(kind + 1, len(LabelKind))):
            return
        for lesser in range(kind):
            self.added[lesser].pop(name, None)
        self.added[kind][name] = value
        if kind is LabelKind.PARSED:
            self.extracted.add(name)

    def set_parsed(self, name: str, value: str) -> None:
        """Do what `set` does for a parsed label, in half the time."""
        stream, metadata, parsed = self.added
        if stream:
            stream.pop(name, None)
        if metadata:
            metadata.pop(name, None)
        parsed[name] = value
        self.extracted.add(name)

    def delete(self, name: str) -> None:
        for own in self.added:
            own.pop(name, None)
        self.deleted.add(name)

    @property
    def is_changed(self) -> bool:
        return bool(self.deleted) or any(self.added)

    def by_kind(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Return the labels of each kind; errors stand among the parsed ones."""
        stream, metadata, parsed = self.added
        hidden = self.deleted
        kept = {
            name: value
            for name, value in self.base.items()
            if name not in hidden and name not in metadata and name not in parsed
        }
        return {**kept, **stream}, dict(metadata), {**parsed, **self._errors()}

    def all(self) -> dict[str, str]:
        """Return the labels of all kinds, errors included."""
        stream, metadata, parsed = self.by_kind()
        return {**stream, **metadata, **parsed}

    def _errors(self) -> dict[str, str]:
        # Loki returns the labels of a stream as they are where no stage changed them and no error stands: details that
        # a dropped error left behind are then not seen.
        if not self.error and not self.is_changed:
            return {}
        errors = ((ERROR, self.error), (ERROR_DETAILS, self.error_details))
        return {name: value for name, value in errors if value}
