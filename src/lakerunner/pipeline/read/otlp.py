"""What the export requests of all signals share: their messages, their check, and how files are joined for one read.

Comes in: the bytes of one file. Goes out: valid bytes that can be walked without further checks, with the number of
messages of each type, or Corrupt with the byte where the error starts. `KeyValue` is listed once for each owner, so
that the counts say how many attributes resources, scopes and records have.

AnyValue.string_value_strindex and KeyValue.key_strindex, which only profiles may use, are skipped like any unknown
field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lakerunner.model.errors import Corrupt
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.memory import PADDING, Bytes, Int64s
from lakerunner.pipeline.read.repair import Repair, repair_message
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.read.wire import (
    BYTES,
    FIXED64,
    MESSAGE,
    OK,
    STRING,
    VARINT,
    WRONG_TYPE,
    Field,
    Messages,
    Verdict,
    check,
    check_value,
    checked_varint,
    explain,
    grammar,
)

# The key under which a resource's entity_refs are kept. It is appended to the input, before the padding, so that a key
# can be (at, size) like any other.
ENTITY_REFS = np.frombuffer(b"lakerunner.entity_refs", np.uint8)

KEY_VALUE = {1: Field("key", STRING), 2: Field("value", MESSAGE, "AnyValue", once=1)}
COMMON: Messages = {
    "Resource": {
        1: Field("attributes", MESSAGE, "Resource.attributes"),
        2: Field("dropped_attributes_count", VARINT),
        3: Field("entity_refs", MESSAGE, "EntityRef"),
    },
    "EntityRef": {number: Field("", BYTES) for number in (1, 2, 3, 4)},  # kept as bytes, not read
    "Resource.attributes": KEY_VALUE,
    "Scope": {
        1: Field("name", STRING),
        2: Field("version", STRING),
        3: Field("attributes", MESSAGE, "Scope.attributes"),
        4: Field("dropped_attributes_count", VARINT),
    },
    "Scope.attributes": KEY_VALUE,
    "AnyValue": {
        1: Field("string_value", STRING, once=1),
        2: Field("bool_value", VARINT, once=1),
        3: Field("int_value", VARINT, once=1),
        4: Field("double_value", FIXED64, once=1),
        5: Field("array_value", MESSAGE, "ArrayValue", once=1),
        6: Field("kvlist_value", MESSAGE, "KeyValueList", once=1),
        7: Field("bytes_value", BYTES, once=1),
    },
    "ArrayValue": {1: Field("values", MESSAGE, "AnyValue")},
    "KeyValueList": {1: Field("values", MESSAGE, "KeyValueList.values")},
    "KeyValueList.values": KEY_VALUE,
}


@dataclass(frozen=True)
class Request:
    """The export request of one signal: its messages, the outermost first; which of them are the items; how odd ones
    are mended. `rows` are the messages that become rows, where these are not the items; `weights` the bytes of memory
    that some messages or repeated numbers take each."""

    signal: str
    messages: Messages
    item: str
    repair: Repair
    rows: tuple[str, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tables(self) -> Int64s:
        return grammar(self.messages)

    def inspect(self, data: bytes, name: str) -> tuple[int, bool]:
        """Return how many messages these bytes of the named type hold, and whether they are odd (repair.Inspect)."""
        counts = self.new_counts()
        verdict = check(np.frombuffer(data, np.uint8), self.tables, list(self.messages).index(name), counts)
        return int(counts[:-1].sum()), verdict.odd

    def new_counts(self) -> Int64s:
        """Return zeros for `check` to count in."""
        return np.zeros(len(self.messages) + 1, np.int64)

    @cached_property
    def costs(self) -> Int64s:
        """Estimated bytes of memory for each thing that `check` counts, beside the input: row 0 for values that are
        nested in others, row 1 for values that are not. A request takes the larger of the two sums."""
        # Each attribute, and each item's body, has one AnyValue that is not nested: it must not count as nested.
        nested = {"AnyValue": 150, **{name: -150 for name in self.messages if name.endswith(".attributes")}}
        nested[self.item] = -150
        plain = {name: 70 for name in self.messages if name.endswith(".attributes")}
        plain |= {**dict.fromkeys(self.rows or (self.item,), 300), "KeyValueList.values": 150, **self.weights}
        sums = [plain.get(name, 0) for name in self.messages] + [70]  # the last is for control characters
        return np.array(
            [[cost + nested.get(name, 0) for name, cost in zip([*self.messages, ""], sums, strict=True)], sums]
        )


# What is read at once, so that a task stays under a gigabyte with the largest object in memory beside it. MAX_MEMORY
# limits an estimate (CheckedFile.memory): most files take three to five times their size, but a file can be crafted to
# take a hundred times.
MAX_BYTES = 64 << 20
MAX_MEMORY = 384 << 20
# Mending takes several copies of a file and may make it larger, so only this fraction of the limits is read at once.
ODD_SHARE = 4

# Other formats by their first bytes, for the error message after a failed check.
_OTHER_FORMATS = (
    (b"{", "JSON"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"PAR1", "Parquet"),
)


class Oversized(Exception):
    """Raised when the first of the given files is valid, but too large to be read at once: cut it (read/pieces.py)."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.signal)
        self.request = request


@dataclass(frozen=True)
class Load:
    """What reading some bytes at once takes: their size, the estimated memory, and whether they are odd, which takes
    several copies."""

    size: int
    memory: int
    odd: bool = False

    def plus(self, other: Load) -> Load:
        return Load(self.size + other.size, self.memory + other.memory, self.odd or other.odd)

    @property
    def fits(self) -> bool:
        """Whether it is within the limits of one read."""
        share = ODD_SHARE if self.odd else 1
        return self.size * share <= MAX_BYTES and self.memory * share <= MAX_MEMORY


@dataclass(frozen=True)
class CheckedFile:
    """A file that passed the check, and what the check counted in it. It can be walked; if `odd`, only once mended."""

    data: Bytes
    found: Int64s
    request: Request
    odd: bool

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of messages of each type."""
        return dict(zip(self.request.messages, self.found.tolist(), strict=False))

    @property
    def items(self) -> int:
        """The number of rows that it becomes."""
        return sum(self.counts[name] for name in self.request.rows or (self.request.item,))

    @property
    def memory(self) -> int:
        """A generous estimate of the memory to make segments of it, beside one row group: the file and copies of its
        texts, the arrays, and the JSON of nested values and control characters, in several copies."""
        return 3 * len(self.data) + int((self.request.costs @ self.found).max())

    @property
    def load(self) -> Load:
        return Load(len(self.data), self.memory, self.odd)

    @property
    def fits(self) -> bool:
        return self.load.fits


@dataclass(frozen=True)
class Files:
    """The valid files in one buffer, up to `end`: concatenated protobuf requests are one request. `modified_ns` has the
    modification time of each item's file. `left` are the files for the next read. `items` are the rows of each file
    that is done."""

    data: Bytes
    end: int
    counts: Counter[str]
    modified_ns: Int64s
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    left: Sequence[Raw]
    items: tuple[int, ...]


def join_files(raws: Sequence[Raw], request: Request) -> Files:
    """Join as many of these files as fit in one read, and return the reasons why others are invalid. Raise Oversized if
    the first does not fit even alone."""
    done, failed, parts = [], [], []
    left: Sequence[Raw] = ()
    end = memory = 0
    for number, raw in enumerate(raws):
        try:
            part = check_file(np.frombuffer(raw.data.toreadonly(), np.uint8), request)
        except Corrupt as error:
            failed.append((raw.source, str(error)))
            continue
        if number == 0 and not part.fits:
            raise Oversized(request)
        end, memory = end + len(part.data), memory + part.memory
        # An odd file here did not fit in its plain form: it is left, to be the first of the next read and be cut.
        if end > MAX_BYTES or memory > MAX_MEMORY or part.odd:
            end -= len(part.data)
            left = raws[number:]
            break
        done.append(raw.source)
        parts.append(part)
    data = np.concatenate([*(part.data for part in parts), ENTITY_REFS, np.zeros(PADDING, np.uint8)])
    items = [part.items for part in parts]
    modified_ns = np.repeat(np.array([source.modified_ns for source in done], np.int64), items)
    counts = sum((Counter(part.counts) for part in parts), Counter[str]())
    return Files(data, end, counts, modified_ns, tuple(done), tuple(failed), left, tuple(items))


def check_file(data: Bytes, request: Request) -> CheckedFile:
    """Check a file and bring it into its plain form if it is odd and fits. Raise Corrupt if it is not such a
    request."""
    if not len(data):
        raise Corrupt("the file is empty")
    return prepare_file(check_request(data, request))


def prepare_file(part: CheckedFile) -> CheckedFile:
    """Return the file in the form that will be walked: plain, unless it is odd and too large. Raise Corrupt if it has
    no resources."""
    if part.odd and part.fits:
        part = mend_file(part)
    resources = list(part.request.messages)[1]
    if not part.counts[resources]:
        raise Corrupt(f"not an OTLP {part.request.signal} request: it has no {resources}")
    return part


def mend_file(part: CheckedFile) -> CheckedFile:
    """Return the plain form of an odd file."""
    request = part.request
    plain = repair_message(part.data.tobytes(), request.inspect, request.repair, next(iter(request.messages)))
    return replace(check_request(np.frombuffer(plain, np.uint8), request), odd=False)


def check_request(data: Bytes, request: Request) -> CheckedFile:
    """Check these bytes and count what they hold. Raise Corrupt if they are not such a request."""
    found = request.new_counts()
    verdict = check(data, request.tables, 0, found)
    if verdict.code != OK:
        raise Corrupt(f"not an OTLP {request.signal} request: {_reason(data, request, verdict)}")
    return CheckedFile(data, found, request, bool(verdict.odd))


def _reason(data: Bytes, request: Request, verdict: Verdict) -> str:
    where = explain(data, request.messages, verdict)
    begin = bytes(data[:4])
    for prefix, name in _OTHER_FORMATS:
        if begin.startswith(prefix):
            return f"{where}; this looks like {name}"
    other = _other_signal(data, request, verdict)
    return f"{where}; this looks like an OTLP {other} request" if other else where


def guess_signal(data: Bytes, request: Request) -> str:
    """Return the signal whose request these bytes seem to be, which are not one of this signal; "" if unclear."""
    return _other_signal(data, request, check(data, request.tables, 0, request.new_counts()))


def _other_signal(data: Bytes, request: Request, verdict: Verdict) -> str:
    in_item = verdict.code == WRONG_TYPE and list(request.messages)[verdict.message] == request.item
    return _signal_of_item(data, verdict) if in_item else ""


def _signal_of_item(data: Bytes, verdict: Verdict) -> str:
    """Return the signal of the item that holds the error, by its fields (number, wire type); "" if unknown."""
    fields = set()
    at, code = verdict.start, OK
    while at < verdict.end and code == OK:
        tag, at, code = checked_varint(data, at, verdict.end)
        field, wire_type = divmod(int(tag), 8)
        fields.add((field, wire_type))
        if code == OK:
            at, code = check_value(data, at, verdict.end, wire_type)
    if (1, 2) in fields and {(7, 1), (8, 1)} & fields:
        return "traces"
    if (1, 2) in fields and {(5, 2), (7, 2), (9, 2), (10, 2), (11, 2)} & fields:
        return "metrics"
    if {(1, 1), (11, 1)} & fields:
        return "logs"
    return ""
