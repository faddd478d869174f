"""Check that raw objects, work and messages are done or on their way.

Comes in: rows of the index about raw objects, failed work, outbox and bus. Goes out: an error for an object that is
done but whose row is incomplete; notes for what waits too long, has failed, or has no reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakerunner.bus.backlog import Backlog
from lakerunner.model.display import plural
from lakerunner.model.time import DAY_NS, SECOND_NS
from lakerunner.services.checks.finding import ERROR, NOTE, CheckScope, Finding, Findings, Lake

CHECK_SOURCES, CHECK_WORK, CHECK_OUTBOX, CHECK_BUS = "sources", "work", "outbox", "bus"
STALE_SECONDS = DAY_NS // SECOND_NS
BUS_SECONDS = 3600.0


def check_sources(lake: Lake, scope: CheckScope, found: Findings) -> None:
    inspect, id_ = lake.index.inspect, scope.organization.id
    found.looked_at["raw objects"] += inspect.count_sources(id_)
    for key, endless in inspect.endless_sources(id_):
        what = "this raw object is done, and its row does not say " + ("when" if endless else "of what")
        found.add(scope.finding(CHECK_SOURCES, ERROR, what, key, "report a bug: a commit writes both at once"))
    states = inspect.sources(id_, STALE_SECONDS)
    seen, failed = states.get("seen"), states.get("failed")
    if seen is not None and seen.stale:
        what = f"{seen.stale} raw objects were seen over a day ago and are not ingested"
        to_do = "check that pubsub, boxer and ingest are running; objects are announced again every reminder_seconds"
        found.add(scope.finding(CHECK_SOURCES, NOTE, what, seen.oldest or "", to_do))
    if failed is not None and failed.count:
        what = f"{failed.count} raw objects are set aside"
        to_do = (
            "`lakerunner objects --state failed` shows the reasons, `--retry` ingests them "
            "again, `dismiss KEY` closes one"
        )
        found.add(scope.finding(CHECK_SOURCES, NOTE, what, failed.oldest or "", to_do))


def check_work(lake: Lake, scope: CheckScope, found: Findings) -> None:
    for work in lake.index.inspect.failed_work(scope.organization.id):
        aside = work.state == "aside"
        ended = "set aside" if aside else "failed, to be tried again"
        to_do = "`lakerunner work` shows them, `lakerunner work --requeue` sends them again" if aside else "wait"
        what = f"{plural(work.count, 'box', 'boxes')} {ended}: {work.reason}"
        found.add(scope.finding(CHECK_WORK, NOTE, what, work.topic, to_do))


def check_outbox(lake: Lake, found: Findings, pause: Callable[[], None]) -> None:
    """Note messages that are still in the outbox after a pause: no relay takes them."""
    before = {topic: oldest for topic, _, oldest in lake.index.inspect.outbox()}
    found.looked_at["topics of the outbox"] += len(before)
    if not before:
        return
    pause()
    for topic, messages, oldest in lake.index.inspect.outbox():
        if before.get(topic) == oldest:
            what = f"{plural(messages, 'message')} not relayed"
            to_do = "is a service running? Each of them relays the outbox"
            found.add(Finding(CHECK_OUTBOX, NOTE, "", what, topic, to_do))


def check_bus(backlogs: Sequence[Backlog], found: Findings) -> None:
    for one in backlogs:
        found.looked_at["groups of the bus"] += 1
        old = one.age_seconds is not None and one.age_seconds > BUS_SECONDS
        if not one.group and old:
            what = f"{plural(one.waiting, 'message')} without a first reader, the oldest for {_hours(one)}"
            found.add(Finding(CHECK_BUS, NOTE, "", what, one.topic, "start the service that reads this topic"))
        elif one.orphaned:
            what = f"{plural(one.orphaned, 'message')} held by sessions of group {one.group} that are gone"
            to_do = "start a member of the group: it takes them over"
            found.add(Finding(CHECK_BUS, NOTE, "", what, one.topic, to_do))
        elif old:
            waiting = plural(one.waiting, "message")
            what = f"group {one.group} has {waiting} waiting and {one.claimed} held, since {_hours(one)}"
            found.add(Finding(CHECK_BUS, NOTE, "", what, one.topic, f"is `lakerunner {one.group}` running, and well?"))


def _hours(one: Backlog) -> str:
    return f"{(one.age_seconds or 0) / 3600:.1f} h"
