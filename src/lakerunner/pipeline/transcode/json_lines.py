"""JSON files: one record or one OTLP request per line, or a single document of either kind.

Each line is treated by itself: an object with a member like `resourceLogs` is an OTLP request, as the collector's file
exporter writes them; an object that only holds a list of records is opened; any other object is a record. A file that
is one JSON document over many lines is a request, a record or a list of records. Objects may also follow each other
without a line end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import orjson

from lakerunner.model.errors import Corrupt, WrongContent
from lakerunner.pipeline.transcode.any_values import Members, Unfit
from lakerunner.pipeline.transcode.columns import ColumnPlan, Columns, flatten_objects, has_objects
from lakerunner.pipeline.transcode.json_text import load_fast, names_are_unique, parse_exactly, restore_losses
from lakerunner.pipeline.transcode.lines import MAX_LINE, Overlong, as_utf8, lines, without_bom
from lakerunner.pipeline.transcode.otlp_json import REQUEST_MEMBERS, write_request
from lakerunner.pipeline.transcode.records import SignalRecords
from lakerunner.pipeline.transcode.results import FindingsBuilder, Transcoded
from lakerunner.pipeline.transcode.signal_records import RECORDS


def from_json(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """Return the export request of these records or requests, and the lines that are neither."""
    findings = FindingsBuilder()
    data = as_utf8(data, findings)
    target = JsonTarget(signal, RECORDS[signal](columns, findings))
    texts = _nonblank_lines(data)
    head = list(islice(texts, 2))
    if head and _is_one_document(head, data):
        number, offset, _ = head[0]
        findings.begin_record(number, offset)
        document = bytes(without_bom(data))
        try:
            target.add(document, number, offset)
        except (Unfit, UnicodeEncodeError) as error:
            if not _add_documents(target, document, 1, len(data) - len(document)):
                raise Corrupt(f"from line {number}: {_reason(error)}") from None
        return findings.build(target.data())
    for number, offset, text in chain(head, texts):
        findings.begin_record(number, offset)
        try:
            target.add(text, number, offset)
        except (Unfit, UnicodeEncodeError) as error:
            if not _add_documents(target, text, number, offset):
                findings.reject(_reason(error), text)
    return findings.build(target.data())


def _add_documents(target: JsonTarget, text: bytes, number: int, offset: int) -> bool:
    """Add each of several objects without a line end between them, as Firehose and jq write them; return False if the
    text, which begins at this line and offset, is anything else."""
    found = None if type(text) is Overlong else split_documents(text)
    if found is None:
        return False
    for index, (lines_before, at, document) in enumerate(found):
        if index:
            target.findings.begin_record(number + lines_before, offset + at)
        try:
            target.add(document, number + lines_before, offset + at)
        except (Unfit, UnicodeEncodeError) as error:
            target.findings.reject(_reason(error), document)
    return True


def _reason(error: Unfit | UnicodeEncodeError) -> str:
    """Return the reason of a reject. UnicodeEncodeError is half of a surrogate pair, which the slow parser accepts but
    which cannot be encoded."""
    return str(error) if isinstance(error, Unfit) else "not JSON: text is not valid Unicode"


class JsonTarget:
    """Collects the records and requests of one file."""

    def __init__(self, signal: str, records: SignalRecords) -> None:
        self.findings = records.findings
        self._signal = signal
        self._records = records
        self._requests: list[bytes] = []

    def add(self, text: bytes, number: int, offset: int) -> None:
        """Add the records of this line; every item of a list is a record or request of its own. Raise Unfit, and add
        nothing, if it holds none."""
        if type(text) is Overlong:
            raise Unfit(text.reason)
        value = load_fast(text)
        if type(value) is dict and not REQUEST_MEMBERS.keys().isdisjoint(value):
            self._add_request(value if names_are_unique(text, value) else parse_exactly(text))
            return
        value = restore_losses(text, value)
        if type(value) is list:
            self._add_items(text, parse_exactly(text), number, offset)
            return
        names, values = self._columns(value)
        plan = self._records.plans(names)
        envelope = None
        if may_hold_list(names) and _OF_A_RECORD.isdisjoint(plan.at):
            envelope = open_envelope(parse_exactly(text))
        if envelope is not None:
            # One at a time: what all items share may be large, and the request's limit counts only what was added.
            items = (add_shared(item, envelope.shared) for item in envelope.items)
            self._add_items(text, items, number, offset)
            return
        if type(value) is dict and _has_rounded_time(plan, values):
            names, values = self._columns(parse_exactly(text))
        self._records.add(names, values)

    def _add_items(self, text: bytes, items: Iterable[Any], number: int, offset: int) -> None:
        """Add items that were parsed exactly: there is no text of each item to parse again."""
        for index, item in enumerate(items):
            if index:
                self.findings.begin_record(number, offset)
            try:
                if type(item) is dict and not REQUEST_MEMBERS.keys().isdisjoint(item):
                    self._add_request(item)
                else:
                    self._records.add(*self._columns(item))
            except (Unfit, UnicodeEncodeError) as error:
                self.findings.reject(f"item {index}: {_reason(error)}", text)

    def _columns(self, value: Any) -> tuple[tuple[str, ...], Sequence[Any]]:
        """Return the names and values of a record's columns, with objects flattened."""
        if type(value) is dict:
            value = translate_codes(value)
            names, values = tuple(value), list(value.values())
        elif type(value) is Members:
            names, values = tuple(name for name, _ in value), [item for _, item in value]
        else:
            raise Unfit(f"expected a JSON object as a record, found a {_JSON_NAMES[type(value)]}")
        return flatten_objects(self._records.plans(names), names, values) if has_objects(values) else (names, values)

    def _add_request(self, value: Any) -> None:
        names = value if type(value) is dict else (name for name, _ in value)
        found = {REQUEST_MEMBERS[name] for name in names if name in REQUEST_MEMBERS}
        if found != {self._signal}:
            reason = f"OTLP request of {' and '.join(sorted(found))} in an object of {self._signal}"
            if len(found) == 1 and not self._requests and not self._records.request.records:
                raise WrongContent(reason, *found)  # the first line already shows that the object has another signal
            raise Unfit(reason)
        request = write_request(self._signal, value)
        self._records.request.count(len(request), 0)
        self._requests.append(request)

    def data(self) -> bytes:
        """Return everything as one request: concatenated protobuf requests are one."""
        records = self._records.data() if not self._requests or self._records.request.records else b""
        return b"".join((*self._requests, records))


# An object with one of these fields is a record, whatever lists it has.
_OF_A_RECORD = frozenset(("timestamp", "message", "name", "start"))
_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "boolean", list: "list", type(None): "null"}


def _has_rounded_time(plan: ColumnPlan, values: Sequence[Any]) -> bool:
    """Return whether a time, or one of an event, came as a float: its digits must be parsed exactly."""
    if any(type(values[index]) is float for index in plan.times):
        return True
    events = values[plan.at["events"]] if "events" in plan.at else ()
    return any(
        type(member) is float
        for event in (events if type(events) is list else ())
        if type(event) is dict
        for member in event.values()
    )


def _nonblank_lines(data: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, offset, text) of each line that is not blank."""
    for number, offset, line in lines(data):
        text = line if type(line) is Overlong else line.strip(b" \t\r\n")
        if text:
            yield number, offset, text


def _is_one_document(head: list[tuple[int, int, bytes]], data: memoryview) -> bool:
    """Return whether the first line begins a document that continues on further lines. A first line that is only cut
    short, before a line that is an object by itself, does not, unless the whole file is one document."""
    text = head[0][2]
    if text[:1] not in b"{[" or len(head) == 1:
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if error.pos < len(text.decode(errors="replace")):
            return False
    else:
        return False
    large = len(data) > MAX_LINE
    if _is_object(head[1][2]) and (large or not _is_json(bytes(without_bom(data)))):
        return False
    if large:
        raise Corrupt(
            f"a JSON document over many lines may have at most {MAX_LINE >> 20} MB: write one record per line"
        )
    return True


def _is_object(text: bytes) -> bool:
    return text[:1] == b"{" and _is_json(text)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


# ---- JSON around records

# CloudTrail writes `Records`, Azure `records`, CloudWatch `logEvents`.
_LISTS = ("Records", "records", "logEvents")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # used to find where objects end; numbers cost nothing
_MAX_DOCUMENTS = 1_000_000  # in one line, which is parsed once more to find them
_BLANK = " \t\r\n"


class Envelope(NamedTuple):
    """The items of the list, and the members beside it, which all items share."""

    items: list[Any]
    shared: list[tuple[str, Any]]


def may_hold_list(names: Iterable[str]) -> bool:
    """Return whether one of these members could be the list."""
    return any(name in _LISTS for name in names)


def open_envelope(value: Any) -> Envelope | None:
    """Return the content of an object that has one list of objects; None if it has none, or two."""
    pairs = list(value.items()) if type(value) is dict else value if type(value) is Members else []
    found = [index for index, (name, items) in enumerate(pairs) if name in _LISTS and _is_list_of_objects(items)]
    if len(found) != 1:
        return None
    (at,) = found
    return Envelope(pairs[at][1], [*pairs[:at], *pairs[at + 1 :]])


def _is_list_of_objects(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(one) is dict or type(one) is Members for one in value)


def add_shared(item: Any, shared: list[tuple[str, Any]]) -> Members:
    """Return the item with the members that all items share behind its own."""
    return Members([*(item.items() if type(item) is dict else item), *shared])


def split_documents(data: bytes) -> Iterator[tuple[int, int, bytes]] | None:
    """Return (lines before it, offset, text) of each of several objects that follow each other; None if the data is
    anything else."""
    try:
        text = data.decode()
        ends = _ends(text)
    except (ValueError, RecursionError):
        return None
    return _cut(text, ends) if len(ends) > 1 else None


def _ends(text: str) -> list[int]:
    ends: list[int] = []
    at = 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
            continue
        if text[at] != "{" or len(ends) == _MAX_DOCUMENTS:
            raise ValueError(text[at])
        _, at = _DECODER.raw_decode(text, at)
        ends.append(at)
    return ends


def _cut(text: str, ends: list[int]) -> Iterator[tuple[int, int, bytes]]:
    start = lines = offset = 0
    for end in ends:
        piece = text[start:end]
        blank = len(piece) - len(piece.lstrip(_BLANK))
        lines += piece.count("\n", 0, blank)
        document = piece[blank:].encode()
        yield lines, offset + blank, document
        lines += document.count(b"\n")
        start, offset = end, offset + blank + len(document)


# ---- programs whose members mean something else than their names: Docker, journald, Pino and Bunyan

_SYSLOG = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PINO = {10: "trace", 20: "debug", 30: "info", 40: "warn", 50: "error", 60: "fatal"}
_STREAMS = ("stdout", "stderr")


def translate_codes(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with words in place of its producer's codes; a record of another program unchanged."""
    if "__REALTIME_TIMESTAMP" in record:
        return _journald(record)
    if "log" in record:
        return _docker(record)
    if type(record.get("level")) is int and "hostname" in record and "pid" in record:
        return _pino(record)
    return record


def _journald(record: dict[str, Any]) -> dict[str, Any]:
    """Translate `journalctl -o json`: syslog priorities, and a message that is not UTF-8, sent as a list of bytes."""
    priority, message = record.get("PRIORITY"), record.get("MESSAGE")
    made = dict(record)
    if isinstance(priority, str) and len(priority) == 1 and priority in "01234567" and "level" not in record:
        made["level"] = _SYSLOG[int(priority)]
    if type(message) is list and all(type(one) is int and 0 <= one < 256 for one in message):
        made["MESSAGE"] = bytes(message)
    return made


def _docker(record: dict[str, Any]) -> dict[str, Any]:
    """Translate Docker's json-file: `log` is a line with its end, which does not belong to the message."""
    log = record["log"]
    if isinstance(log, str) and log.endswith("\n") and "time" in record and record.get("stream") in _STREAMS:
        return {**record, "log": log.removesuffix("\n").removesuffix("\r")}
    return record


def _pino(record: dict[str, Any]) -> dict[str, Any]:
    """Translate Pino and Bunyan: levels are 10 to 60."""
    word = _PINO.get(record["level"])
    return record if word is None else {**record, "level": word}
