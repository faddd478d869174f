"""Which segments can have series that matchers mean, as conditions that the index knows (plan/fingerprints.py)."""

from __future__ import annotations

from lakerunner.model.labels import NAME
from lakerunner.plan.scan import Condition, Equals
from lakerunner.series.expression import Matcher

SUFFIXES = ("_bucket", "_sum", "_count")
TARGET_INFO = "target_info"


def metric_conditions(matchers: tuple[Matcher, ...]) -> tuple[Condition, ...]:
    """Fingerprints hold the names of metrics as they came and as Prometheus calls them. A series of a histogram or
    summary has the metric's name and a suffix; target_info is of every segment that has resources."""
    name = wanted_name(matchers)
    if name is None or name == TARGET_INFO:
        return ()
    bases = (name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix))
    return (Equals("metric_name", tuple(dict.fromkeys([name, *filter(None, bases)]))),)


def wanted_name(matchers: tuple[Matcher, ...]) -> str | None:
    """Return the one metric that the matchers can mean, if they name it."""
    return next((one.value for one in matchers if one.name == NAME and one.op == "=" and one.value), None)
