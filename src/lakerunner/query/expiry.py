"""What SQL asks for and does not find because it has expired: a warning for each signal.

A query that names no beginning asks for whatever there is, and is warned only if all of its time is past retention.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.model.expiry import expiry_text
from lakerunner.model.tier import RAW
from lakerunner.model.time import MIN_NS
from lakerunner.plan.scan import Scan
from lakerunner.query.known_segments import Pick


def expiry_warnings(picked: Iterable[tuple[Scan, Pick]]) -> frozenset[str]:
    found = set()
    for scan, pick in picked:
        before_ns = pick.expiry.before_ns.get(RAW, MIN_NS)
        if MIN_NS < scan.time.start_ns < before_ns or scan.time.end_ns <= before_ns:
            left = "; rollups of them are left, which PromQL reads" if pick.expiry.left else ""
            found.add(f"{scan.signal}: rows up to {expiry_text(before_ns)} have expired by retention{left}")
    return frozenset(found)
