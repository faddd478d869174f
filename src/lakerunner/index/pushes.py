"""Pushed requests: which raw object holds each, so that a request that is sent again is not stored again.

A push endpoint claims its requests for an object before it writes the object, and records when it is stored. In
between, and after a crash, only the store knows whether the object exists. The durable push of the API decides by these
rows; docs/decisions/0002-a-push-counts-once.md has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from lakerunner.index.database import Database

# Each stored batch forgets at most this many old ones: more than come in, and bounded work.
_FORGOTTEN_AT_ONCE = 4


@dataclass(frozen=True)
class PushObject:
    """An object that requests were claimed for `seconds` ago. Not `stored`: it is not recorded yet that it exists."""

    id: int
    key: str
    stored: bool
    seconds: float


@dataclass(frozen=True)
class Claim:
    """`mine` are the requests that belong to the object named in this claim, `others` those that had one before."""

    object: int
    mine: frozenset[bytes]
    others: Mapping[bytes, PushObject]


class Pushes:
    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, organization: UUID, signal: str, key: str, digests: Sequence[bytes]) -> Claim:
        """Claim the requests that are not claimed yet for the new object of this key. A request that is being forgotten
        just now may be in neither part."""
        values = {"organization": organization, "signal": signal, "key": key, "digests": list(digests)}
        with self._database.transaction() as transaction:
            ((made, mine),) = transaction.rows("pushes.claim", values)
            known = set(digests).difference(mine)
            rows = transaction.rows("pushes.claimed", values | {"digests": list(known)}) if known else []
        return Claim(made, frozenset(mine), {digest: PushObject(*found) for digest, *found in rows})

    def take_over(
        self, organization: UUID, signal: str, digests: Iterable[bytes], *, holder: int, heir: int
    ) -> frozenset[bytes]:
        """Return those of the requests that still belonged to object `holder`: they now belong to `heir`."""
        values = {"organization": organization, "signal": signal, "digests": list(digests)}
        rows = self._database.rows("pushes.take_over", values | {"holder": holder, "heir": heir})
        return frozenset(digest for (digest,) in rows)

    def stored(self, number: int, *, forget_seconds: float) -> None:
        """Record that the object exists and is announced, and forget some of the requests older than
        `forget_seconds`."""
        with self._database.transaction() as transaction:
            transaction.run("pushes.stored", {"object": number})
            transaction.run("pushes.forget", {"seconds": forget_seconds, "limit": _FORGOTTEN_AT_ONCE})
