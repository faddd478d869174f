"""Chores for rows of the index: pushed requests that are too old to be recognized as duplicates, and failed work whose
segments are all gone or done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakerunner.api.push.push_store import REMEMBERED_SECONDS
from lakerunner.bus.topics import CompactBox, RollupBox, decode
from lakerunner.index.index import Index
from lakerunner.index.sweep import FailedBox
from lakerunner.model.errors import Corrupt
from lakerunner.model.failpoint import reach
from lakerunner.model.time import SECOND_NS
from lakerunner.services.sweep.finding import PAGE, Finding, FindingPage, Removal, SweepKind


class OldPushes:
    """Forgets old pushed requests. Doors do so too, a few with every batch that they store; this is for idle doors."""

    name = "pushes"

    def __init__(self, index: Index, page: int = PAGE) -> None:
        self._index = index
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:
        count, oldest_ns = self._index.sweep.old_pushes(_before(now_ns))
        if oldest_ns is not None:
            reason = "requests received more than 24 h ago: duplicates of them are no longer detected"
            yield FindingPage(count, (Finding(SweepKind.PUSH, "", reason, oldest_ns, count=count),))

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002 - the index knows which
        forgotten = 0
        while batch := self._index.sweep.forget_pushes(_before(now_ns), self._page):
            forgotten += batch
            if batch < self._page:
                break
        reach("after-forget")
        return Removal(rows=(("push_objects", forgotten), ("pushes", forgotten)))


class VoidWork:
    """Forgets failed work that has nothing left to do: no retry can help it, and nothing needs it. A merge needs a live
    segment, a rollup a live one that is not rolled up."""

    name = "failed work"

    def __init__(self, index: Index, page: int = PAGE) -> None:
        self._index = index
        self._page = page

    def find(self, now_ns: int) -> Iterator[FindingPage]:  # noqa: ARG002 - void is not a matter of time
        last: FailedBox | None = None
        while page := self._index.sweep.failed_work(last, self._page):
            yield FindingPage(len(page), tuple(_void(box) for box in page if self._is_void(box)))
            if len(page) < self._page:
                return
            last = page[-1]

    def _is_void(self, failed: FailedBox) -> bool:
        try:
            box = decode(failed.payload)
        except Corrupt:  # written by another version, which may be able to read it
            return False
        if not isinstance(box, CompactBox | RollupBox):
            return False
        live = self._index.sweep.live(box.segments)
        return not live or (isinstance(box, RollupBox) and all(live.values()))

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:  # noqa: ARG002
        forgotten = self._index.sweep.forget_work([finding.about for finding in findings])
        reach("after-forget")
        return Removal(rows=(("failed_work", forgotten),))


def _void(box: FailedBox) -> Finding:
    reason = "none of its segments waits for this work any more"
    return Finding(SweepKind.WORK, box.topic, reason, box.first_ns, box.organization, about=box)


def _before(now_ns: int) -> int:
    return now_ns - int(REMEMBERED_SECONDS) * SECOND_NS
