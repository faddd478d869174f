"""What SQL, or a list of what there is, asks for and does not find because it has expired: a warning for each signal.

Whoever names no beginning asks for whatever there is, and is warned only if all of the time is past retention.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.model.expiry import Expiry, expiry_text
from lakerunner.model.tier import RAW
from lakerunner.model.time import MIN_NS, TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.query.known_segments import Pick


def expiry_warnings(picked: Iterable[tuple[Scan, Pick]]) -> frozenset[str]:
    return frozenset().union(*(expiry_warning(scan.signal, scan.time, pick.expiry) for scan, pick in picked))


def expiry_warning(signal: str, time: TimeRange, expiry: Expiry) -> frozenset[str]:
    """One or none."""
    before_ns = expiry.before_ns.get(RAW, MIN_NS)
    if not MIN_NS < time.start_ns < before_ns and time.end_ns > before_ns:
        return frozenset()
    left = "; rollups of them are left, which PromQL reads" if expiry.left else ""
    return frozenset({f"{signal}: rows up to {expiry_text(before_ns)} have expired by retention{left}"})
