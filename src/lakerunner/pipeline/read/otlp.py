"""What the export requests of all signals have in common, and what is said about bytes that are not such a request.

Comes in: the bytes of one file. Goes out: sound bytes that can be walked without looking again, with the number of
messages of each type in them, or Corrupt with the byte where the trouble starts. `KeyValue` appears once per owner,
so that the counts tell how many attributes resources, scopes and records have.

Not known here, and skipped like any field from the future: AnyValue.string_value_strindex and KeyValue.key_strindex,
which only profiles may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lakerunner.model.errors import Corrupt
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.arrays import Bytes, Int64s
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.repair import Repair, repaired
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

# The key under which a resource's entity_refs are kept; it stands behind the input, before the padding.
ENTITY_REFS = np.frombuffer(b"lakerunner.entity_refs", np.uint8)

KEY_VALUE = {1: Field("key", STRING), 2: Field("value", MESSAGE, "AnyValue", once=1)}
COMMON: Messages = {
    "Resource": {
        1: Field("attributes", MESSAGE, "Resource.attributes"),
        2: Field("dropped_attributes_count", VARINT),
        3: Field("entity_refs", MESSAGE, "EntityRef"),
    },
    "EntityRef": {number: Field("", BYTES) for number in (1, 2, 3, 4)},  # kept as bytes, whatever they say
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
    """One kind of export request: its messages, the first the outermost, which of them are the items, and how what is
    odd in them is mended. `rows` are the messages that become rows, where these are not the items; `weights` the bytes
    of memory that each of some messages or repeated numbers takes."""

    signal: str
    messages: Messages
    item: str
    repair: Repair
    rows: tuple[str, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tables(self) -> Int64s:
        return grammar(self.messages)

    def look(self, data: bytes, name: str) -> tuple[int, bool]:
        """What `repaired` asks for."""
        counts = self.zeros()
        verdict = check(np.frombuffer(data, np.uint8), self.tables, list(self.messages).index(name), counts)
        return int(counts[:-1].sum()), verdict.odd

    def zeros(self) -> Int64s:
        """Counts, as `check` wants them."""
        return np.zeros(len(self.messages) + 1, np.int64)

    @cached_property
    def costs(self) -> Int64s:
        """Bytes of memory for what `check` counts, beside those for its own bytes: row 0 where values are nested in
        others, row 1 where they are not. What a request takes is the larger sum."""
        nested = {"AnyValue": 150, **{name: -150 for name in self.messages if name.endswith(".attributes")}}
        nested[self.item] = -150
        plain = {name: 70 for name in self.messages if name.endswith(".attributes")}
        plain |= {**dict.fromkeys(self.rows or (self.item,), 300), "KeyValueList.values": 150, **self.weights}
        sums = [plain.get(name, 0) for name in self.messages] + [70]  # the last is for control characters
        return np.array(
            [[cost + nested.get(name, 0) for name, cost in zip([*self.messages, ""], sums, strict=True)], sums]
        )


# What is read at once: a task stays under a gigabyte, with the largest object in memory beside it. The second is an
# estimate (Part.memory). Most files take three to five times their size, some are made to take a hundred times.
MAX_BYTES = 64 << 20
MAX_MEMORY = 384 << 20
# To mend a file takes several copies of it, and may make it larger: of what is odd, only this share is read at once.
ODD_SHARE = 4

# Files that come by mistake, by how they begin. Looked at only after the check has failed.
_OTHER_FORMATS = (
    (b"{", "JSON"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"PAR1", "Parquet"),
)


class Oversized(Exception):
    """The first of the files given is sound, but too large to be read at once: cut it (read/pieces.py)."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.signal)
        self.request = request


@dataclass(frozen=True)
class Load:
    """What it takes to read some bytes at once: their size, the memory by estimate, and whether they are odd, which
    takes several copies."""

    size: int
    memory: int
    odd: bool = False

    def plus(self, other: Load) -> Load:
        return Load(self.size + other.size, self.memory + other.memory, self.odd or other.odd)

    @property
    def fits(self) -> bool:
        """Whether one read takes them."""
        share = ODD_SHARE if self.odd else 1
        return self.size * share <= MAX_BYTES and self.memory * share <= MAX_MEMORY


@dataclass(frozen=True)
class Part:
    """A file that can be walked, unless it is `odd` and must be mended before: what `check` counted in it."""

    data: Bytes
    found: Int64s
    request: Request
    odd: bool

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages of each type there are."""
        return dict(zip(self.request.messages, self.found.tolist(), strict=False))

    @property
    def items(self) -> int:
        """How many rows it gives."""
        return sum(self.counts[name] for name in self.request.rows or (self.request.item,))

    @property
    def memory(self) -> int:
        """What it takes to make segments of it, beside one row group, generously: the file and copies of its texts, the
        arrays, and what JSON makes of nested values and of control characters, in several copies."""
        return 3 * len(self.data) + int((self.request.costs @ self.found).max())

    @property
    def load(self) -> Load:
        return Load(len(self.data), self.memory, self.odd)

    @property
    def fits(self) -> bool:
        return self.load.fits


@dataclass(frozen=True)
class Files:
    """The sound files in one buffer, one after the other up to `end`: concatenated requests are one request.
    `modified_ns` is that of each item's file. `left` did not fit and must be read next. `items` are the rows of each
    file that is done."""

    data: Bytes
    end: int
    counts: Counter[str]
    modified_ns: Int64s
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    left: Sequence[Raw]
    items: tuple[int, ...]


def joined(raws: Sequence[Raw], request: Request) -> Files:
    """As many of these files as fit, the sound ones of them joined, and why the others are not sound. Oversized if the
    first of them does not fit even alone."""
    done, failed, parts = [], [], []
    left: Sequence[Raw] = ()
    end = memory = 0
    for number, raw in enumerate(raws):
        try:
            part = sound(np.frombuffer(raw.data.toreadonly(), np.uint8), request)
        except Corrupt as error:
            failed.append((raw.source, str(error)))
            continue
        if number == 0 and not part.fits:
            raise Oversized(request)
        end, memory = end + len(part.data), memory + part.memory
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


def sound(data: Bytes, request: Request) -> Part:
    """Return the bytes themselves, or where they are unusual yet right, an equal plain form of them, unless they do not
    fit. Corrupt if they are not such a request."""
    if not len(data):
        raise Corrupt("the file is empty")
    return settled(checked(data, request))


def settled(part: Part) -> Part:
    """Return the part that will be walked, an odd one in its plain form if it fits. Corrupt if it has no resources."""
    if part.odd and part.fits:
        part = mended(part)
    resources = list(part.request.messages)[1]
    if not part.counts[resources]:
        raise Corrupt(f"not an OTLP {part.request.signal} request: it has no {resources}")
    return part


def mended(part: Part) -> Part:
    """Return the plain form of an odd file."""
    request = part.request
    plain = repaired(part.data.tobytes(), request.look, request.repair, next(iter(request.messages)))
    return replace(checked(np.frombuffer(plain, np.uint8), request), odd=False)


def checked(data: Bytes, request: Request) -> Part:
    """Return what these bytes hold. Corrupt if they are not such a request."""
    found = request.zeros()
    verdict = check(data, request.tables, 0, found)
    if verdict.code != OK:
        raise Corrupt(f"not an OTLP {request.signal} request: {_reason(data, request, verdict)}")
    return Part(data, found, request, bool(verdict.odd))


def _reason(data: Bytes, request: Request, verdict: Verdict) -> str:
    where = explain(data, request.messages, verdict)
    begin = bytes(data[:4])
    for prefix, name in _OTHER_FORMATS:
        if begin.startswith(prefix):
            return f"{where}; this looks like {name}"
    other = _other_signal(data, request, verdict)
    return f"{where}; this looks like an OTLP {other} request" if other else where


def other_signal(data: Bytes, request: Request) -> str:
    """Whose request these bytes look like that are not one of this kind; "" if that is not clear."""
    return _other_signal(data, request, check(data, request.tables, 0, request.zeros()))


def _other_signal(data: Bytes, request: Request, verdict: Verdict) -> str:
    in_item = verdict.code == WRONG_TYPE and list(request.messages)[verdict.message] == request.item
    return _signal_of_item(data, verdict) if in_item else ""


def _signal_of_item(data: Bytes, verdict: Verdict) -> str:
    """Which signal's item this is, by the fields it has; "" if none that we know."""
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
