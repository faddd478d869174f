"""Times of records that are probably wrong: before 2000, or far past the time at which their object was written.

Such a record is taken and noted; doors that answer as Loki does refuse it (`api/receive.py`).
"""

from __future__ import annotations

from lakerunner.model.time import DAY_NS, MINUTE_NS, SECOND_NS

OLDEST_NS = 946_684_800 * SECOND_NS  # 2000-01-01T00:00:00Z
# How far past its object's modification a time may lie: clocks differ, and so do zones that a log does not state.
FILE_GRACE_NS = DAY_NS
PUSH_GRACE_NS = 10 * MINUTE_NS  # of a push, as Loki's creation_grace_period

TOO_OLD, TOO_NEW = "time before 2000", "time in the future"  # kinds of notes


def doubt(ns: int, latest_ns: int | None) -> str:
    """Return the kind of note that this time deserves, "" if it is plausible; None: nothing is known to be too new."""
    if ns < OLDEST_NS:
        return TOO_OLD
    return TOO_NEW if latest_ns is not None and ns > latest_ns else ""
