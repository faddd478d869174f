"""Which row groups of a segment can hold a row that a scan wants, by its text index and by what its footer says.

Comes in: the scan's time range and conditions, the text index, the footer. Goes out: numbers of row groups. What always
holds: a row group with a row that meets the time range and all conditions is among them.

What is subtle is an attribute. Its text may come from a column of its own or from the overflow map, and from a string
or a value of another type: statistics of its column say nothing of the map, and the text index knows strings only.
So an attribute prunes where the keys of the map leave no room for it, or where its text can only be a string's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from lakerunner.lakeql.tables import Kind, table_of_signal
from lakerunner.model.condition import Condition, Contains, Equals, Present
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, SCOPES, Attribute
from lakerunner.model.text_index import Sought, TextIndex, fold, grams, sought, sought_in_attribute
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.query.footers import Bounds, Footer
from lakerunner.query.spans import Span, fewer, joined, without

TEXT_INDEX, STATISTICS, BLOOM_FILTER = "text index", "statistics", "bloom filter"
_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
_MOST_RANGES = 16  # of one file: each costs DuckDB time in every row
_LITERAL_LEAST = 3  # bytes: a trigram's
_ID = re.compile(r"([0-9a-f]{2})*")
# Texts of numbers, of bytes and of arrays and kvlists: docs/formats/attributes.md.
_NOT_ONLY_A_STRING = re.compile(
    r"[-+.0-9eE]*|(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?|[{\[].*", re.S
)


@dataclass(frozen=True)
class TextFindings:
    """What the text index says: how many row groups there are, and which may hold rows that meet all conditions.
    `strings` are those that may hold some attribute's text as a string, which alone does not rule the others out."""

    groups: int
    alive: frozenset[int]
    strings: tuple[tuple[Attribute, frozenset[int]], ...] = ()


@dataclass(frozen=True)
class Wanted:
    """Row groups to be read, as half-open ranges of their numbers, and of the others how many each reason left out."""

    groups: list[Span]
    pruned: dict[str, int]


@dataclass(frozen=True)
class _TextCondition:
    """One of these texts must be there; `decides`: a row group without any of them holds no row that is wanted."""

    column: str | Attribute
    texts: tuple[Sought, ...]
    decides: bool


class TextQuestions:
    """What a scan asks of text indexes, made once for all of its segments."""

    def __init__(self, scan: Scan) -> None:
        conditions = scan.conditions if scan.signal == "logs" else ()
        self._asked = [made for condition in conditions if (made := _text_condition(condition))]

    def __bool__(self) -> bool:
        """Whether a text index can say anything about the scan's conditions."""
        return bool(self._asked)

    def findings(self, index: TextIndex) -> TextFindings:
        alive = frozenset(range(index.groups))
        strings = []
        for one in self._asked:
            found = frozenset(group for text in one.texts for group in index.holding(text))
            if one.decides:
                alive &= found
            elif isinstance(one.column, Attribute):
                strings.append((one.column, found))
        return TextFindings(index.groups, alive, tuple(strings))


def _text_condition(condition: Condition) -> _TextCondition | None:
    texts = _texts(condition)
    if isinstance(condition, Present) or not texts:
        return None
    if isinstance(condition.column, Attribute):
        only_a_string = isinstance(condition, Equals) and not any(map(_NOT_ONLY_A_STRING.fullmatch, texts))
        return _TextCondition(condition.column, tuple(map(sought_in_attribute, texts)), only_a_string)
    ignore_case = isinstance(condition, Contains) and condition.ignore_case
    return _TextCondition(condition.column, tuple(sought(t, ignore_case=ignore_case) for t in texts), decides=True)


def left_out(scan: Scan, segment: Segment, footer: Footer, texts: TextFindings | None) -> dict[int, str]:
    """The row groups that hold no wanted row, and what says so. `texts` None: the text index says nothing."""
    known = _Known(segment, footer)
    tests = [known.overlap(scan.time), *map(known.meeting, scan.conditions)]
    tests = [test for test in tests if test is not _any]
    reasons: dict[int, str] = {}
    for group in range(footer.groups):
        if not all(test(group) for test in tests):
            reasons[group] = STATISTICS
        elif texts and texts.groups == footer.groups and not _may_have_texts(texts, known, group):
            reasons[group] = TEXT_INDEX
    return reasons


def unmapped(
    attributes: Iterable[Attribute], segment: Segment, footer: Footer, groups: Collection[int]
) -> frozenset[Attribute]:
    """Those of the attributes that the maps of these row groups do not have, as far as the statistics of keys say."""
    known = _Known(segment, footer)
    return frozenset(one for one in attributes if not any(known.in_map(one, group) for group in groups))


def wanted_groups(groups: int, reasons: Mapping[int, str]) -> Wanted:
    """Of so many row groups those that nothing leaves out, and some between them where they are too scattered."""
    wanted = fewer(joined((group, group + 1) for group in range(groups) if group not in reasons), _MOST_RANGES)
    rest = without([(0, groups)], wanted)
    return Wanted(wanted, dict(Counter(reasons[group] for first, end in rest for group in range(first, end))))


def ids_asked_for(scan: Scan) -> dict[str, list[bytes]]:
    """By column the ids one of which a wanted row has, for bloom filters."""
    columns = table_of_signal(scan.signal).named()
    found = {}
    for condition in scan.conditions:
        if isinstance(condition, Equals) and isinstance(condition.column, str) and condition.column in columns:
            column = columns[condition.column]
            if column.kind is Kind.ID and all(map(_ID.fullmatch, condition.values)):
                found[column.name] = [bytes.fromhex(value) for value in condition.values]
    return found


def _may_have_texts(texts: TextFindings, known: _Known, group: int) -> bool:
    return group in texts.alive and all(
        group in found or not known.only_strings(attribute, group) for attribute, found in texts.strings
    )


_Test = Callable[[int], bool]  # of the number of a row group: made once, asked of all of them


def _any(_: int) -> bool:
    return True


def _none(_: int) -> bool:
    return False


class _Known:
    """What the footer says of row groups, with the meaning that the index gives its columns."""

    def __init__(self, segment: Segment, footer: Footer) -> None:
        self._segment = segment
        self._footer = footer
        self._types = {column.name: column.type for column in segment.columns}
        self._columns = table_of_signal(segment.signal).named()

    def meeting(self, condition: Condition) -> _Test:
        """Which row groups may hold a row that meets the condition."""
        match condition:
            case Present(attributes):
                tests = [self._having(attribute, None) for attribute in attributes]
                return lambda group: any(test(group) for test in tests)
            case Equals(Attribute() as attribute, values):
                return self._having(attribute, [_bytes(value) for value in values])
            case Equals(str() as name, values):
                return self._equal(name, values)
        return _any

    def overlap(self, time: TimeRange) -> _Test:
        own = self._segment.time
        if time.start_ns <= own.start_ns and own.end_ns <= time.end_ns:
            return _any
        bounds = self._footer.bounds("timestamp")
        return _any if bounds is None else lambda group: bounds[group].may_overlap(time.start_ns, time.end_ns)

    def only_strings(self, attribute: Attribute, group: int) -> bool:
        """Whether all that this row group has of the attribute are strings."""
        own = self._types.get(_PREFIXES[attribute.scope] + attribute.key)
        return own in (None, "string") and not self.in_map(attribute, group)

    def _equal(self, name: str, values: Collection[str]) -> _Test:
        """Of columns whose text is what is stored."""
        column = self._columns.get(name)
        if column is None:
            return _any
        if column.name == "collector":
            return _any if self._segment.collector in values else _none
        stored: list[bytes]
        if column.kind is Kind.ID and all(map(_ID.fullmatch, values)):
            stored = [bytes.fromhex(value) for value in values]
        elif (
            column.kind in (Kind.PLAIN, Kind.SEVERITY)
            and column.type == "VARCHAR"
            and column.name in _stored(self._segment.signal)
        ):
            stored = [_bytes(value) for value in values]
        else:
            return _any
        return self._holding(column.name, stored)

    def _having(self, attribute: Attribute, values: Collection[bytes] | None) -> _Test:
        """One of these texts, or any (None)."""
        own = _PREFIXES[attribute.scope] + attribute.key
        held = self._holding(own, values if self._types.get(own) == "string" else None)
        return lambda group: self.in_map(attribute, group) or held(group)

    def in_map(self, attribute: Attribute, group: int) -> bool:
        if attribute.scope not in self._types:
            return False
        keys = self._footer.bounds(f"{attribute.scope}.key_value.key")
        return keys is None or keys[group].may_hold(_bytes(attribute.key))

    def _holding(self, column: str, values: Collection[bytes] | None) -> _Test:
        """One of these values, or any (None). What the index knows as no column of the segment is null in all rows."""
        if column not in self._types:
            return _none
        bounds: list[Bounds] | None = self._footer.bounds(column)
        if bounds is None:
            return _any
        if values is None:
            return lambda group: not bounds[group].none
        return lambda group: any(map(bounds[group].may_hold, values))


def _texts(condition: Condition) -> tuple[str, ...]:
    """One of which the message or the record's own attribute must hold; none if the index would not know them."""
    match condition:
        case Contains("message", literal):
            texts: tuple[str, ...] = (literal,)
        case Equals("message", values):
            texts = values
        case Equals(Attribute(ATTRIBUTES.map_column), values) | Contains(
            Attribute(ATTRIBUTES.map_column), values, False
        ):
            texts = (values,) if isinstance(values, str) else values
            return texts if all(_encodable(text) and any(grams(fold(text.encode()))) for text in texts) else ()
        case _:
            return ()
    return texts if all(_encodable(text) and len(text.encode()) >= _LITERAL_LEAST for text in texts) else ()


def _stored(signal: str) -> list[str]:
    return list(table_of_signal(signal).spec.schema.names)


def _encodable(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def _bytes(text: str) -> bytes:
    """Half a surrogate pair, which JSON can state, is in no file."""
    return text.encode("utf-8", "surrogatepass")
