"""Which objects of a box are tried together, after some of them may have cost a worker its life.

Comes in: the objects of a box that are not finished, and how often each was begun without an end, in a job of how many
(its company). Goes out: groups to do, each in a job of its own, and the objects that are given up.

What always holds: an object is begun `limit` times in one company, then in half of it, and given up after as many
times alone. So a box of n objects with one that kills its worker costs at most limit * (log2(n) + 1) workers, and its
neighbours get through. A company never grows: what failed is not put together with more again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakerunner.index.sources import Attempts, Identity
from lakerunner.model.source import SourceObject

_NONE = Attempts(0, 0)
_ANY = 1 << 31


@dataclass(frozen=True)
class Cut:
    groups: tuple[tuple[SourceObject, ...], ...]
    given_up: tuple[SourceObject, ...]


def cut(sources: Sequence[SourceObject], attempts: Mapping[Identity, Attempts], limit: int) -> Cut:
    """The same objects with the same attempts give the same groups."""
    by_company: dict[int, list[SourceObject]] = {}
    given_up = []
    for source in sorted(sources):
        tried = attempts.get(source.identity, _NONE)
        if tried.company == 1 and tried.count >= limit:
            given_up.append(source)
        else:
            by_company.setdefault(_next_company(tried, limit), []).append(source)
    groups = [
        tuple(members[start : start + company])
        for company, members in sorted(by_company.items())
        for start in range(0, len(members), company)
    ]
    return Cut(tuple(groups), tuple(given_up))


def _next_company(tried: Attempts, limit: int) -> int:
    """The most objects that the next job may hold."""
    if tried.company == 0:
        return _ANY
    return tried.company if tried.count < limit else (tried.company + 1) // 2
