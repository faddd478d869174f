"""64-bit fingerprints: the same on every worker, machine and release, so they may be stored and compared.

A field fingerprint stands in the index for "this segment holds field = value" or "holds field at all".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

# Of each signal, the columns whose values have fingerprints, and the word that the statistics have for one of them.
VALUES: Mapping[str, Mapping[str, str]] = {
    "logs": {"service_name": "service"},
    "metrics": {"service_name": "service", "metric_name": "metric"},
    "traces": {"service_name": "service", "name": "name"},
}


def digest64(*parts: str) -> int:
    """A signed 64-bit digest of the parts; ("a", "bc") and ("ab", "c") differ."""
    hasher = blake2b(digest_size=8)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return int.from_bytes(hasher.digest(), "little", signed=True)


def field_fingerprints(field: str, values: Iterable[str] = ()) -> tuple[int, ...]:
    """One fingerprint for the presence of the field, then one for each of its values."""
    return (digest64(field), *(digest64(field, value) for value in values))


# Stands alone where a segment has too many fields and values to list: more than MAX_FINGERPRINTS. A segment may be
# pruned for lack of a fingerprint only if it lacks this one too.
MAX_FINGERPRINTS = 2000
INCOMPLETE = digest64("fingerprints", "incomplete")
