"""Which row groups of a segment may hold a row that a scan needs, by text index, footer and bloom filters.

Input: the scan's time range and conditions, the text index, the footer. Output: numbers of row groups. Invariant: a row
group with a row that meets the time range and all conditions is never pruned.

Attributes are the subtle part. Their text may come from a column of their own or from the overflow map, and from a
string or a value of another type: the statistics of their column say nothing about the map, and the text index knows
strings only. So an attribute prunes only where the keys of the map exclude it, or where its text can only be that of a
string.

Bloom filters are Parquet's split block filters with xxHash: only the header and one block of 32 bytes are read, however
large the filter is.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from xxhash import xxh64_intdigest

from lakerunner.lakeql.tables import ColumnKind, table_of_signal
from lakerunner.model.condition import (
    AllOf,
    AnyOf,
    Condition,
    Contains,
    Equals,
    Labelled,
    Leaf,
    NotNull,
    Present,
    Stored,
    leaves,
)
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPES, Attribute
from lakerunner.model.streams.label_names import first_word, gives_label, may_hold_label
from lakerunner.model.text_index import TextIndex, TextQuery, attribute_query, fold, grams, text_query
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import DETECTED_LEVEL, Scan
from lakerunner.query.segment_cache.footers import Footer, ValueRange
from lakerunner.query.segment_cache.spans import Span, fewer, joined, without

TEXT_INDEX, STATISTICS, BLOOM_FILTER = "text index", "statistics", "bloom filter"
_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
_MOST_RANGES = 16  # row ranges of one file; DuckDB tests each of them for every row
_LITERAL_LEAST = 3  # bytes of a trigram
_ID = re.compile(r"([0-9a-f]{2})*")
# Texts that a number, bytes, an array or a kvlist may have too: docs/formats/attributes.md.
_NOT_ONLY_A_STRING = re.compile(
    r"[-+.0-9eE]*|(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?|[{\[].*", re.S
)
ReadAt = Callable[[int, int], bytes]  # (offset, length)

_BLOCK = 32
_WORDS = struct.Struct("<8I")
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
# The header in Thrift's compact protocol: 1: numBytes, then 2: BLOCK, 3: XXHASH, 4: UNCOMPRESSED, and its end.
_NUM_BYTES = b"\x15"
_KINDS = bytes.fromhex("1c1c00001c1c00001c1c000000")
_HEADER_MOST = len(_NUM_BYTES) + 5 + len(_KINDS)
# A filter that excludes nothing: one block with all bits set.
NEUTRAL = _NUM_BYTES + b"\x40" + _KINDS + b"\xff" * _BLOCK


@dataclass(frozen=True)
class TextFindings:
    """What a text index says: the number of row groups, those that may hold rows that meet all conditions as far as the
    index alone tells (`alive`), and for each condition on a text the row groups that may hold it as a string."""

    groups: int
    alive: frozenset[int]
    found: Mapping[Leaf, frozenset[int]]


@dataclass(frozen=True)
class RowGroupChoice:
    """The row groups to read, as half-open ranges of their numbers, and how many of the others each reason pruned."""

    groups: list[Span]
    pruned: dict[str, int]


@dataclass(frozen=True)
class _TextCondition:
    """One of these texts must be present. `decides`: a row group without any of them holds no matching row; otherwise
    this is so where the text is only that of a string."""

    texts: tuple[TextQuery, ...]
    decides: bool


class TextQuestions:
    """The questions of a scan to text indexes, built once for all of its segments."""

    def __init__(self, scan: Scan) -> None:
        self._conditions = scan.conditions if scan.signal == "logs" else ()
        self._texts = {leaf: made for leaf in leaves(self._conditions) if (made := _text_condition(leaf))}

    def __bool__(self) -> bool:
        """Return whether a text index can say anything about the scan's conditions."""
        return bool(self._texts)

    def findings(self, index: TextIndex, segment: Segment) -> TextFindings:
        all_groups = frozenset(range(index.groups))
        found = {
            leaf: frozenset(group for text in one.texts for group in index.holding(text))
            for leaf, one in self._texts.items()
        }

        def possible(condition: Condition) -> frozenset[int]:
            match condition:
                case AnyOf(conditions):
                    return frozenset[int]().union(*map(possible, conditions))
                case AllOf(conditions):
                    return all_groups.intersection(*map(possible, conditions))
            if isinstance(condition, NotNull) and not any(one.name == condition.column for one in segment.columns):
                return frozenset()
            text = self._texts.get(condition)
            return found[condition] if text and text.decides else all_groups

        return TextFindings(index.groups, possible(AllOf(self._conditions)), found)


def _text_condition(condition: Leaf) -> _TextCondition | None:
    texts = _texts(condition)
    if not texts:
        return None
    if isinstance(condition, Labelled):
        return _TextCondition(tuple(map(attribute_query, texts)), decides=False)
    if isinstance(condition, Equals | Contains) and isinstance(condition.column, Attribute):
        only_a_string = isinstance(condition, Equals) and not any(map(_NOT_ONLY_A_STRING.fullmatch, texts))
        return _TextCondition(tuple(map(attribute_query, texts)), only_a_string)
    kind = {}
    if isinstance(condition, Contains):
        kind = {"ignore_case": condition.ignore_case, "is_word": condition.is_word}
    return _TextCondition(tuple(text_query(text, **kind) for text in texts), decides=True)


BloomFindings = Mapping[Leaf, Collection[int]]  # the row groups that may hold an id


def pruned_groups(
    scan: Scan, segment: Segment, footer: Footer, texts: TextFindings | None, blooms: BloomFindings | None = None
) -> dict[int, str]:
    """Return the row groups that hold no matching row, with the reason. `texts` None: there is no text index."""
    known = _SegmentFacts(segment, footer)
    texts = texts if texts and texts.groups == footer.groups else None
    ways = [(STATISTICS, _all([known.overlap(scan.time), *(known.meeting(one) for one in scan.conditions)]))]
    if texts:
        ways.append((TEXT_INDEX, _all(known.meeting(one, texts) for one in scan.conditions)))
    if blooms:
        ways.append((BLOOM_FILTER, _all(known.meeting(one, texts, blooms) for one in scan.conditions)))
    ways = [(reason, test) for reason, test in ways if test is not _any]
    reasons = {}
    for group in range(footer.groups):
        for reason, test in ways:
            if not test(group):
                reasons[group] = reason
                break
    return reasons


def unmapped(
    attributes: Iterable[Attribute], segment: Segment, footer: Footer, groups: Collection[int]
) -> frozenset[Attribute]:
    """Return the attributes that the maps of these row groups do not hold, as far as the statistics of keys tell."""
    known = _SegmentFacts(segment, footer)
    return frozenset(one for one in attributes if not any(known.in_map(one, group) for group in groups))


def empty_columns(scan: Scan, segment: Segment, footer: Footer, groups: Collection[int]) -> frozenset[str]:
    """Return the columns of the scan that are null in all rows of these row groups, as far as statistics tell, and the
    maps that hold nothing of what it wants."""
    known = _SegmentFacts(segment, footer)
    maps = [scope.map_column for scope in SCOPES if scope.map_column in scan.internal]
    prefixes = tuple(_PREFIXES[name] for name in maps)
    attributes = (one.name for one in segment.columns if one.type and one.name.startswith(prefixes))
    others = (scope.map_column for scope in SCOPES if scope.map_column not in maps)
    return frozenset(
        [
            *(name for name in (*scan.columns, *attributes) if known.is_empty(name, groups)),
            *(name for name in maps if not known.is_map_wanted(scan, name, groups)),
            *(name for name in others if known.is_map_empty(name, groups)),
        ]
    )


def choose_groups(groups: int, reasons: Mapping[int, str]) -> RowGroupChoice:
    """Return the row groups that no reason excludes, and some between them if there would be too many ranges."""
    wanted = fewer(joined((group, group + 1) for group in range(groups) if group not in reasons), _MOST_RANGES)
    rest = without([(0, groups)], wanted)
    return RowGroupChoice(wanted, dict(Counter(reasons[group] for first, end in rest for group in range(first, end))))


def ids_of(scan: Scan) -> dict[Leaf, tuple[str, list[bytes]]]:
    """Return the conditions that want one of some ids, with the column and the ids: bloom filters are tested for
    them."""
    columns = table_of_signal(scan.signal).named()
    found: dict[Leaf, tuple[str, list[bytes]]] = {}
    for condition in leaves(scan.conditions):
        if isinstance(condition, Equals) and isinstance(condition.column, str) and condition.column in columns:
            column = columns[condition.column]
            if column.kind is ColumnKind.ID and all(map(_ID.fullmatch, condition.values)):
                found[condition] = column.name, [bytes.fromhex(value) for value in condition.values]
    return found


def stored_values(signal: str, name: str, values: Iterable[str]) -> list[bytes] | None:
    """Return the values of the column as they are stored; None if its text is not what is stored."""
    column = table_of_signal(signal).named().get(name)
    if column is None:
        return None
    if column.kind is ColumnKind.ID and all(map(_ID.fullmatch, values)):
        return [bytes.fromhex(value) for value in values]
    is_text = column.kind in (ColumnKind.PLAIN, ColumnKind.SEVERITY) and column.type == "VARCHAR"
    return [_bytes(value) for value in values] if is_text and name in _stored(signal) else None


def labelling(types: Mapping[str, str], scope: str, name: str) -> list[tuple[str, str]]:
    """Return the columns, with their types, of the scope's attributes that may be a label of this name."""
    prefix = _PREFIXES[scope]
    found = []
    for column, type_ in types.items():
        if type_ and column.startswith(prefix):
            key = column.removeprefix(prefix)
            if gives_label(key, name) or (type_ == "json" and may_hold_label(key, name)):
                found.append((column, type_))
    return found


def lacks_label(segment: Segment, scope: str, name: str) -> bool:
    """Return whether no attribute of the scope can be a label of this name, by the index. It lists the first letters of
    all keys of records if these are few."""
    keys = segment.statistics.get("labels", ())
    if scope != ATTRIBUTES.map_column or len(keys) != segment.statistics.get("label_count"):
        return False
    return not any(gives_label(key, name) or may_hold_label(key, name) for key in keys)


_Test = Callable[[int], bool]  # takes the number of a row group; built once for all row groups of a file


def _any(_: int) -> bool:
    return True


def _none(_: int) -> bool:
    return False


def _all(tests: Iterable[_Test]) -> _Test:
    needed = [test for test in tests if test is not _any]
    if len(needed) < 2:
        return needed[0] if needed else _any
    return lambda group: all(test(group) for test in needed)


def _either(tests: Iterable[_Test]) -> _Test:
    possible = [test for test in tests if test is not _none]
    if _any in possible:
        return _any
    if len(possible) < 2:
        return possible[0] if possible else _none
    return lambda group: any(test(group) for test in possible)


class _SegmentFacts:
    """What the footer says about row groups, with the meaning that the index gives to its columns."""

    def __init__(self, segment: Segment, footer: Footer) -> None:
        self._segment = segment
        self._footer = footer
        self._types = {column.name: column.type for column in segment.columns}

    def meeting(
        self, condition: Condition, texts: TextFindings | None = None, blooms: BloomFindings | None = None
    ) -> _Test:
        """Return a test for row groups that may hold a row that meets the condition."""
        match condition:
            case AnyOf(conditions):
                return _either(self.meeting(one, texts, blooms) for one in conditions)
            case AllOf(conditions):
                return _all(self.meeting(one, texts, blooms) for one in conditions)
        tests = [self._by_statistics(condition)]
        if texts and condition in texts.found:
            tests.append(self._by_text(condition, texts.found[condition]))
        if blooms and condition in blooms:
            tests.append(blooms[condition].__contains__)
        return _all(tests)

    def _by_statistics(self, condition: Leaf) -> _Test:
        match condition:
            case Present(attributes):
                return _either(self._having(attribute, None) for attribute in attributes)
            case Equals(Attribute() as attribute, values):
                return self._having(attribute, [_bytes(value) for value in values])
            case Equals(str() as name, values):
                return self._equal(name, values)
            case Contains(Attribute() as attribute):
                return self._having(attribute, None)
            case Labelled(scope, name, values):
                return self._labelled(scope, name, None if values is None else [_bytes(value) for value in values])
            case NotNull(column):
                return self._holding(column, None)
            case Stored(column, values) if column in self._types:
                return self._holding(column, [_bytes(value) for value in values])
        return _any

    def _by_text(self, condition: Leaf, found: frozenset[int]) -> _Test:
        """Return a test by the row groups that have the text as a string: others may have it as a value of another
        type."""
        match condition:
            case Labelled(scope, name):
                kinds = {type_ for _, type_ in labelling(self._types, scope, name)}
                strings = _any if kinds <= {"string"} else _none
                in_map = self._label_in_map(scope, name)
                return lambda group: group in found or not strings(group) or in_map(group)
            case Equals(Attribute() as attribute) | Contains(Attribute() as attribute):
                return lambda group: group in found or not self.only_strings(attribute, group)
        return found.__contains__

    def overlap(self, time: TimeRange) -> _Test:
        own = self._segment.time
        if time.start_ns <= own.start_ns and own.end_ns <= time.end_ns:
            return _any
        bounds = self._footer.bounds("timestamp")
        return _any if bounds is None else lambda group: bounds[group].may_overlap(time.start_ns, time.end_ns)

    def only_strings(self, attribute: Attribute, group: int) -> bool:
        """Return whether all values of the attribute in this row group are strings."""
        own = self._types.get(_PREFIXES[attribute.scope] + attribute.key)
        return own in (None, "string") and not self.in_map(attribute, group)

    def _equal(self, name: str, values: Collection[str]) -> _Test:
        """Return a test for a column whose text is what is stored."""
        if name == "collector":
            return _any if self._segment.collector in values else _none
        stored = stored_values(self._segment.signal, name, values)
        return _any if stored is None else self._holding(name, stored)

    def _having(self, attribute: Attribute, values: Collection[bytes] | None) -> _Test:
        """Return a test for one of these texts of the attribute, or for any (None)."""
        own = _PREFIXES[attribute.scope] + attribute.key
        held = self._holding(own, values if self._types.get(own) == "string" else None)
        return lambda group: self.in_map(attribute, group) or held(group)

    def _labelled(self, scope: str, name: str, values: Collection[bytes] | None) -> _Test:
        held = _either(
            self._holding(column, values if type_ == "string" else None)
            for column, type_ in labelling(self._types, scope, name)
        )
        return _either([held, self._label_in_map(scope, name)])

    def _label_in_map(self, scope: str, name: str) -> _Test:
        """Return a test for an overflow map that may have a key that gives the label: it begins as the label does."""
        if scope not in self._types or lacks_label(self._segment, scope, name):
            return _none
        keys = self._footer.bounds(f"{scope}.key_value.key")
        if keys is None:
            return _any
        start = first_word(name).encode()

        def may_have(group: int) -> bool:
            own = keys[group]
            return not own.none and (own.low is None or own.low[: len(start)] <= start <= own.high)

        return may_have

    def is_map_wanted(self, scan: Scan, map_column: str, groups: Collection[int]) -> bool:
        """Return whether the map may have an entry that the scan reads as an internal column."""
        if self.is_map_empty(map_column, groups):
            return False
        if scan.labels is None or map_column == RESOURCE.map_column:
            return True
        unused = scan.level_sources if DETECTED_LEVEL in self._types else ()
        tests = (self._label_in_map(map_column, name) for name in scan.labels if name not in unused)
        return any(map(_either(tests), groups))

    def is_map_empty(self, map_column: str, groups: Collection[int]) -> bool:
        return self.is_empty(f"{map_column}.key_value.key", groups)

    def is_empty(self, path: str, groups: Collection[int]) -> bool:
        bounds = self._footer.bounds(path)
        return bounds is not None and all(bounds[group].none for group in groups)

    def in_map(self, attribute: Attribute, group: int) -> bool:
        if attribute.scope not in self._types:
            return False
        keys = self._footer.bounds(f"{attribute.scope}.key_value.key")
        return keys is None or keys[group].may_hold(_bytes(attribute.key))

    def _holding(self, column: str, values: Collection[bytes] | None) -> _Test:
        """Return a test for one of these values, or for any (None). A column that the index does not list is null in
        all rows."""
        if column not in self._types:
            return _none
        bounds: list[ValueRange] | None = self._footer.bounds(column)
        if bounds is None:
            return _any
        if values is None:
            return lambda group: not bounds[group].none
        return lambda group: any(map(bounds[group].may_hold, values))


def _texts(condition: Leaf) -> tuple[str, ...]:
    """Return the texts, one of which the message or the record's own attribute must contain; none if the index cannot
    tell."""
    match condition:
        case Contains("message", literal):
            texts: tuple[str, ...] = (literal,)
        case Equals("message", values):
            texts = values
        case (
            Equals(Attribute(ATTRIBUTES.map_column), values)
            | Contains(Attribute(ATTRIBUTES.map_column), values, False)
            | Labelled(ATTRIBUTES.map_column, _, tuple(values))
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
    """Encode the text. Half a surrogate pair, which JSON can state, is in no file."""
    return text.encode("utf-8", "surrogatepass")


def may_hold(read: ReadAt, place: Span, hashes: Iterable[int]) -> bool:
    """Return whether the chunk with this filter may hold a value with one of these hashes. A filter of an unknown kind
    excludes nothing."""
    header = read(place[0], min(_HEADER_MOST, place[1] - place[0]))
    start, bytes_ = _size(header)
    if start + bytes_ != place[1] - place[0]:
        return True
    blocks = bytes_ // _BLOCK
    for value in hashes:
        block = _WORDS.unpack(read(place[0] + start + ((value >> 32) * blocks >> 32) * _BLOCK, _BLOCK))
        low = value & 0xFFFFFFFF
        if all(word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(block, _SALTS, strict=True)):
            return True
    return False


def bloom_hash(value: bytes) -> int:
    """Return the XXH64 with seed 0 of a value, as Parquet's filters use it."""
    return xxh64_intdigest(value)


def _size(header: bytes) -> Span:
    """Return where the bits start after the header, and their length; (0, 0) for an unknown header."""
    if header[:1] != _NUM_BYTES:
        return 0, 0
    number, at = 0, 1
    while at < min(6, len(header)):
        number |= (header[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if not header[at - 1] & 0x80:
            break
    bytes_ = number >> 1  # zigzag of a number that is never negative
    if header[at : at + len(_KINDS)] != _KINDS or bytes_ % _BLOCK or not bytes_:
        return 0, 0
    return at + len(_KINDS), bytes_
