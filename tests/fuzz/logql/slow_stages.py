"""Stages of the slow evaluator: each takes a line and its labels, and returns the line, None if it is dropped.

Written from Loki's documentation, with Python's `re` and `ipaddress`, one line after the other. The text of a query is
read by the product's parser, templates are rendered by model/templates, which has suites of its own.
"""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Iterable, Sequence

from fuzz.logql import slow_amounts, slow_parsers
from fuzz.logql.slow_labels import DETAILS, ERROR, PRESERVE, SlowLabels
from lakerunner.logql.stages.formats import FORMAT_FUNCTIONS
from lakerunner.logql.text.syntax import (
    AmountTest,
    Both,
    Decolorize,
    Drop,
    Either,
    IpTest,
    Json,
    Keep,
    LabelChoice,
    LabelFilter,
    LabelFormat,
    LabelTest,
    LineFilter,
    LineFormat,
    LinePattern,
    Logfmt,
    Pattern,
    Regexp,
    Stage,
    TextTest,
    Unpack,
)
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.templates.template import Template, TemplateError, compile_template

_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_CONVERT = {
    "number": slow_amounts.number,
    "duration": slow_amounts.duration_ns,
    "bytes": slow_amounts.size_bytes,
}
_ADDRESS = re.compile(r"[0-9a-fA-F:.]+")


def reordered(stages: Iterable[Stage]) -> list[Stage]:
    """Move each line filter before the stages that neither drop a line by its labels nor change it."""
    found: list[Stage] = []
    for stage in stages:
        at = len(found)
        if isinstance(stage, LineFilter):
            while at and not isinstance(found[at - 1], LineFilter | LineFormat | Unpack | LabelFilter):
                at -= 1
        found.insert(at, stage)
    return found


def run_stages(stages: Iterable[Stage], time: int, line: str, labels: SlowLabels, now: int) -> str | None:
    current: str | None = line
    for stage in reordered(stages):
        current = _run(stage, time, current or "", labels, now)
        if current is None:
            return None
    return current


def _run(stage: Stage, time: int, line: str, labels: SlowLabels, now: int) -> str | None:
    match stage:
        case LineFilter():
            return line if passes_filter(stage, line) else None
        case LabelFilter():
            return line if passes_test(stage.test, labels) else None
        case Json() if stage.extractions:
            slow_parsers.run_json_paths(stage, line, labels)
        case Json():
            slow_parsers.run_json(line, labels)
        case Logfmt():
            slow_parsers.run_logfmt(stage, line, labels)
        case Regexp():
            slow_parsers.run_regexp(stage, line, labels)
        case Pattern():
            slow_parsers.run_pattern(stage, line, labels)
        case Unpack():
            return slow_parsers.run_unpack(line, labels)
        case LineFormat():
            return _line_format(stage, time, line, labels, now)
        case LabelFormat():
            _label_format(stage, time, line, labels, now)
        case Drop():
            _drop(stage.choices, labels)
        case Keep():
            _keep(stage.choices, labels)
        case Decolorize():
            return re.sub(r"\x1b\[[0-9;]*m", "", line)
    return line


# ---- filters


def passes_filter(stage: LineFilter, line: str) -> bool:
    negated = stage.op.startswith("!")
    alternatives = list(stage.alternatives)
    if not negated:  # an alternative that every line has is left out, unless it is the only one
        real = [one for one in alternatives if one.is_ip or one.text not in _EVERY.get(stage.op, ())]
        alternatives = real or alternatives[:1]
    return any(_found(stage.op, one, line) for one in alternatives) != negated


_EVERY = {"|=": ("",), "|~": ("", ".*")}


def _found(op: str, one: LinePattern, line: str) -> bool:
    if one.is_ip:
        return _has_address(one.text, line)
    if op[1] == "=":
        return one.text in line
    if op[1] == ">":
        return slow_parsers.fits_pattern(one.text, line)
    return re.search(one.text, line, re.ASCII) is not None or one.text == ".*"


def _has_address(wanted: str, text: str) -> bool:
    """Return whether a word of digits, dots and colons is a wanted address."""
    for word in _ADDRESS.findall(text):
        try:
            address = ipaddress.ip_address(word)
        except ValueError:
            continue
        if "/" in wanted:
            network = ipaddress.ip_network(wanted, strict=False)
            if address.version == network.version and address in network:
                return True
        elif "-" in wanted:
            low, high = map(ipaddress.ip_address, wanted.split("-"))
            if address.version == low.version and int(low) <= int(address) <= int(high):
                return True
        elif address == ipaddress.ip_address(wanted):
            return True
    return False


def passes_test(test: LabelTest, labels: SlowLabels) -> bool:
    match test:
        case Both(left, right):
            one, other = passes_test(left, labels), passes_test(right, labels)  # both are looked at
            return one and other
        case Either(left, right):
            return passes_test(left, labels) or passes_test(right, labels)
        case TextTest(matcher):
            value = labels.error if matcher.name == ERROR else labels.get(matcher.name) or ""
            return meets(matcher, value, dot_matches_newline=False)
        case AmountTest():
            return _amount(test, labels)
        case IpTest():
            text = labels.get(test.label)
            if labels.error:
                return True
            return text is not None and _has_address(test.pattern, text) == (test.op == "=")
    raise TypeError(test)


def meets(matcher: Matcher, value: str, *, dot_matches_newline: bool = True) -> bool:
    if matcher.op in ("=", "!="):
        return (value == matcher.value) == (matcher.op == "=")
    flags = re.ASCII | (re.DOTALL if dot_matches_newline else 0)
    found = re.fullmatch(matcher.value, value, flags) is not None
    if not dot_matches_newline and matcher.value in ("", ".*", ".+"):  # answered without the expression
        found = bool(value) if matcher.value == ".+" else True
    return found == (matcher.op == "=~")


def _amount(test: AmountTest, labels: SlowLabels) -> bool:
    text = labels.get(test.label)
    if text is None:
        return False
    try:
        value = _CONVERT[test.unit](text)
    except ValueError:
        if not labels.error:
            labels.error, labels.details = "LabelFilterErr", "?"
        return True
    return bool(_COMPARE[test.op](value, test.value))


# ---- changes


def _template(text: str) -> Template:
    return compile_template(text, FORMAT_FUNCTIONS, name="oracle")


def _line_format(stage: LineFormat, time: int, line: str, labels: SlowLabels, now: int) -> str:
    try:
        return _template(stage.template).render(labels.all(), line, time, now)
    except TemplateError:
        labels.error, labels.details = "TemplateFormatErr", "?"
        return line


def _label_format(stage: LabelFormat, time: int, line: str, labels: SlowLabels, now: int) -> None:
    before: dict[str, str] | None = None  # all templates see the labels as the first of them finds them
    for one in stage.assignments:
        if one.is_rename:
            value = labels.get(one.value)
            if value is not None:
                labels.put(one.label, value)
                labels.drop(one.value)
            continue
        before = before or labels.all()
        try:
            labels.put(one.label, _template(one.value).render(before, line, time, now))
        except TemplateError:
            labels.error, labels.details = "TemplateFormatErr", "?"


def _drop(choices: Sequence[LabelChoice], labels: SlowLabels) -> None:
    for one in choices:
        matcher = one.matcher
        if one.name == ERROR:
            labels.error = "" if matcher is None or meets(matcher, labels.error) else labels.error
        elif one.name == DETAILS:
            labels.details = "" if matcher is None or meets(matcher, labels.details) else labels.details
        elif matcher is None:
            if labels.get(one.name) is not None:
                labels.drop(one.name)
        elif meets(matcher, labels.get(one.name) or ""):
            labels.drop(one.name)


def _keep(choices: Sequence[LabelChoice], labels: SlowLabels) -> None:
    for name, value in labels.all().items():
        own = [one for one in choices if one.name == name]
        if name not in (ERROR, DETAILS, PRESERVE) and not any(
            one.matcher is None or meets(one.matcher, value) for one in own
        ):
            labels.drop(name)


def names_of(stages: Iterable[Stage]) -> list[str]:
    """Return the labels that stages read, for which parsers must look."""
    found: list[str] = []
    for stage in stages:
        match stage:
            case LabelFilter():
                found += names_in_test(stage.test)
            case LineFormat():
                found += _template(stage.template).field_names
            case LabelFormat():
                for one in stage.assignments:
                    found += [one.value] if one.is_rename else _template(one.value).field_names
    return found


def names_in_test(test: LabelTest) -> list[str]:
    match test:
        case Both(left, right) | Either(left, right):
            return [*names_in_test(left), *names_in_test(right)]
        case TextTest(matcher):
            return [] if matcher.op == "=~" and matcher.value in ("", ".*") else [matcher.name]
        case AmountTest() | IpTest():
            return [test.label]
    raise TypeError(test)
