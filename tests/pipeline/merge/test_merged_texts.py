"""The text index of a merged segment is the one that ingest makes of the same rows in the same row groups."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.signal import LOGS
from lakerunner.model.text_index import TextIndex, attribute_query, text_query
from lakerunner.model.typed_json import decode_value
from lakerunner.pipeline.segment import text_index
from lakerunner.pipeline.segment.text_index import TextIndexSide
from lakerunner.pipeline.steps import order
from suites.ingested import START, Ingested, ingested, random_logs

INDEX = "text.bin"
WORDS = st.one_of(
    st.sampled_from(["timeout", "TIMEOUT", " ", "=", "-", "\n", "\u017f", "\u212a", "straße", "日本語", "😀", "\0"]),
    st.text("0123456789abcdefABCDEF", min_size=1, max_size=40),
    st.text(max_size=6),
)
MESSAGES = st.lists(st.lists(WORDS, max_size=6).map("".join), min_size=2, max_size=20)


def in_small_groups(*requests: bytes) -> Ingested:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "ROW_GROUP_BYTES", 500)
        return ingested(LOGS, *requests)


def built(case: Ingested, *, coded: bool = False, told: bool = True) -> bytes:
    side = TextIndexSide(case.whole.columns if told else ())
    for batch in case.row_groups():
        for number, field in enumerate(batch.schema if coded else ()):
            if field.type == "string":
                batch = batch.set_column(number, field.name, batch.column(number).dictionary_encode())
        side.add(batch)
    return bytes(side.finish().data)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_file_that_ingest_makes(seed: int) -> None:
    """Attributes are in columns and, where they are rare or of a type that others are not, in the map."""
    chance = random.Random(seed)
    lines = ["cart 17 is gone", "user=0123456789abcdef0123456789abcdef", "Retry", "", "ein Überlauf"]
    case = in_small_groups(*(random_logs(chance, chance.choices(lines, k=40)) for _ in range(3)))
    assert len(list(case.row_groups())) > 5
    assert built(case) == built(case, coded=True) == case.side(INDEX)


def test_strings_in_the_map_are_found_as_they_were() -> None:
    """What is escaped ends a run; what stands inside an array is no value of its own."""
    case = in_small_groups(*(random_logs(random.Random(seed), ["x"] * 60) for seed in range(3)))
    maps = [pair for batch in case.row_groups() for held in batch.column("attributes") for pair in held.as_py()]
    values = [decode_value(text) for _, text in maps]
    escaped = [value for value in values if isinstance(value, str) and "\x01" in value]
    assert escaped
    index = TextIndex(built(case))
    before, _, after = escaped[0].partition("\x01")
    assert index.holding(attribute_query(before.partition("\t")[2]))
    assert index.holding(attribute_query(after))
    assert built(case) == case.side(INDEX)
    assert not index.holding(attribute_query("inside-an-array-1-long"))


def test_json_counts_as_strings_where_nobody_says_what_it_is() -> None:
    request = ExportLogsServiceRequest()
    for number in range(4):
        record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=START + number)
        record.attributes.add(key="list").value.array_value.values.add().string_value = "inside-an-array-long"
        record.attributes.add(key="id").value.string_value = f"request-{number}-0123456789abcdef"
    case = ingested(LOGS, bytes(request.SerializeToString()))
    assert "json" in {column.type for column in case.whole.columns}
    for told, inside in ((True, []), (False, [0])):
        index = TextIndex(built(case, told=told))
        assert index.holding(attribute_query("inside-an-array-long")) == inside
        assert index.holding(attribute_query("request-3-0123456789abcdef")) == [0]


@settings(max_examples=60, deadline=None)
@given(st.data(), MESSAGES)
def test_every_literal_of_a_message_is_found(data: st.DataObject, messages: list[str]) -> None:
    half = len(messages) // 2
    chance = random.Random(1)
    case = in_small_groups(*(random_logs(chance, part) for part in (messages[:half], messages[half:])))
    message = data.draw(st.sampled_from(messages))
    start = data.draw(st.integers(0, len(message)))
    literal = message[start : data.draw(st.integers(start, len(message)))]
    held = [batch.column("message").to_pylist() for batch in case.row_groups()]
    wanted = {number for number, texts in enumerate(held) if any(literal in text for text in texts)}
    index = built(case, coded=data.draw(st.booleans()))
    assert wanted <= set(TextIndex(index).holding(text_query(literal)))
    assert index == case.side(INDEX)


def test_many_hashes_wait_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(4)
    case = in_small_groups(*(random_logs(chance, [chance.randbytes(20).hex() for _ in range(50)]) for _ in range(2)))
    monkeypatch.setattr(text_index, "HASHES_IN_MEMORY", 100)
    assert built(case) == case.side(INDEX)
