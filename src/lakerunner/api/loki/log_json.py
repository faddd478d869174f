"""Write answers of LogQL as Loki's JSON, in chunks of text.

Comes in: rows of a log query, or values of a metric query. Goes out: resultType and the text of `result`. What always
holds: streams are sorted by their labels and hold their entries in the order of the answer; times of entries are ns as
texts, those of samples seconds with ms; numbers are texts without exponent; bytes that are not UTF-8 become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakerunner.api.formats.series_json import as_vector, labels_json, stamp
from lakerunner.model.display import go_quote
from lakerunner.model.time import MS_NS, iso_time
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.numerals import scalar_text
from lakerunner.series.values import Scalar, Vector

STREAMS, MATRIX, VECTOR, SCALAR = "streams", "matrix", "vector", "scalar"
Chunks = Iterator[bytes]
_NONE = "{}"


@dataclass(frozen=True)
class LogEntry:
    """A line of an answer; the labels of each kind are JSON objects."""

    timestamp: int
    line: str
    stream: str
    metadata: str = _NONE
    parsed: str = _NONE


# ---- log queries


@dataclass
class StreamGroups:
    """The entries of an answer by stream. `categorized`: streams have their own labels alone, and entries the others,
    by kind; otherwise all labels of an entry are those of its stream."""

    categorized: bool = False
    count: int = 0
    _streams: dict[str, list[LogEntry]] = field(default_factory=dict)
    _joined: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def add(self, entry: LogEntry) -> None:
        own = entry.stream if self.categorized else self.all_labels(entry)
        self._streams.setdefault(own, []).append(entry)
        self.count += 1

    def sorted(self) -> list[tuple[str, list[LogEntry]]]:
        """Return the labels (JSON) and entries of each stream, in the order of the labels' texts."""
        return sorted(self._streams.items(), key=lambda one: selector_text(orjson.loads(one[0])))

    def all_labels(self, entry: LogEntry) -> str:
        """Return the labels of all kinds of an entry as a JSON object."""
        if entry.metadata == entry.parsed == _NONE:
            return entry.stream
        kinds = entry.stream, entry.metadata, entry.parsed
        if kinds not in self._joined:
            labels = {name: value for kind in kinds for name, value in orjson.loads(kind).items()}
            self._joined[kinds] = orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode()
        return self._joined[kinds]


def selector_text(labels: dict[str, str]) -> str:
    """Write labels as Loki does: {app="a", env="b"}."""
    return "{" + ", ".join(f"{name}={go_quote(labels[name])}" for name in sorted(labels)) + "}"


def streams_json(groups: StreamGroups) -> Chunks:
    return _array(
        b'{"stream":%s,"values":[%s]}'
        % (labels.encode(), b",".join(_entry_json(one, categorized=groups.categorized) for one in entries))
        for labels, entries in groups.sorted()
    )


def _entry_json(entry: LogEntry, *, categorized: bool) -> bytes:
    pair = b'["%d",%s' % (entry.timestamp, text_json(entry.line))
    if not categorized:
        return pair + b"]"
    kinds = (("structuredMetadata", entry.metadata), ("parsed", entry.parsed))
    return pair + b",{" + b",".join(f'"{name}":{own}'.encode() for name, own in kinds if own != _NONE) + b"}]"


def text_json(text: str) -> bytes:
    """Write a text; bytes that are not UTF-8 are replaced."""
    try:
        return orjson.dumps(text)
    except TypeError:  # a surrogate, which carries such a byte
        return orjson.dumps(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


# ---- metric queries


def samples_json(group: StepGroup, *, instant: bool) -> tuple[str, Chunks, int]:
    """Return resultType, the text of the result, and how many series there are."""
    times = [stamp(time // MS_NS) for time in group.steps.times.tolist()]
    if instant and isinstance(group.value, Scalar):
        return SCALAR, iter([_pair(times[0], float(group.value.values[0]))]), 1
    vector = as_vector(group)
    series = _instant_series(vector, times[0]) if instant else _range_series(vector, times)
    return VECTOR if instant else MATRIX, _array(series), len(vector)


def _instant_series(vector: Vector, time: bytes) -> Chunks:
    for labels, values, present in zip(vector.labels, vector.values.tolist(), vector.present.tolist(), strict=True):
        if present[0]:
            yield b'{"metric":%s,"value":%s}' % (labels_json(labels), _pair(time, values[0]))


def _range_series(vector: Vector, times: list[bytes]) -> Chunks:
    for row, labels in enumerate(vector.labels):
        values, present = vector.values[row].tolist(), vector.present[row].tolist()
        pairs = [_pair(time, value) for time, value, there in zip(times, values, present, strict=True) if there]
        if pairs:
            yield b'{"metric":%s,"values":[%s]}' % (labels_json(labels), b",".join(pairs))


def _pair(time: bytes, value: float) -> bytes:
    return b'[%s,"%s"]' % (time, number_text(value).encode())


def number_text(value: float) -> str:
    """Write a number without exponent."""
    text = repr(value)
    return text.removesuffix(".0") if "e" not in text and "n" not in text else scalar_text(value)


# ---- responses


def answer_chunks(kind: str, result: Chunks, stats: dict[str, Any], warnings: list[str], flags: list[str]) -> Chunks:
    """Yield the text of a whole answer."""
    head = b'{"status":"success",' + (b'"warnings":%s,' % orjson.dumps(warnings) if warnings else b"")
    yield head + b'"data":{"resultType":"%s",' % kind.encode()
    yield (b'"encodingFlags":%s,' % orjson.dumps(flags) if flags else b"") + b'"result":'
    yield from result
    yield b',"stats":%s}}' % orjson.dumps(stats)


def legacy_chunks(groups: StreamGroups, stats: dict[str, Any]) -> Chunks:
    """Yield the text of an answer for clients of /api/prom."""
    yield b'{"streams":'
    yield from _array(
        orjson.dumps({"labels": selector_text(orjson.loads(labels)), "entries": list(map(_legacy_entry, entries))})
        for labels, entries in groups.sorted()
    )
    yield b',"stats":%s}' % orjson.dumps(stats)


def _legacy_entry(entry: LogEntry) -> dict[str, Any]:
    return {"ts": rfc3339(entry.timestamp), "line": orjson.loads(text_json(entry.line))}


def rfc3339(time_ns: int) -> str:
    """Write a time as Go does: without trailing zeros of its fraction."""
    whole, _, fraction = iso_time(time_ns).removesuffix("Z").partition(".")
    digits = fraction.rstrip("0")
    return f"{whole}.{digits}Z" if digits else f"{whole}Z"


def _array(items: Iterable[bytes]) -> Chunks:
    before = b"["
    for item in items:
        yield before + item
        before = b","
    yield b"[]" if before == b"[" else b"]"
