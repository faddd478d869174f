"""Which encoding the columns of a segment get, as the file's own metadata tells it."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq

from lakerunner.pipeline.segment.encoding import LEAST_ROWS, RUN_BYTES, RUNS
from pipeline.otlp_oracle import make, raw_of, request_type

START = 1_760_000_400_123_456_789
Fill = Callable[[Any, int], None]


def segment(rows: int, fill: Fill, services: int = 1) -> bytes:
    """The file of so many records of each service."""
    request = request_type()()
    for service in range(services):
        resource_logs = request.resource_logs.add()
        resource_logs.resource.attributes.add(key=b"service.name").value.string_value = b"service %d" % service
        records = resource_logs.scope_logs.add().log_records
        for number in range(rows):
            fill(records.add(time_unix_nano=START + number), service * rows + number)
    made, files = make(raw_of(request.SerializeToString()))
    assert made.failed == ()
    (data,) = files.values()
    return data


def encodings(data: bytes) -> dict[str, set[str]]:
    """Of each column, those of its values."""
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) - {"RLE"} for column in columns}


def add_int(record: Any, key: bytes, value: int) -> None:
    record.attributes.add(key=key).value.int_value = value


def add_double(record: Any, key: bytes, value: float) -> None:
    record.attributes.add(key=key).value.double_value = value


def test_numbers_are_written_as_their_values_ask_for() -> None:
    chance = random.Random(1)
    ids = [chance.getrandbits(62) for _ in range(3000)]
    prices = [chance.randrange(500, 50_000) / 100 for _ in range(6000)]

    def fill(record: Any, number: int) -> None:
        add_int(record, b"id", ids[number // 2])
        add_int(record, b"rising", number * 1000 + chance.randrange(100))
        add_double(record, b"price", prices[number])
        add_double(record, b"measured", 20 + chance.random())

    found = encodings(segment(6000, fill))
    assert found["attributes.id"] == {"PLAIN"}  # differences would hide that each comes twice
    assert found["attributes.rising"] == {"DELTA_BINARY_PACKED"}
    assert found["attributes.price"] == {"PLAIN"}  # few different bytes, but not in the same places
    assert found["attributes.measured"] == {"BYTE_STREAM_SPLIT"}  # the high bytes are all alike, the others noise


def test_texts_are_written_as_their_values_ask_for() -> None:
    chance = random.Random(2)
    lines = [b"cart %d was emptied", b"order %d was placed by a guest", b"redis returned %d bytes in less than 1 ms"]

    def fill(record: Any, number: int) -> None:
        record.attributes.add(key=b"session").value.string_value = chance.randbytes(8).hex().encode()
        record.body.string_value = chance.choice(lines) % chance.randrange(1000, 9999)

    found = encodings(segment(6000, fill))
    assert found["attributes.session"] == {"DELTA_LENGTH_BYTE_ARRAY"}  # nothing but noise, so no lengths in between
    assert found["message"] == {"PLAIN"}  # a length belongs to its line


def test_what_only_one_of_many_services_has_is_measured_too() -> None:
    chance = random.Random(3)
    rows = 6000

    def fill(record: Any, number: int) -> None:
        if number >= rows * 2:
            add_int(record, b"id", random.Random(number // 2).getrandbits(62))
        add_int(record, b"size", chance.randrange(10**6))

    found = encodings(segment(rows, fill, services=3))
    assert found["attributes.id"] == {"PLAIN"}
    assert found["attributes.size"] == {"DELTA_BINARY_PACKED"}


def test_a_few_rows_are_not_measured() -> None:
    def fill(record: Any, number: int) -> None:
        every_fourth_is_the_third = number // 4 * 4 + min(number % 4, 2)
        add_int(record, b"id", random.Random(every_fourth_is_the_third).getrandbits(62))

    assert encodings(segment(LEAST_ROWS - 1, fill))["attributes.id"] == {"DELTA_BINARY_PACKED"}
    assert encodings(segment(LEAST_ROWS, fill))["attributes.id"] == {"PLAIN"}


def test_large_rows_are_not_measured() -> None:
    """They would be built and compressed several times more."""

    def fill_with(padding: int) -> Fill:
        def fill(record: Any, number: int) -> None:
            record.body.string_value = b"%d" % number + b" " * padding
            add_int(record, b"id", random.Random(number // 4 * 4 + min(number % 4, 2)).getrandbits(62))

        return fill

    rows = 2 * LEAST_ROWS
    fits = RUN_BYTES * RUNS // LEAST_ROWS - 200
    assert encodings(segment(rows, fill_with(fits)))["attributes.id"] == {"PLAIN"}
    assert encodings(segment(rows, fill_with(fits + 400)))["attributes.id"] == {"DELTA_BINARY_PACKED"}


def test_the_same_rows_give_the_same_bytes() -> None:
    def fill(record: Any, number: int) -> None:
        record.body.string_value = b"order %d" % random.Random(number).getrandbits(40)
        add_double(record, b"price", random.Random(-number).randrange(10**5) / 100)

    assert segment(5000, fill) == segment(5000, fill)
