"""A source object: one raw file of telemetry as it came, named by bucket, key and etag.

The triple is its identity everywhere: in messages, in the index, and for exactly-once.
A key says whose it is: `otel-raw/{org}/{collector}/...`, where org is an id or a display name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from lakerunner.model.errors import UserError
from lakerunner.model.organization import checked_name

RAW_PREFIX = "otel-raw/"
SEGMENT_PREFIX = "db/"

# A file name says its signal when it holds one of these words; otherwise it is taken for logs.
_SIGNAL_WORDS = (
    ("metrics", re.compile(r"(?<![a-z])metrics?(?![a-z])", re.I)),
    ("traces", re.compile(r"(?<![a-z])(traces?|spans?)(?![a-z])", re.I)),
)


class SourceState(StrEnum):
    """seen: announced, not yet committed. done: its rows are in segments. failed: set aside, see reason."""

    SEEN = "seen"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, order=True)
class SourceObject:
    """Identity plus the size in bytes and the time it was last modified (ns)."""

    bucket: str
    key: str
    etag: str
    size: int
    modified_ns: int

    def __post_init__(self) -> None:
        if not self.bucket or not self.key or not self.etag:
            raise ValueError(f"a source object needs bucket, key and etag: {self}")
        if self.size < 0:
            raise ValueError(f"a size cannot be negative: {self}")

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.bucket, self.key, self.etag)


@dataclass(frozen=True)
class Route:
    """Whose a raw key is, and which signal it carries. `organization` is an id or a display name."""

    organization: str
    collector: str
    signal: str


def route_of(key: str) -> Route | None:
    """The route a key's path states; None for a key that is not raw telemetry (our own segments, strays)."""
    if not key.startswith(RAW_PREFIX):
        return None
    parts = key[len(RAW_PREFIX) :].split("/")
    if len(parts) < 3 or not parts[-1] or parts[-1].startswith("."):
        return None
    try:
        organization = checked_name("organization", parts[0])
        collector = checked_name("collector", parts[1])
    except UserError:
        return None
    return Route(organization, collector, _signal_of(parts[-1]))


def _signal_of(file_name: str) -> str:
    for signal, pattern in _SIGNAL_WORDS:
        if pattern.search(file_name):
            return signal
    return "logs"
