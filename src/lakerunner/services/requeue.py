"""Failed work and segments set aside, back on their way: what `lakerunner work --requeue` does."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from lakerunner.bus.topics import CompactBox, RollupBox, decode
from lakerunner.index.tending import Tending, Work
from lakerunner.model.errors import Corrupt, NotFound
from lakerunner.services.follow_up import committed

_MOST = 10_000


@dataclass(frozen=True)
class Requeue:
    tending: Tending

    def __call__(self, organization: UUID, ids: Collection[str]) -> tuple[int, int]:
        """(works, segments) that go again: those of these ids, or all if there are none. A work takes its segments
        along. NotFound if an id is of neither."""
        works = [one.work for one in self.tending.failed(organization, limit=_MOST)]
        aside = [one for one, _ in self.tending.list_aside(organization, limit=_MOST)]
        if ids:
            unknown = set(ids) - {work.id for work in works} - {str(one.id) for one in aside}
            if unknown:
                raise NotFound(f"no failed work and no segment set aside has the id {min(unknown)!r}")
            works = [work for work in works if work.id in ids]
        of_works = {id_ for work in works for id_ in _segments_of(work)}
        back = [one for one in aside if not ids or str(one.id) in ids or one.id in of_works]
        messages = committed([one for one in back if one.id not in of_works])
        return self.tending.requeue(organization, works, [one.id for one in back], messages)


def _segments_of(work: Work) -> tuple[UUID, ...]:
    try:
        box = decode(work.payload)
    except Corrupt:  # of another version: it is dropped when it is taken
        return ()
    return box.segments if isinstance(box, CompactBox | RollupBox) else ()
