"""JSON files: one record or one OTLP request per line, or a single document of either kind.

Each line is looked at for itself: an object with a member like `resourceLogs` is an OTLP request, as the collector's
file exporter writes them; one that only carries a list of records is taken apart (`envelopes.py`); any other object is
a record. A file that is one JSON document over many lines is a request, a record or a list of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import orjson

from lakerunner.model.errors import Corrupt, WrongContent
from lakerunner.pipeline.transcode.columns import Columns, Plan
from lakerunner.pipeline.transcode.encodings import as_utf8
from lakerunner.pipeline.transcode.envelopes import documents, may_carry, opened, with_shared
from lakerunner.pipeline.transcode.json_text import exactly, loaded, names_are_unique, whole
from lakerunner.pipeline.transcode.lines import MAX_LINE, Overlong, lines, without_bom
from lakerunner.pipeline.transcode.nested import dotted, has_objects
from lakerunner.pipeline.transcode.otlp_json import REQUEST_MEMBERS, write_request
from lakerunner.pipeline.transcode.producers import in_words
from lakerunner.pipeline.transcode.reading import Reading, Transcoded
from lakerunner.pipeline.transcode.records import Records
from lakerunner.pipeline.transcode.signals import RECORDS
from lakerunner.pipeline.transcode.values import Members, Unfit


def from_json(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """The export request of these records or requests, and the lines that are neither."""
    reading = Reading()
    data = as_utf8(data, reading)
    target = JsonTarget(signal, RECORDS[signal](columns, reading))
    texts = _texts(data)
    head = list(islice(texts, 2))
    if head and _goes_on(head, data):
        number, offset, _ = head[0]
        reading.at(number, offset)
        document = bytes(without_bom(data))
        try:
            target.add(document, number, offset)
        except (Unfit, UnicodeEncodeError) as error:
            if not _add_documents(target, document, 1, len(data) - len(document)):
                raise Corrupt(f"from line {number}: {_reason(error)}") from None
        return reading.transcoded(target.data())
    for number, offset, text in chain(head, texts):
        reading.at(number, offset)
        try:
            target.add(text, number, offset)
        except (Unfit, UnicodeEncodeError) as error:
            if not _add_documents(target, text, number, offset):
                reading.reject(_reason(error), text)
    return reading.transcoded(target.data())


def _add_documents(target: JsonTarget, text: bytes, number: int, offset: int) -> bool:
    """Add each of the objects that stand one behind the other, as Firehose and jq write them; False if the text, whose
    first line and offset these are, is anything else."""
    found = None if type(text) is Overlong else documents(text)
    if found is None:
        return False
    for index, (lines_before, at, document) in enumerate(found):
        if index:
            target.reading.at(number + lines_before, offset + at)
        try:
            target.add(document, number + lines_before, offset + at)
        except (Unfit, UnicodeEncodeError) as error:
            target.reading.reject(_reason(error), document)
    return True


def _reason(error: Unfit | UnicodeEncodeError) -> str:
    """Half of a surrogate pair, which the slow way lets pass, cannot be written."""
    return str(error) if isinstance(error, Unfit) else "not JSON: text is not valid Unicode"


class JsonTarget:
    """Where the lines of one file go."""

    def __init__(self, signal: str, records: Records) -> None:
        self.reading = records.reading
        self._signal = signal
        self._records = records
        self._requests: list[bytes] = []

    def add(self, text: bytes, number: int, offset: int) -> None:
        """Take the records of this line; Unfit, and nothing of it is taken, if it holds none. Of a list every item is a
        record or request of its own."""
        if type(text) is Overlong:
            raise Unfit(text.reason)
        value = loaded(text)
        if type(value) is dict and not REQUEST_MEMBERS.keys().isdisjoint(value):
            self._add_request(value if names_are_unique(text, value) else exactly(text))
            return
        value = whole(text, value)
        if type(value) is list:
            self._add_items(text, exactly(text), number, offset)
            return
        names, values = self._columns(value)
        plan = self._records.plans(names)
        if may_carry(names) and _OF_A_RECORD.isdisjoint(plan.at) and (envelope := opened(exactly(text))) is not None:
            # One at a time: what all items share may be large, and the request's limit sees only what was added.
            items = (with_shared(item, envelope.shared) for item in envelope.items)
            self._add_items(text, items, number, offset)
            return
        if type(value) is dict and _has_rounded_time(plan, values):
            names, values = self._columns(exactly(text))
        self._records.add(names, values)

    def _add_items(self, text: bytes, items: Iterable[Any], number: int, offset: int) -> None:
        """One by one from the exact reading: there is no text of each to go back to."""
        for index, item in enumerate(items):
            if index:
                self.reading.at(number, offset)
            try:
                if type(item) is dict and not REQUEST_MEMBERS.keys().isdisjoint(item):
                    self._add_request(item)
                else:
                    self._records.add(*self._columns(item))
            except (Unfit, UnicodeEncodeError) as error:
                self.reading.reject(f"item {index}: {_reason(error)}", text)

    def _columns(self, value: Any) -> tuple[tuple[str, ...], Sequence[Any]]:
        """Return the names and values of a record's columns, those inside objects under dotted names."""
        if type(value) is dict:
            value = in_words(value)
            names, values = tuple(value), list(value.values())
        elif type(value) is Members:
            names, values = tuple(name for name, _ in value), [item for _, item in value]
        else:
            raise Unfit(f"expected a JSON object as a record, found a {_JSON_NAMES[type(value)]}")
        return dotted(self._records.plans(names), names, values) if has_objects(values) else (names, values)

    def _add_request(self, value: Any) -> None:
        names = value if type(value) is dict else (name for name, _ in value)
        found = {REQUEST_MEMBERS[name] for name in names if name in REQUEST_MEMBERS}
        if found != {self._signal}:
            reason = f"OTLP request of {' and '.join(sorted(found))} in an object of {self._signal}"
            if len(found) == 1 and not self._requests and not self._records.request.records:
                raise WrongContent(reason, *found)  # nothing of the object is of the signal that it came as
            raise Unfit(reason)
        request = write_request(self._signal, value)
        self._records.request.count(len(request), 0)
        self._requests.append(request)

    def data(self) -> bytes:
        """Requests that stand one behind the other are one request."""
        records = self._records.data() if not self._requests or self._records.request.records else b""
        return b"".join((*self._requests, records))


# An object with one of these fields is a record, whatever lists it has.
_OF_A_RECORD = frozenset(("timestamp", "message", "name", "start"))
_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "boolean", list: "list", type(None): "null"}


def _has_rounded_time(plan: Plan, values: Sequence[Any]) -> bool:
    """Whether a time, or one of an event, came as a float: its digits must be looked at again."""
    if any(type(values[index]) is float for index in plan.times):
        return True
    events = values[plan.at["events"]] if "events" in plan.at else ()
    return any(
        type(member) is float
        for event in (events if type(events) is list else ())
        if type(event) is dict
        for member in event.values()
    )


def _texts(data: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """(number, offset, text) of each line that is not blank."""
    for number, offset, line in lines(data):
        text = line if type(line) is Overlong else line.strip(b" \t\r\n")
        if text:
            yield number, offset, text


def _goes_on(head: list[tuple[int, int, bytes]], data: memoryview) -> bool:
    """Whether the first line is the beginning of a document that goes on behind it. One that is only cut short, before
    a line that is an object by itself, is not, unless the whole is a document all the same."""
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
