"""A time as people give it to commands and requests: an instant, or an age."""

from __future__ import annotations

from datetime import UTC, datetime

from lakerunner.model.errors import UserError
from lakerunner.model.time import MAX_NS, MIN_NS, SECOND_NS, duration_ns


def moment_ns(name: str, text: str, now_ns: int) -> int:
    """Parse an instant in ISO 8601 (UTC if it has no offset) or a duration before now. `name` is that of the argument,
    for the UserError."""
    ago = duration_ns(text)
    if ago is not None:
        return max(MIN_NS, now_ns - ago)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"{name} {text[:80]!r} is not a time: write 2026-01-31T12:00:00Z, or 6h, or 7d") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return min(max(MIN_NS, int(found.timestamp()) * SECOND_NS + found.microsecond * 1000), MAX_NS)
