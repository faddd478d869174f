"""Label filters: `| status >= 500 and (took > 1s or addr = ip("10.0.0.0/8"))`.

What always holds: a line without the label does not pass, but as text a missing label is "". A value that is no number,
duration or size keeps its line, which gets LabelFilterErr unless it has an error already. Both sides of `and` are
looked at, the right one of `or` only if the left one does not pass, so that errors are those of Loki.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from lakerunner.logql.stages.ip import compile_ip
from lakerunner.logql.stages.line_labels import ERROR, LineLabels
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.amounts import parse_bytes, parse_duration, parse_float
from lakerunner.logql.text.syntax import AmountTest, Both, Either, IpTest, LabelFilter, LabelTest, TextTest, Unit
from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.regex import compile_whole_search

LABEL_FILTER_ERROR = "LabelFilterErr"
LabelsTest = Callable[[LineLabels], bool]
_CONVERSIONS: Mapping[Unit, Callable[[str], float]] = {
    "number": parse_float,
    "duration": parse_duration,
    "bytes": parse_bytes,
}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MAX_KNOWN = 10_000  # values of one regular expression


def compile_label_filter(stage: LabelFilter, context: StageContext) -> StageRun:  # noqa: ARG001
    if isinstance(stage.test, IpTest):
        compile_ip(stage.test.pattern)  # a wrong pattern is refused here; behind and/or nothing matches it
    test = labels_test(stage.test)

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str | None:  # noqa: ARG001
        return line if test(labels) else None

    return run


def names_of_test(test: LabelTest) -> tuple[str, ...]:
    """Return the names of the labels that a test reads."""
    match test:
        case Both() | Either():
            return (*names_of_test(test.left), *names_of_test(test.right))
        case TextTest(matcher):
            # Loki drops a test that every value meets, and with it the need for the label.
            return () if _accepts_all(matcher) else (matcher.name,)
        case AmountTest() | IpTest():
            return (test.label,)


def labels_test(test: LabelTest) -> LabelsTest:
    """Return the function that tests the labels of a line."""
    match test:
        case Both():
            left, right = labels_test(test.left), labels_test(test.right)
            return lambda labels: left(labels) & right(labels)
        case Either():
            first, second = labels_test(test.left), labels_test(test.right)
            return lambda labels: first(labels) or second(labels)
        case TextTest(matcher):
            return _text_test(matcher)
        case AmountTest():
            return _amount_test(test)
        case IpTest():
            return _ip_test(test)


def _accepts_all(matcher: Matcher) -> bool:
    return matcher.op == "=~" and matcher.value in (".*", "")


def _text_test(matcher: Matcher) -> LabelsTest:
    name, negated = matcher.name, matcher.is_negated
    matches = _value_match(matcher)
    if name == ERROR:
        return lambda labels: matches(labels.error) != negated
    return lambda labels: matches(labels.get(name) or "") != negated


def value_test(matcher: Matcher) -> Callable[[str], bool]:
    """Return the function that tests a value as text."""
    matches, negated = _value_match(matcher), matcher.is_negated
    return lambda value: matches(value) != negated


def _value_match(matcher: Matcher) -> Callable[[str], bool]:
    wanted = matcher.value
    if not matcher.is_regex:
        return lambda value: value == wanted
    # Loki answers these without the expression: `.*` and "" match everything, `.+` all that is not empty.
    if wanted in (".*", ""):
        return lambda value: True  # noqa: ARG005
    if wanted == ".+":
        return bool
    search = compile_whole_search(wanted)
    known: dict[str, bool] = {}

    def matches(value: str) -> bool:
        found = known.get(value)
        if found is None:
            if len(known) >= _MAX_KNOWN:
                known.clear()
            found = known[value] = search.found_in(value)
        return found

    return matches


def _amount_test(test: AmountTest) -> LabelsTest:
    name, wanted = test.label, test.value
    convert, compare = _CONVERSIONS[test.unit], _COMPARISONS[test.op]

    def run(labels: LineLabels) -> bool:
        text = labels.get(name)
        if text is None:
            return False
        try:
            value = convert(text)
        except ValueError as error:
            if not labels.error:
                labels.error, labels.error_details = LABEL_FILTER_ERROR, str(error)
            return True
        return compare(value, wanted)

    return run


def _ip_test(test: IpTest) -> LabelsTest:
    name, negated = test.label, test.op == "!="
    try:
        found_in = compile_ip(test.pattern)
    except UserError:
        found_in = None

    def run(labels: LineLabels) -> bool:
        if labels.error:
            return True
        text = labels.get(name)
        return text is not None and found_in is not None and found_in(text) != negated

    return run
