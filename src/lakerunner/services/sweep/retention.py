"""Segments past their retention: they become `expired`, and no query that begins sees them. Their files stay for those
that run (services/sweep/ended.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from lakerunner.index.index import Index
from lakerunner.index.sweep import Past
from lakerunner.model.failpoint import reach
from lakerunner.model.retention import Cutoff, Retention, duration_text, name_of
from lakerunner.services.sweep.finding import PAGE, Finding, Found, Gone, Kind


class PastRetention:
    """`default` is of organizations that have none of their own."""

    name = "retention"

    def __init__(self, index: Index, default: Retention, page: int = PAGE) -> None:
        self._index = index
        self._default = default
        self._page = page

    def find(self, now_ns: int) -> Iterator[Found]:
        own = self._index.retention.all()
        for organization in self._index.organizations.all():
            retention = self._default.with_rows(own.get(organization.id, {}))
            for cutoff in retention.cutoffs(now_ns):
                keep = duration_text(now_ns - cutoff.before_ns)
                for page in self._pages(organization.id, cutoff):
                    yield Found(len(page), tuple(_finding(past, cutoff, keep) for past in page))

    def _pages(self, organization: UUID, cutoff: Cutoff) -> Iterator[list[Past]]:
        last: Past | None = None
        while page := self._index.sweep.past(organization, cutoff, last, self._page):
            yield page
            if len(page) < self._page:
                return
            last = page[-1]

    def take(self, findings: Sequence[Finding], now_ns: int) -> Gone:
        """All of a page are of one organization and cutoff."""
        reach("before-expire")
        first: Past = findings[0].about[0]
        ids = [finding.about[0].id for finding in findings]
        self._index.sweep.expire(first.organization, findings[0].about[1], ids, now_ns)
        reach("after-expire")
        return Gone()


def _finding(past: Past, cutoff: Cutoff, keep: str) -> Finding:
    what = name_of(past.signal, past.frequency_ms)
    reason = f"kept for {keep}; its files are deleted after the grace time"
    if past.unrolled and past.due:
        reason = f"kept for {keep}; its rollup did not happen in time, so rollups lack its rows"
    elif not past.due:
        reason = f"kept for {keep}, but stays: it is not rolled up yet, and rollups are kept longer"
    return Finding(
        Kind.PAST,
        what,
        reason,
        past.end_ns,
        past.organization,
        (past.path,),
        past.bytes,
        goes=past.due,
        about=(past, cutoff),
    )
