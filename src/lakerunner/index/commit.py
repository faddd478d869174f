"""The commit point: one transaction that makes a piece of work visible, or leaves nothing of it.

What always holds: every source of a commit was `seen` and its row locked while the commit ran, so of two
workers that did the same work, or overlapping work, exactly one commits; the other gets Conflict and nothing
of it remains. Locks are taken in one order (sources, replaced segments, column sets, new segments), so
commits do not deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lakerunner.index import segments as segment_rows
from lakerunner.index.database import Transaction
from lakerunner.index.findings import finding_arrays
from lakerunner.index.sources import Arrival, Identity, identity_arrays, source_arrays, storable
from lakerunner.model.errors import Conflict
from lakerunner.model.findings import NOTHING, Findings
from lakerunner.model.segment import Segment
from lakerunner.model.source import SourceObject, SourceState


@dataclass(frozen=True)
class Commit:
    """All of one organization. `failed` pairs a source with its reason; `messages` are (topic, payload). `findings` are
    what is known of sources that are done: with a rejected line they are partial. `rerouted` stay seen, and are asked
    for as of another signal. `rolled` are segments whose rows the new windows hold, `basis` all that these were made
    of; `rolled_of` says whose they are, as there may be no window to tell. `contiguous`: those replaced must be
    neighbours in the order of `ingested`. `repaired`: those replaced were lost, and the new ones are as old as they."""

    segments: tuple[Segment, ...]
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    replaced: tuple[UUID, ...] = ()
    messages: tuple[tuple[str, bytes], ...] = ()
    rolled: tuple[UUID, ...] = ()
    basis: segment_rows.Basis | None = None
    rolled_of: UUID | None = None
    contiguous: bool = False
    repaired: bool = False
    findings: tuple[tuple[SourceObject, Findings], ...] = ()
    rerouted: tuple[Arrival, ...] = ()

    def __post_init__(self) -> None:
        if len({segment.organization for segment in self.segments}) > 1:
            raise ValueError("a commit holds segments of one organization")
        if self.replaced and not self.segments:
            raise ValueError("segments are replaced by segments, not by nothing")
        if len({source.identity for source in self.sources}) < len(self.sources):
            raise ValueError("a commit names a source once, as done, failed or rerouted")

    @property
    def sources(self) -> tuple[SourceObject, ...]:
        return (*self.done, *(source for source, _ in self.failed), *(arrival.source for arrival in self.rerouted))

    @property
    def organization(self) -> UUID | None:
        """None where there are no segments to tell."""
        return self.segments[0].organization if self.segments else self.rolled_of


def write(transaction: Transaction, commit: Commit) -> None:
    """Conflict if another worker was first at any part of it; the caller's transaction is then rolled
    back."""
    ids = _lock_sources(transaction, commit)
    if commit.organization is not None:
        if commit.basis is not None:
            segment_rows.check_basis(transaction, commit.organization, commit.basis)
        if commit.contiguous:
            segment_rows.check_contiguous(transaction, commit.organization, commit.replaced)
        segment_rows.replace(transaction, commit.organization, commit.replaced)
        segment_rows.roll(transaction, commit.organization, commit.rolled)
        segment_rows.insert(transaction, commit.segments, commit.replaced)
        if commit.repaired:
            segment_rows.keep_birth(transaction, commit.segments, commit.replaced)
    _finish_sources(transaction, commit, ids)
    _reroute(transaction, commit.rerouted, ids)
    if commit.messages:
        topics, payloads = (list(column) for column in zip(*commit.messages, strict=True))
        transaction.run("outbox.insert", {"topics": topics, "payloads": payloads})
        transaction.rows("outbox.notify")


def _lock_sources(transaction: Transaction, commit: Commit) -> dict[Identity, int]:
    """The row ids of the commit's sources, all of them `seen`, locked until the transaction ends."""
    if not commit.sources:
        return {}
    wanted = {source.identity for source in commit.sources}
    ids: dict[Identity, int] = {}
    for bucket, key, etag, id_, state in transaction.rows("source_objects.lock", identity_arrays(wanted)):
        if (bucket, key, etag) not in wanted:
            continue
        if state != SourceState.SEEN:
            raise Conflict(f"source object {bucket}/{key} is {state} already: another worker committed first")
        ids[bucket, key, etag] = id_
    return ids | _insert_unannounced(transaction, commit, ids)


def _insert_unannounced(transaction: Transaction, commit: Commit, known: dict[Identity, int]) -> dict[Identity, int]:
    missing = [source for source in commit.sources if source.identity not in known]
    if not missing:
        return {}
    values = source_arrays(missing) | {"organization": commit.organization}
    rows = transaction.rows("source_objects.insert", values)
    if len(rows) < len(missing):
        raise Conflict("another worker has just recorded a source object that was never announced: look again")
    return {(bucket, key, etag): id_ for bucket, key, etag, id_ in rows}


def _finish_sources(transaction: Transaction, commit: Commit, ids: dict[Identity, int]) -> None:
    """End them, and dismiss versions that failed where a newer one is done: either may have ended first."""
    if not commit.done and not commit.failed:
        return
    findings = {source.identity: found for source, found in commit.findings}
    ended: list[tuple[SourceObject, Findings, str | None]] = [
        *((source, findings.get(source.identity, NOTHING), None) for source in commit.done),
        *((source, NOTHING, storable(reason)) for source, reason in commit.failed),
    ]
    values = {
        "ids": [ids[source.identity] for source, _, _ in ended],
        "states": [_state(found, reason) for _, found, reason in ended],
        "reasons": [reason for _, _, reason in ended],
    }
    transaction.run("source_objects.finish", values | finding_arrays([found for _, found, _ in ended]))
    transaction.run("source_objects.supersede", identity_arrays(source.identity for source, _, _ in ended))


def _reroute(transaction: Transaction, moved: Sequence[Arrival], ids: dict[Identity, int]) -> None:
    """Ask for these as of their own signal, each once, however many workers find it out."""
    if moved:
        values = {
            "ids": [ids[arrival.source.identity] for arrival in moved],
            "signals": [arrival.signal for arrival in moved],
            "topics": [arrival.topic for arrival in moved],
            "payloads": [arrival.payload for arrival in moved],
        }
        transaction.run("source_objects.reroute", values)
        transaction.rows("outbox.notify")


def _state(found: Findings, reason: str | None) -> SourceState:
    if reason is not None:
        return SourceState.FAILED
    return SourceState.PARTIAL if found.rejects else SourceState.DONE
