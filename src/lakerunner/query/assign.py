"""Segments to units of work: which worker reads which segments, and how many of them at a time.

By rendezvous hashing: every worker draws a number for every segment, the highest reads it. So the same segment goes to
the same worker, which has it in its cache, and a worker that comes or goes moves no segment but its own share.

What always holds: every segment is in one share; the segments of a share stand in the order they came in, and shares in
the order of their first segments, so that rows asked for first come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from lakerunner.model.segment import Segment


@dataclass(frozen=True)
class UnitSize:
    """The most that one unit reads. A segment that alone has more bytes is a unit of its own."""

    bytes: int = 1 << 30
    segments: int = 500


@dataclass(frozen=True)
class Share:
    """What one worker reads in one unit."""

    worker: str
    segments: tuple[Segment, ...]


def assign(segments: Sequence[Segment], workers: Sequence[str], most: UnitSize) -> list[Share]:
    """Workers by name; at least one."""
    owners = _owners(segments, workers)
    of_worker: dict[str, list[int]] = {}
    for n, owner in enumerate(owners):
        of_worker.setdefault(owner, []).append(n)
    cut = [(owner, part) for owner, numbers in of_worker.items() for part in _cut(numbers, segments, most)]
    cut.sort(key=lambda share: share[1][0])
    return [Share(owner, tuple(segments[n] for n in part)) for owner, part in cut]


def ranked(segment: UUID, workers: Iterable[str]) -> list[str]:
    """The workers in the order in which they are to be asked for this segment."""
    return sorted(workers, key=lambda worker: (_draw(_hasher(worker), segment), worker), reverse=True)


def _owners(segments: Sequence[Segment], workers: Sequence[str]) -> list[str]:
    if len(workers) == 1:
        return [workers[0]] * len(segments)
    hashers = [(_hasher(worker), worker) for worker in workers]
    return [max((_draw(hasher, segment.id), worker) for hasher, worker in hashers)[1] for segment in segments]


def _hasher(worker: str) -> blake2b:
    return blake2b(worker.encode() + b"\0", digest_size=8)


def _draw(hasher: blake2b, segment: UUID) -> bytes:
    drawn = hasher.copy()
    drawn.update(segment.bytes)
    return drawn.digest()


def _cut(numbers: list[int], segments: Sequence[Segment], most: UnitSize) -> list[list[int]]:
    parts: list[list[int]] = []
    size = 0
    for n in numbers:
        size += segments[n].bytes
        if not parts or size > most.bytes or len(parts[-1]) == most.segments:
            parts.append([])
            size = segments[n].bytes
        parts[-1].append(n)
    return parts
