"""The text index of real segments: no row group that holds a match is ever left out, and few others are left in."""

from __future__ import annotations

import io
import random
import re
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.signal import LOGS
from lakerunner.model.text_index import HEADER, TextIndex, attribute_query, digest, text_query
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read import memory
from lakerunner.pipeline.segment import text_entries
from lakerunner.pipeline.steps import order
from pipeline.otlp_oracle import ORGANIZATION, raw_of, request_type

START = 1_760_000_400_000_000_000
DUCKDB = duckdb.connect()


@dataclass(frozen=True)
class Indexed:
    """A segment's index, and what its row groups hold, from the file itself."""

    index: bytes
    messages: list[list[str]]
    values: list[list[str]]
    file: bytes


def indexed(messages: Sequence[str], values: Sequence[str] = ()) -> Indexed:
    """The only segment of these messages, each with the value as an attribute, in their order."""
    request = request_type()()
    records = request.resource_logs.add().scope_logs.add().log_records
    for number, message in enumerate(messages):
        record = records.add(time_unix_nano=START + number)
        record.body.string_value = message.encode()
        if number < len(values):
            record.attributes.add(key=b"id").value.string_value = values[number].encode()
    files: dict[str, bytes] = {}
    raw = raw_of(request.SerializeToString())
    made = make_segments(LOGS, ORGANIZATION, "c", [raw], lambda path, data: files.__setitem__(path, bytes(data)))
    (segment,) = made.segments
    index, file = files[segment.side_path("text.bin")], files[segment.path]
    assert segment.statistics["side_bytes"]["text.bin"] == len(index)
    parquet = pq.ParquetFile(io.BytesIO(file))
    groups = [parquet.read_row_group(number) for number in range(parquet.num_row_groups)]
    held = [group.column("message").to_pylist() for group in groups]
    own = [group.column("attributes.id").to_pylist() if values else [] for group in groups]
    return Indexed(index, held, own, file)


def in_small_groups(messages: Sequence[str], values: Sequence[str] = ()) -> Indexed:
    """Row groups of a few records, so that a small segment has many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "ROW_GROUP_BYTES", 200)
        return indexed(messages, values)


def holding(groups: list[list[str]], matches: Callable[[str], bool]) -> set[int]:
    return {number for number, texts in enumerate(groups) if any(text and matches(text) for text in texts)}


def containing(literal: str) -> Callable[[str], bool]:
    return lambda text: literal in text


def by_duckdb(groups: list[list[str]], literal: str) -> set[int]:
    """The row groups that hold a match of ILIKE '%literal%'."""
    query = "select number from (select unnest(?) as text, unnest(?) as number) where text ilike ? escape '\x01'"
    texts = [(text, number) for number, group in enumerate(groups) for text in group]
    escaped = re.sub("([%_\x01])", "\x01\\1", literal)
    rows = DUCKDB.execute(query, [*map(list, zip(*texts, strict=True)), f"%{escaped}%"]).fetchall()
    return {number for (number,) in rows}


# What logs are made of, dense in what could be missed: edges of tokens and runs, cases, signs of several bytes.
WORDS = st.one_of(
    st.sampled_from(
        [
            "timeout",
            "Timeout",
            "TIMEOUT",
            "_",
            "-",
            " ",
            "=",
            "\n",
            "a",
            "ab",
            "abc",
            "KELVIN",
            "\u017f",
            "\u0130",
            "\u0131",
        ]
    ),
    st.sampled_from(
        ["\u212a", "straße", "STRASSE", "Ärger", "ärger", "日本語", "エラー", "😀", "\u0307", "\x7f", "\0"]
    ),
    st.text("0123456789abcdefABCDEF", min_size=1, max_size=40),
    st.text(st.sampled_from("aAkKsSiI_-. é"), max_size=12),
    st.text(max_size=6),
)
MESSAGES = st.lists(st.lists(WORDS, max_size=6).map("".join), min_size=1, max_size=25)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), messages=MESSAGES)
def test_a_row_group_that_holds_a_match_is_never_left_out(data: st.DataObject, messages: list[str]) -> None:
    segment = in_small_groups(messages)
    message = data.draw(st.sampled_from(messages))
    start = data.draw(st.integers(0, len(message)))
    literal = message[start : data.draw(st.integers(start, len(message)))]
    index = TextIndex(segment.index)
    assert holding(segment.messages, lambda text: literal in text) <= set(index.holding(text_query(literal)))
    literal = data.draw(st.sampled_from([literal, literal.upper(), literal.lower(), literal.swapcase()]))
    found = set(index.holding(text_query(literal, ignore_case=True)))
    pattern = re.compile(re.escape(literal), re.IGNORECASE)
    assert holding(segment.messages, lambda text: pattern.search(text) is not None) <= found
    assert holding(segment.messages, lambda text: literal.lower() in text.lower()) <= found
    assert by_duckdb(segment.messages, literal) <= found


@settings(max_examples=60, deadline=None)
@given(data=st.data(), values=MESSAGES)
def test_a_row_group_that_holds_an_attribute_is_never_left_out(data: st.DataObject, values: list[str]) -> None:
    segment = in_small_groups(["x"] * len(values), values)
    value = data.draw(st.sampled_from(values))
    start = data.draw(st.integers(0, len(value)))
    part = value[start : data.draw(st.integers(start, len(value)))]
    assert holding(segment.values, lambda text: part in text) <= set(
        TextIndex(segment.index).holding(attribute_query(part))
    )


LINES = 60_000


@pytest.fixture(scope="module")
def service() -> Indexed:
    """Lines of 80 bytes as services write them, each with an id, in three row groups; and a request id beside it."""
    chance = random.Random(3)
    words = ["checkout", "payment", "declined", "retry", "upstream", "cart", "shipping", "quote", "latency", "miss"]
    lines, ids = [], []
    for _ in range(LINES):
        said = " ".join(chance.choices(words, k=4))
        lines.append(
            f"{said}, order {chance.randrange(10**7)} took {chance.randrange(3000)} ms trace_id={hexadecimal(chance)}"
        )
        ids.append(str(uuid.UUID(int=chance.getrandbits(128), version=4)))
    return indexed(lines, ids)


def hexadecimal(chance: random.Random) -> str:
    return f"{chance.getrandbits(128):032x}"


def test_an_absent_word_leaves_nothing(service: Indexed) -> None:
    absent = ["zebra", "kubernetes", "out of memory", " refunded ", "connection reset by peer", "Zugriff verweigert"]
    assert [TextIndex(service.index).holding(text_query(word)) for word in absent] == [[]] * len(absent)
    assert [TextIndex(service.index).holding(text_query(word.upper(), ignore_case=True)) for word in absent] == [
        []
    ] * len(absent)


def test_a_trace_id_leaves_its_row_group(service: Indexed) -> None:
    chance = random.Random(5)
    found = wrong = 0
    for _ in range(200):
        group = chance.randrange(3)
        line = chance.choice(service.messages[group])
        trace_id = line.rpartition("=")[2]
        for literal in (trace_id, f"trace_id={trace_id}", trace_id[3:25]):
            at = TextIndex(service.index).holding(text_query(literal))
            assert group in at
            found += 1
            wrong += len(at) - 1
        wrong += len(TextIndex(service.index).holding(text_query(hexadecimal(chance))))
    assert wrong <= found // 50


def test_an_order_number_between_words_leaves_its_row_group(service: Indexed) -> None:
    """Seven digits say little by their trigrams; as a token they do."""
    chance = random.Random(6)
    wrong = 0
    for _ in range(100):
        group = chance.randrange(3)
        number = chance.choice(service.messages[group]).partition("order ")[2].partition(" ")[0]
        at = TextIndex(service.index).holding(text_query(f"order {number} took"))
        assert group in at
        others = holding(service.messages, containing(f"order {number} took"))
        wrong += len(set(at) - others)
    assert wrong <= 10


def test_an_id_in_an_attribute_leaves_its_row_group(service: Indexed) -> None:
    chance = random.Random(7)
    for _ in range(100):
        group = chance.randrange(3)
        assert TextIndex(service.index).holding(attribute_query(chance.choice(service.values[group]))) == [group]
    assert TextIndex(service.index).holding(attribute_query(str(uuid.UUID(int=chance.getrandbits(128))))) == []
    assert TextIndex(service.index).holding(attribute_query("short")) == [0, 1, 2]


def test_the_index_is_small_beside_its_segment(service: Indexed) -> None:
    """These lines are nearly all ids: two of 128 random bits each, and a number; the worst that is still a log."""
    assert len(service.index) < 0.2 * len(service.file)


@pytest.mark.parametrize("limit", [1, 40])
def test_too_many_entries_make_a_row_group_a_candidate(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(order, "ROW_GROUP_BYTES", 2000)
    lines = ["few words here"] * 50 + [
        f"seen {number:09b} times" for number in random.Random(1).sample(range(512), 400)
    ]
    whole = indexed(lines)
    monkeypatch.setattr(text_entries, "MAX_ENTRIES", limit)
    bounded = indexed(lines)
    assert len(bounded.index) < len(whole.index)
    assert len(whole.messages) > 4
    line = lines[150]
    (group,) = holding(whole.messages, lambda text: line in text)
    assert TextIndex(whole.index).holding(text_query(line)) == [group]
    # Its trigrams are in most row groups; its token is said to be in all that have too many.
    assert len(TextIndex(bounded.index).holding(text_query(line))) > 2
    assert group in TextIndex(bounded.index).holding(text_query(line))


def test_the_python_and_the_jitted_hash_are_one() -> None:
    chance = random.Random(8)
    for size in range(40):
        data, seed = chance.randbytes(size), chance.randrange(2**31)
        padded = np.frombuffer(data + bytes(memory.PADDING), np.uint8).copy()
        assert int(memory.digest(padded, 0, size, np.int32(seed))) == digest(data, seed)


def test_the_file_is_as_the_format_says() -> None:
    """A segment of one message, whose file can be worked out by hand from docs/formats/text_index.md."""
    index = indexed(["Abc"]).index
    magic, version, zero, groups, *sizes = HEADER.unpack_from(index)
    assert (magic, version, zero, groups, sizes) == (b"LRTX", 2, 0, 1, [10, 7, 0, 5, 8, 4])
    assert index[HEADER.size : -4] == bytes(bits_of(b"abc", 1, 10, 7) + bits_of(b"abc", 3, 8, 4))
    assert int.from_bytes(index[-4:], "little") == zlib.crc32(index[:-4])


def bits_of(entry: bytes, seed: int, rows: int, probes: int) -> list[int]:
    value: Any = digest(entry, seed) | 1
    low, step = value % 2**32, value // 2**32 | 1
    bits = sum(1 << row for row in {(low + probe * step) % 2**32 * rows // 2**32 for probe in range(probes)})
    return list(bits.to_bytes(-(-rows // 8), "little"))


def test_row_groups_of_rows_with_a_large_resource_are_those_of_the_file() -> None:
    """What a map of many shared attributes takes in each row counts in the size of a row group."""
    request = request_type()()
    resource = request.resource_logs.add()
    for number in range(700):
        resource.resource.attributes.add(key=f"k{number:03}".encode()).value.string_value = b"v"
    records = resource.scope_logs.add().log_records
    for number in range(2400):
        record = records.add(time_unix_nano=START + number)
        record.body.string_value = b"word%d " % number + b"x " * 600
    files: dict[str, bytes] = {}
    raw = raw_of(request.SerializeToString())
    made = make_segments(LOGS, ORGANIZATION, "c", [raw], lambda path, data: files.__setitem__(path, bytes(data)))
    (segment,) = made.segments
    parquet = pq.ParquetFile(io.BytesIO(files[segment.path]))
    index = TextIndex(files[segment.side_path("text.bin")])
    assert index.groups == parquet.num_row_groups > 1
    for group in range(parquet.num_row_groups):
        messages = parquet.read_row_group(group, columns=["message"]).column("message").to_pylist()
        assert group in index.holding(text_query(messages[0].split()[0]))
        assert group in index.holding(text_query(messages[-1].split()[0]))
