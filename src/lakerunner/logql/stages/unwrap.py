"""`| unwrap duration(took)`: the value of a label as the sample's value.

What always holds: a line without the label, or with an empty one, gives no sample. A value that cannot be converted
gives SampleExtractionErr, which a filter behind unwrap can remove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakerunner.logql.stages.label_filter import labels_test
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.text.amounts import parse_bytes, parse_duration, parse_float
from lakerunner.logql.text.syntax import Conversion, Unwrap

SAMPLE_ERROR = "SampleExtractionErr"
_NS = 1_000_000_000


def _seconds(text: str) -> float:
    ns = parse_duration(text)
    whole, rest = divmod(abs(ns), _NS)
    return (whole + rest / _NS) * (-1.0 if ns < 0 else 1.0)


CONVERSIONS: Mapping[Conversion, Callable[[str], float]] = {
    "": parse_float,
    "bytes": lambda text: float(parse_bytes(text)),
    "duration": _seconds,
    "duration_seconds": _seconds,
}


def compile_unwrap(unwrap: Unwrap) -> Callable[[LineLabels], float | None]:
    """Return the function that takes a value from the labels of a line, None if there is no sample."""
    name, convert = unwrap.label, CONVERSIONS[unwrap.conversion]
    filters = [labels_test(one.test) for one in unwrap.filters]

    def run(labels: LineLabels) -> float | None:
        text = labels.get(name)
        if not text:
            return None
        value = 0.0
        try:
            value = convert(text)
        except ValueError as error:
            labels.error, labels.error_details = SAMPLE_ERROR, str(error)
        # Each is looked at, as in Loki: a later one may be the one that removes the error of an earlier one.
        passed = [test(labels) for test in filters]
        return value if all(passed) else None

    return run
