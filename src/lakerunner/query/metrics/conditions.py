"""Which segments can have series that matchers mean, as conditions that the index knows (plan/fingerprints.py)."""

from __future__ import annotations

from lakerunner.plan.scan import Condition, Equals
from lakerunner.query.metrics.matching import Matchers, wanted_name
from lakerunner.query.metrics.view import SUFFIXES, TARGET_INFO


def metric_conditions(matchers: Matchers) -> tuple[Condition, ...]:
    """Fingerprints hold the names of metrics as they came and as Prometheus calls them. A series of a histogram or
    summary has the metric's name and a suffix; target_info is of every segment that has resources."""
    name = wanted_name(matchers)
    if name is None or name == TARGET_INFO:
        return ()
    bases = (name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix))
    return (Equals("metric_name", tuple(dict.fromkeys([name, *filter(None, bases)]))),)
