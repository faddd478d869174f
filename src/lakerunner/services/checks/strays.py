"""Check that the index knows every object below db/.

Comes in: a listing. Goes out: findings. An object that no row names is an error once it is older than the grace time
of the sweeper. Before that it may belong to work that is about to be committed; such objects are counted in one note.
Files of segments that are not live any more, past the grace time, are a note: the sweeper is late.

What always holds: an object is looked up after it was listed, and one that is reported still exists, so objects that
are committed or swept meanwhile are not findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from lakerunner.model.display import plural
from lakerunner.model.errors import Absent
from lakerunner.model.segment import Segment
from lakerunner.model.source import SEGMENT_PREFIX
from lakerunner.model.time import SECOND_NS
from lakerunner.objects.store import ObjectMeta
from lakerunner.services.checks.finding import ERROR, NOTE, CheckScope, Finding, Findings, Lake
from lakerunner.services.checks.segment_reading import size_of
from lakerunner.services.sweep.finding import listing_pages, segment_in

CHECK = "objects"
_ID = re.compile(r"tbl_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.[^/]+")
_SWEEP = "check that a sweeper is running: it deletes the object; so does `lakerunner sweep`"
_LOOK = "the sweeper leaves it: find out who wrote it, then delete it; nothing reads it"


@dataclass
class _Tally:
    young: int = 0
    newest: str = ""
    ended: int = 0
    oldest: str = ""


def check_strays(lake: Lake, scope: CheckScope, found: Findings) -> None:
    """Check the objects of one organization."""
    tally = _Tally()
    prefix = f"{SEGMENT_PREFIX}{scope.organization.id}/"
    for page in listing_pages(lake.store.list(prefix)):
        _look_at(lake, scope, page, found, tally)
        lake.say(f"{scope.organization.name}: {plural(found.looked_at['objects'], 'object')} below {SEGMENT_PREFIX}")
    if tally.young:
        young = plural(tally.young, "young object")
        what = f"{young} not known to the index: work that is about to be committed, or was cut"
        found.add(scope.finding(CHECK, NOTE, what, tally.newest, "nothing: the sweeper takes what is left over"))
    if tally.ended:
        what = f"{plural(tally.ended, 'object')} of replaced or expired segments past the grace time"
        found.add(scope.finding(CHECK, NOTE, what, tally.oldest, _SWEEP))


def check_unowned(lake: Lake, found: Findings) -> None:
    """Report objects below db/ that belong to no known organization."""
    known = {str(one.id) for one in lake.index.organizations.all()}
    for meta in lake.store.list(SEGMENT_PREFIX):
        owner = meta.key.removeprefix(SEGMENT_PREFIX).partition("/")[0]
        if owner not in known and not _is_new(lake, owner):
            found.looked_at["objects"] += 1
            what = "this object belongs to no known organization"
            found.add(
                Finding(CHECK, ERROR, "", what, meta.key, "find out who wrote it, then delete it: nothing reads it")
            )


def _is_new(lake: Lake, owner: str) -> bool:
    """Return whether the organization was created meanwhile. Segments are below its id, never below its name."""
    one = lake.index.organizations.find(owner)
    return one is not None and str(one.id) == owner


def _look_at(lake: Lake, scope: CheckScope, page: Sequence[ObjectMeta], found: Findings, tally: _Tally) -> None:
    found.looked_at["objects"] += len(page)
    ids = {meta.key: id_ for meta in page if (id_ := _id_in(meta.key)) is not None}
    inspect = lake.index.inspect
    states = inspect.states(set(ids.values()))
    segments = {one.id: one for one in lake.index.segments.get(scope.organization.id, states)}
    for meta in page:
        id_ = ids.get(meta.key)
        segment = segments.get(id_) if id_ is not None else None
        if segment is None or meta.key not in set(_names(segment)):
            goes = segment_in(meta.key) is not None and id_ not in states  # as in services/sweep/segment_chores.py
            _add_unknown(lake, scope, meta, _SWEEP if goes else _LOOK, found, tally)
            continue
        state, ended_seconds = states[segment.id]
        if state != "live" and ended_seconds > scope.grace_seconds and _is_there(lake, meta.key):
            tally.ended += 1
            tally.oldest = tally.oldest or meta.key


def _add_unknown(lake: Lake, scope: CheckScope, meta: ObjectMeta, to_do: str, found: Findings, tally: _Tally) -> None:
    age = (scope.now_ns - meta.modified_ns) / SECOND_NS
    if age < scope.grace_seconds:
        tally.young += 1
        tally.newest = tally.newest or meta.key
    elif _is_there(lake, meta.key):
        what = f"this object of {meta.size} bytes is not in the index, {age / 3600:.1f} hours old"
        found.add(scope.finding(CHECK, ERROR, what, meta.key, to_do))


def _names(segment: Segment) -> Iterator[str]:
    yield segment.path
    for name in segment.statistics.get("side_bytes", {}):
        yield segment.side_path(name)


def _id_in(key: str) -> UUID | None:
    named = _ID.fullmatch(key.rpartition("/")[2])
    return UUID(named[1]) if named else None


def _is_there(lake: Lake, key: str) -> bool:
    """Return whether the object still exists: the sweeper may have deleted it."""
    try:
        size_of(lake.store, key)
    except Absent:
        return False
    return True
