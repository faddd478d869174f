"""What is known of the rows whose streams meet a selector, and whose stored labels pass label filters.

Comes in: matchers, stages in the order in which they run, the organization's rules. Goes out: conditions of the scan.
What always holds: a row that passes meets all of them, whether it came by OTLP or as a Loki stream
(model/streams/log_record.py). A matcher that a missing label meets states nothing.

The labels of a stream have few keys: those of a Loki stream have the label's own name, those of OTLP are listed by
Loki's defaults and the rules, unless a rule has a regular expression. Metadata may have any key that becomes the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakerunner.logql.stages.label_filter import value_test
from lakerunner.logql.stages.line_labels import ERROR, ERROR_DETAILS, EXTRACTED
from lakerunner.logql.text.syntax import (
    AmountTest,
    Both,
    Either,
    Json,
    LabelFilter,
    LabelFormat,
    LabelTest,
    Logfmt,
    Pattern,
    Regexp,
    Stage,
    TextTest,
    Unpack,
)
from lakerunner.model.condition import (
    AllOf,
    AnyOf,
    Condition,
    Equals,
    Labelled,
    Present,
    Stored,
    any_of,
    regex_values,
)
from lakerunner.model.labels.matcher import Matcher, Matchers, matches_empty
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE, Attribute
from lakerunner.model.streams.label_names import label_name, may_hold_label
from lakerunner.model.streams.log_record import (
    DETECTED_LEVEL,
    LOKI_STREAM,
    LOKI_STREAM_SERVICE,
    SERVICE_KEY,
    SERVICE_NAME,
    UNKNOWN_SERVICE,
    holds_stored_levels,
)
from lakerunner.model.streams.stream_rules import RESOURCE_LABELS, Action, StreamRules
from lakerunner.plan.scan import DETECTED_LEVEL as STORED_LEVEL

_SET_LABELS = (Json, Logfmt, Regexp, Pattern, Unpack, LabelFormat)
_IS_LOKI = Equals("resource_schema_url", (LOKI_STREAM, LOKI_STREAM_SERVICE))
# Metadata that are columns of the row: of texts, of ids, and of what no condition is stated for.
_COLUMNS = frozenset({"severity_text", "event_name", "scope_name", "scope_version"})
_IDS = frozenset({"trace_id", "span_id"})
_WITHOUT_CONDITION = frozenset(
    {
        ERROR,
        ERROR_DETAILS,
        "observed_timestamp",
        "severity_number",
        "dropped_attributes_count",
        "flags",
        "scope_dropped_attributes_count",
    }
)
Values = tuple[str, ...] | None  # None: any that is not empty


# ---- streams


def stream_conditions(matchers: Matchers, rules: StreamRules) -> tuple[Condition, ...]:
    """Return what every row meets whose stream meets the matchers."""
    found: list[Condition] = []
    for matcher in matchers:
        if not matches_empty(matcher):
            found += _of_stream(matcher.name, _values(matcher), rules)
    return tuple(found)


def _of_stream(name: str, values: Values, rules: StreamRules) -> tuple[Condition, ...]:
    """Return what holds of rows whose stream has this label with one of these values."""
    keys = _label_keys(rules)
    if keys is None:
        return ()
    if name == SERVICE_NAME:
        return _of_service(values, keys, rules) if values else ()
    sent = AllOf((_IS_LOKI, _of_attribute(name, values)))
    return (AnyOf((sent, *_of_keys(name, values, keys))),)


def _of_service(values: tuple[str, ...], keys: Iterable[str], rules: StreamRules) -> tuple[Condition, ...]:
    """Return what holds of rows of these services. The column has the text of `service.name`, if that is one: rows of
    OTLP that have the label from elsewhere have an empty one, unless the rules list a key with the same name. Ingest
    gives a Loki stream a service in its own way."""
    column = Equals(SERVICE_NAME, (*values, ""))
    others = _of_keys(SERVICE_NAME, values, (key for key in keys if key != SERVICE_KEY))
    if UNKNOWN_SERVICE in values and rules.service_labels:
        return (AnyOf((column, *others, _IS_LOKI)),)
    sent = tuple(_of_attribute(name, values) for name in dict.fromkeys((SERVICE_NAME, *rules.service_labels)))
    return (AnyOf((column, *others, AllOf((_IS_LOKI, AnyOf(sent))))),)


def _of_keys(name: str, values: Values, keys: Iterable[str]) -> Iterator[Condition]:
    """Yield which of these attributes of the resource may give the label; a map by one of its members."""
    for key in keys:
        if label_name(key) == name:
            yield _of_attribute(key, values)
        elif may_hold_label(key, name):
            yield Present((Attribute(RESOURCE.map_column, key),))


def _of_attribute(key: str, values: Values) -> Condition:
    attribute = Attribute(RESOURCE.map_column, key)
    return Present((attribute,)) if values is None else Equals(attribute, values)


def _label_keys(rules: StreamRules) -> tuple[str, ...] | None:
    """Return the attributes of OTLP's resources that are labels; None if the rules do not list them all."""
    labels = [rule for rule in rules.resource if rule.action is Action.LABEL]
    if any(rule.regex for rule in labels):
        return None
    listed = [*RESOURCE_LABELS, *(key for rule in labels for key in rule.attributes)]
    return tuple(key for key in dict.fromkeys(listed) if rules.resource_names[key][0] is Action.LABEL)


# ---- label filters


def label_filter_conditions(ordered: Iterable[Stage], rules: StreamRules) -> tuple[Condition, ...]:
    """Return what every row meets that passes the label filters before the first stage that sets labels."""
    found: list[Condition] = []
    for stage in ordered:
        if isinstance(stage, _SET_LABELS):
            break
        if isinstance(stage, LabelFilter):
            found += _of_test(stage.test, rules)
    return tuple(found)


def _of_test(test: LabelTest, rules: StreamRules) -> tuple[Condition, ...]:
    match test:
        case Both():
            return (*_of_test(test.left, rules), *_of_test(test.right, rules))
        case Either():
            return any_of([_of_test(test.left, rules), _of_test(test.right, rules)])
        case TextTest(matcher) if not value_test(matcher)(""):
            return _of_label(matcher.name, _values(matcher), rules)
        case AmountTest():
            return _of_label(test.label, None, rules)
    return ()


def _of_label(name: str, values: Values, rules: StreamRules) -> tuple[Condition, ...]:
    """Return what holds of rows with this label, of the stream or metadata, and one of these values."""
    if name in _WITHOUT_CONDITION or name.endswith(EXTRACTED):
        return ()
    branches: list[Condition] = [Labelled(scope.map_column, name, values) for scope in (ATTRIBUTES, RESOURCE, SCOPE)]
    if name == DETECTED_LEVEL:
        if values is None or not holds_stored_levels(rules):
            return ()
        branches.append(Stored(STORED_LEVEL, values))
    if name == SERVICE_NAME:
        derived = _of_stream(name, values, rules)
        if not derived:
            return ()
        branches += derived
    if name in _COLUMNS or name in _IDS:
        if values is None:
            return ()
        stored = values if name in _COLUMNS else tuple(value for value in values if _is_id(value))
        if stored:
            branches.append(Equals(name, stored))
    return (AnyOf(tuple(branches)),)


def _is_id(text: str) -> bool:
    """Return whether this can be the text of an id, which is lower-case hexadecimal."""
    return len(text) % 2 == 0 and not text.strip("0123456789abcdef")


def _values(matcher: Matcher) -> Values:
    """Return the only values that meet the matcher, if they are few; None if others may."""
    if matcher.op == "=":
        return (matcher.value,)
    return (regex_values(matcher.value) or None) if matcher.op == "=~" else None
