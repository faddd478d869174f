"""Lists of streams are the same from tables, from rows, and from both; a delivery that came twice counts once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from lakerunner.logql.stream_list import LogStreams, read_matchers, streams_plan
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.log_record import Resource, stream_of
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from lakerunner.model.streams.stream_table import STREAM_TABLE
from lakerunner.model.time import TimeRange
from lakerunner.model.typed_json import decode_value
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactWork, compact_work
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.query.options import Options
from lakerunner.query.workers import OneWorker
from pipeline.test_stream_columns import LIMITS, Sent
from query.sample_lake import OWN, Lake
from suites.ingested import START
from suites.older_segments import older_segment
from suites.queries import sql_queries

WHOLE, PART = TimeRange(START, START + 10), TimeRange(START + 1, START + 4)
CART = (read_matchers('{service_name="cart"}'),)
LISTS = [
    (LogStreams(selectors, DEFAULT_RULES, bucket, sized), time)
    for selectors in ((), CART)
    for bucket, sized in ((0, False), (0, True), (2, True), (100, True))
    for time in (WHOLE, PART)
]


def lake_of(directory: Path, requests: list[bytes], old: int) -> Lake:
    """A segment for each request; the first `old` of them as an older release wrote them."""
    lake = Lake(directory)
    for number, data in enumerate(requests):
        raw = Raw(SourceObject("bucket", f"{number:04}", "etag", len(data), START), memoryview(data))
        files: dict[str, bytes] = {}
        made = make_segments(LOGS, OWN, "c", [raw], partial(_keep, files))
        (segment,) = made.segments
        if number < old:
            segment, files[segment.path] = older_segment(segment, files[segment.path])
            del files[segment.side_path(STREAM_TABLE)]
        for path, data in files.items():
            lake.store.put(path, data)
        lake.all.append(replace(segment, ingested=number + 1))
    return lake


def _keep(files: dict[str, bytes], path: str, data: memoryview) -> None:
    files[path] = bytes(data)


def answers(lake: Lake) -> list[list[dict[str, Any]]]:
    engine = sql_queries(lake, OneWorker(lake.worker()), lake.sandboxes()).engine
    try:
        return [
            [
                row
                for batch in engine.answer(OWN, streams_plan(one, time), Options(START + 100))
                for row in batch.to_pylist()
            ]
            for one, time in LISTS
        ]
    finally:
        lake.close()


@pytest.mark.parametrize("seed", range(2))
def test_lists_do_not_depend_on_tables(seed: int, tmp_path: Path) -> None:
    sent = Sent(random.Random(seed), files=3)
    requests = [*sent.requests, sent.requests[seed]]  # one of them comes twice
    found = [answers(lake_of(tmp_path / str(old), requests, old)) for old in (0, 2, 4)]
    assert found[0] == found[1] == found[2]
    entries, sizes = Counter[str](), Counter[str]()
    for name, (url, *pairs) in sent.resources.items():
        attributes = {key: decode_value(text) for key, text in pairs}
        labels = orjson.dumps(dict(stream_of(Resource(attributes, url), DEFAULT_RULES).labels)).decode()
        entries[labels] += 1
        sizes[labels] += len(sent.lines[name].encode("utf-8", "surrogateescape"))
    whole = found[0][LISTS.index((LogStreams((), DEFAULT_RULES, 0, sized=True), WHOLE))]
    assert {row["stream"]: (row["entries"], row["bytes"]) for row in whole} == {
        labels: (entries[labels], sizes[labels]) for labels in entries
    }


def test_lists_are_the_same_after_a_merge(tmp_path: Path) -> None:
    sent = Sent(random.Random(7), files=2)
    lake = lake_of(tmp_path, [*sent.requests, sent.requests[0]], old=1)
    before = answers(lake)
    address = StoreAddress((tmp_path / "store").as_uri())
    outcome = compact_work(CompactWork(OWN, "c", "logs", 0, 1, tuple(lake.all)), address, LIMITS)
    lake.all = list(outcome.segments)
    assert len(lake.all) == 1
    assert answers(lake) == before
