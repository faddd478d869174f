"""The commit: one transaction that makes the result of a job visible, or leaves nothing of it.

What always holds: every source of a commit was `seen`, and its row is locked while the commit runs. So of two workers
that did the same or overlapping work exactly one commits; the other gets Conflict and nothing of it remains. Locks are
taken in one order (sources, replaced segments, rules, covered segments, column sets, rule sets, new segments), so
commits do not deadlock.
Segments come with the parts that rules make of them, so for each rule version and bucket the live parts are those of
the live segments that it covers (docs/decisions/0030).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lakerunner.index.database import Transaction, arrays_of, publish_later
from lakerunner.index.sources import Arrival, Identity, finding_arrays, identity_arrays, source_arrays, storable_text
from lakerunner.model.errors import Conflict
from lakerunner.model.segment import Column, Segment, digest64
from lakerunner.model.source import NO_FINDINGS, Findings, SourceObject, SourceState
from lakerunner.model.time import TimeRange


@dataclass(frozen=True)
class Basis:
    """What the buckets of a rollup were made of: all segments of a collector's tier that were live in the range and
    readable. Segments that were left out are not listed: others may have rolled them up meanwhile."""

    collector: str
    signal: str
    frequency_ms: int
    time: TimeRange
    segments: frozenset[UUID]


@dataclass(frozen=True)
class Covering:
    """A live segment with the rule set with which it was read, and the versions that cover it too from now on."""

    segment: Segment
    added: tuple[int, ...]

    @property
    def rule_set(self) -> tuple[int, ...]:
        """The rule set with these versions."""
        return tuple(sorted({*self.segment.rule_set, *self.added}))


@dataclass(frozen=True)
class Commit:
    """The result of a job, all of one organization. `failed` pairs a source with its reason; `messages` are (topic,
    payload). `findings` belong to sources that are done: with a rejected line they are partial. `rerouted` stay seen
    and are requested again for another signal. `rolled` are segments whose rows the new buckets hold, `basis` all that
    these were made of; `rolled_of` is their organization, as there may be no bucket. `contiguous`: the replaced
    segments must be neighbours in the order of `ingested`. `repaired`: the replaced ones were lost, and the new ones
    get their creation time. `parts` are segments of what rules make of the new and the covered segments, or take back
    for rows that the replaced ones held twice; they replace nothing. `covered` are stored segments that rules cover
    now."""

    segments: tuple[Segment, ...]
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    replaced: tuple[UUID, ...] = ()
    messages: tuple[tuple[str, bytes], ...] = ()
    rolled: tuple[UUID, ...] = ()
    basis: Basis | None = None
    rolled_of: UUID | None = None
    contiguous: bool = False
    repaired: bool = False
    findings: tuple[tuple[SourceObject, Findings], ...] = ()
    rerouted: tuple[Arrival, ...] = ()
    parts: tuple[Segment, ...] = ()
    covered: tuple[Covering, ...] = ()

    def __post_init__(self) -> None:
        stored = (one.segment for one in self.covered)
        if len({segment.organization for segment in (*self.segments, *self.parts, *stored)}) > 1:
            raise ValueError("a commit holds segments of one organization")
        if self.replaced and not self.segments:
            raise ValueError("segments are replaced by segments, not by nothing")
        if self.parts and not self.segments and not self.covered:
            raise ValueError("parts come with the segments that they were made of")
        if len({source.identity for source in self.sources}) < len(self.sources):
            raise ValueError("a commit names a source once, as done, failed or rerouted")

    @property
    def sources(self) -> tuple[SourceObject, ...]:
        return (*self.done, *(source for source, _ in self.failed), *(arrival.source for arrival in self.rerouted))

    @property
    def organization(self) -> UUID | None:
        """The organization, None if the commit has no segments."""
        named = (*self.segments, *(one.segment for one in self.covered))
        return named[0].organization if named else self.rolled_of


def write_commit(transaction: Transaction, commit: Commit) -> None:
    """Write it. Conflict if another worker was first at any part of it; the caller then rolls back."""
    ids = _lock_sources(transaction, commit)
    if commit.organization is not None:
        if commit.basis is not None:
            _check_basis(transaction, commit.organization, commit.basis)
        if commit.contiguous:
            _check_contiguous(transaction, commit.organization, commit.replaced)
        _replace_segments(transaction, commit.organization, commit.replaced)
        _mark_rolled(transaction, commit.organization, commit.rolled)
        _lock_covered(transaction, commit.organization, commit.covered)
        _insert_segments(transaction, commit)
        _grow_rule_sets(transaction, commit.covered)
        if commit.repaired:
            _keep_creation_times(transaction, commit.segments, commit.replaced)
    _finish_sources(transaction, commit, ids)
    _reroute_sources(transaction, commit.rerouted, ids)
    publish_later(transaction, commit.messages)


def _lock_sources(transaction: Transaction, commit: Commit) -> dict[Identity, int]:
    """Lock the commit's sources until the transaction ends; return their row ids. Conflict unless all are `seen`."""
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
        raise Conflict(
            "another worker has just recorded a source object that was never announced: read the sources again"
        )
    return {(bucket, key, etag): id_ for bucket, key, etag, id_ in rows}


def _finish_sources(transaction: Transaction, commit: Commit, ids: dict[Identity, int]) -> None:
    """End the sources, and dismiss failed versions of which a newer one is done: either may have ended first."""
    if not commit.done and not commit.failed:
        return
    findings = {source.identity: found for source, found in commit.findings}
    ended: list[tuple[SourceObject, Findings, str | None]] = [
        *((source, findings.get(source.identity, NO_FINDINGS), None) for source in commit.done),
        *((source, NO_FINDINGS, storable_text(reason)) for source, reason in commit.failed),
    ]
    values = {
        "ids": [ids[source.identity] for source, _, _ in ended],
        "states": [_end_state(found, reason) for _, found, reason in ended],
        "reasons": [reason for _, _, reason in ended],
    }
    transaction.run("source_objects.finish", values | finding_arrays([found for _, found, _ in ended]))
    transaction.run("source_objects.supersede", identity_arrays(source.identity for source, _, _ in ended))


def _reroute_sources(transaction: Transaction, moved: Sequence[Arrival], ids: dict[Identity, int]) -> None:
    """Request these again for their own signal, once even if several workers do so."""
    if moved:
        named = {"ids": [ids[arrival.source.identity] for arrival in moved]}
        values = arrays_of(moved, signals="signal", topics="topic", payloads="payload")
        transaction.run("source_objects.reroute", named | values)
        transaction.rows("outbox.notify")


def _end_state(found: Findings, reason: str | None) -> SourceState:
    if reason is not None:
        return SourceState.FAILED
    return SourceState.PARTIAL if found.rejects else SourceState.DONE


def _insert_segments(transaction: Transaction, commit: Commit) -> None:
    """Insert the new segments and their parts. Conflict if one of the ids exists, live or replaced."""
    new = sorted((*commit.segments, *commit.parts), key=lambda segment: segment.id)
    columns = {_column_set_id(one.columns): _column_set(one.columns) for one in new}
    if columns:
        transaction.run("segments.insert_column_sets", {"ids": list(columns), "columns": list(columns.values())})
    sets = {one.rule_set for one in new} | {one.rule_set for one in commit.covered}
    rules = {_rule_set_id(one): _rule_set(one) for one in sets if one}
    if rules:
        transaction.run("segments.insert_rule_sets", {"ids": list(rules), "rules": list(rules.values())})
    if not new:
        return
    parts, inputs = {one.id for one in commit.parts}, sorted(commit.replaced) or None
    values = [_segment_values(one) | {"inputs": None if one.id in parts else inputs} for one in new]
    if transaction.run_each("segments.insert", values) < len(new):
        raise Conflict(f"a segment of this work is already in the index: one of {_list_ids(s.id for s in new)}")


def _lock_covered(transaction: Transaction, organization: UUID, covered: Sequence[Covering]) -> None:
    """Lock the segments that rules cover from now on, and these versions. Conflict if a segment was replaced, or is
    covered by others than when it was read, or a version has ended: its parts would be wrong, or useless."""
    added = {id_ for one in covered for id_ in one.added}
    if not added:
        return
    named = {"organization": organization, "ids": sorted(added)}
    if {id_ for (id_,) in transaction.rows("rule_history.lock_versions", named)} != added:
        raise Conflict("a version of a rule has ended meanwhile")
    before = {one.segment.id: _rule_set_id(one.segment.rule_set) for one in covered}
    ids = {"organization": organization, "ids": sorted(before)}
    if dict(transaction.rows("rule_history.lock_segments", ids)) != before:
        raise Conflict(f"a segment to cover is no longer live, or others cover it now: one of {_list_ids(before)}")


def _grow_rule_sets(transaction: Transaction, covered: Sequence[Covering]) -> None:
    values = [{"id": one.segment.id, "rule_set": _rule_set_id(one.rule_set)} for one in covered if one.added]
    if values:
        transaction.run_each("rule_history.grow", values)


def _replace_segments(transaction: Transaction, organization: UUID, ids: Iterable[UUID]) -> None:
    """Mark these as replaced. Conflict if one of them is not a live segment of the organization."""
    old = set(ids)
    if old and transaction.run("segments.replace", {"organization": organization, "ids": list(old)}) < len(old):
        raise Conflict(f"a segment to replace is no longer live: one of {_list_ids(old)}")


def _keep_creation_times(transaction: Transaction, segments: Iterable[Segment], lost: Iterable[UUID]) -> None:
    """Give the segments the creation time of the lost ones whose rows they have: raw objects are found by it."""
    transaction.run("segments.keep_birth", {"ids": [one.id for one in segments], "lost": list(lost)})


def _mark_rolled(transaction: Transaction, organization: UUID, ids: Iterable[UUID]) -> None:
    """Mark these as rolled up. Conflict if one of them is not a live segment of the organization."""
    old = set(ids)
    if old and transaction.run("segments.roll", {"organization": organization, "ids": list(old)}) < len(old):
        raise Conflict(f"a segment that was rolled up is no longer live: one of {_list_ids(old)}")


def _check_basis(transaction: Transaction, organization: UUID, basis: Basis) -> None:
    """Raise Conflict if other buckets were made of a segment that these were not made of. A lock makes commits of this
    collector's tier wait for each other until the transaction ends; so the last one was made of everything that those
    before it were made of. A segment that arrived meanwhile and is not rolled up is no conflict: its buckets come
    later."""
    names = "collector", "signal", "frequency_ms"
    tier = {"organization": organization} | {name: getattr(basis, name) for name in names}
    transaction.rows("segments.lock_tier", {"tier": "/".join(map(str, tier.values()))})
    between = {"start_ns": basis.time.start_ns, "end_ns": basis.time.end_ns}
    there = {id_ for (id_,) in transaction.rows("segments.rolled_ids", tier | between)}
    if not there <= basis.segments:
        raise Conflict("segments were rolled up after these were read: read them again")


def _check_contiguous(transaction: Transaction, organization: UUID, ids: Iterable[UUID]) -> None:
    """Raise Conflict if a live segment of the same tier and time lies between these in the order of `ingested`."""
    if transaction.rows("segments.between", {"organization": organization, "ids": list(ids)}):
        raise Conflict("a segment was added between those that were merged: read them again")


def _column_set_id(columns: tuple[Column, ...]) -> int:
    return digest64(*(part for column in columns for part in (column.name, column.type)))


def _column_set(columns: tuple[Column, ...]) -> str:
    """Return the columns as ASCII JSON: attribute names may hold what PostgreSQL's text cannot."""
    return json.dumps([[column.name, column.type] for column in columns], separators=(",", ":"))


def _rule_set_id(rules: tuple[int, ...]) -> int | None:
    return digest64(*map(str, rules)) if rules else None


def _rule_set(rules: tuple[int, ...]) -> str:
    """Return the versions as the text of an array: unnest would take an array of arrays apart."""
    return f"{{{','.join(map(str, rules))}}}"


def _segment_values(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "organization": segment.organization,
        "collector": segment.collector,
        "signal": segment.signal,
        "start_ns": segment.time.start_ns,
        "end_ns": segment.time.end_ns,
        "frequency_ms": segment.frequency_ms,
        "level": segment.level,
        "sort_version": segment.sort_version,
        "rows": segment.rows,
        "bytes": segment.bytes,
        "column_set": _column_set_id(segment.columns),
        "statistics": json.dumps(dict(segment.statistics), allow_nan=False),
        "fingerprints": list(segment.fingerprints),
        "ingested": segment.ingested,
        "rolled": segment.rolled,
        "rule_set": _rule_set_id(segment.rule_set),
    }


def _list_ids(ids: Iterable[UUID]) -> str:
    names = sorted(str(id_) for id_ in ids)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
