"""The shop as its callers see it: the same bytes for the same shop, however time is cut; and the truth about them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from demo.demo_parsed import Row, parse, points, rows
from lakerunner.model.errors import UserError
from lakerunner.model.time import HOUR_NS, MINUTE_NS, SECOND_NS, TimeRange
from lakerunner_demo.shop import Batch, Shop

SIGNALS = ("logs", "metrics", "traces")

# The shop of conftest.py, in a process with another hash seed: nothing may hang on the order of a set.
DIGEST = """
import hashlib, sys
from lakerunner_demo.shop import Shop
shop = Shop(seed=7, start_ns=int(sys.argv[1]), rate=2.5)
digest = hashlib.sha256()
for signal in ("logs", "metrics", "traces"):
    for batch in shop.batches(signal, shop.start_ns, shop.start_ns + 60 * 10**9):
        digest.update(batch.data)
print(digest.hexdigest())
"""


def contents(batches: list[Batch]) -> Counter[tuple[object, ...]]:
    """Every record with the pod it belongs to, in no order."""
    if batches and batches[0].signal == "metrics":
        return Counter((p.pod, p.metric.name, p.point.SerializeToString(deterministic=True)) for p in points(batches))
    return Counter((row.pod, row.record.SerializeToString(deterministic=True)) for row in rows(batches))


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_same_shop_tells_the_same_and_another_tells_otherwise(shop: Shop, signal: str) -> None:
    def told(shop: Shop) -> list[Batch]:
        return list(shop.batches(signal, shop.start_ns, shop.start_ns + 40 * SECOND_NS))

    assert told(shop) == told(replace(shop))
    assert [batch.data for batch in told(shop)] != [batch.data for batch in told(replace(shop, seed=8))]
    later = replace(shop, start_ns=shop.start_ns + HOUR_NS)
    assert not contents(told(shop)) & contents(told(later))


def test_another_process_tells_the_same(shop: Shop) -> None:
    digest = hashlib.sha256()
    for signal in SIGNALS:
        for batch in shop.batches(signal, shop.start_ns, shop.start_ns + MINUTE_NS):
            digest.update(batch.data)
    command = [sys.executable, "-c", DIGEST, str(shop.start_ns)]
    for hash_seed in ("1", "2"):
        answer = subprocess.run(
            command, env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True, timeout=60
        )
        assert answer.stdout.strip() == digest.hexdigest()


@pytest.mark.parametrize("signal", SIGNALS)
def test_calls_cut_on_the_grid_give_the_same_batches(shop: Shop, signal: str) -> None:
    start = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)[0].begin_ns + 50 * SECOND_NS
    whole = list(shop.batches(signal, start, start + 60 * SECOND_NS))
    parts = [
        batch
        for tick in range(6)
        for batch in shop.batches(signal, start + tick * 10 * SECOND_NS, start + (tick + 1) * 10 * SECOND_NS)
    ]
    assert len(whole) == (4 if signal == "metrics" else 6)
    assert parts == whole


@pytest.mark.parametrize("signal", SIGNALS)
def test_calls_cut_anywhere_give_the_same_records(shop: Shop, signal: str) -> None:
    start = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)[0].rollback_ns - 20 * SECOND_NS
    cuts = [start, start + 7, start + 1_234_567_891, start + 15 * SECOND_NS, start + 40 * SECOND_NS]
    whole = list(shop.batches(signal, cuts[0], cuts[-1]))
    parts = [batch for a, b in pairwise(cuts) for batch in shop.batches(signal, a, b, per_batch_seconds=3.3)]
    assert contents(parts) == contents(whole)
    assert sum(batch.records for batch in parts) == sum(batch.records for batch in whole) > 100


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_batch_is_canonical_protobuf_and_says_what_it_holds(shop: Shop, signal: str) -> None:
    start, end = shop.start_ns, shop.start_ns + 5 * MINUTE_NS
    for batch in shop.batches(signal, start, end):
        assert parse(batch).SerializeToString(deterministic=True) == batch.data
        if signal == "metrics":
            times = [point.point.time_unix_nano for point in points([batch])]
        elif signal == "logs":
            times = [row.record.time_unix_nano for row in rows([batch])]
        else:
            times = [row.record.end_time_unix_nano for row in rows([batch])]
        assert len(times) == batch.records > 0
        assert batch.start_ns <= min(times) <= max(times) < batch.end_ns
        assert batch.end_ns - batch.start_ns == 10 * SECOND_NS


def test_truth_is_what_the_batches_hold(shop: Shop, logs: list[Row], spans: list[Row]) -> None:
    truth = shop.truth(shop.start_ns, shop.start_ns + HOUR_NS)
    assert truth.logs == len(logs)
    assert truth.logs_by_service == Counter(row.service for row in logs)
    assert truth.logs_by_severity == Counter((row.service, row.record.severity_text) for row in logs)
    assert truth.spans_by_service == Counter(row.service for row in spans)
    (incident,) = truth.incidents
    assert truth.incident_errors == Counter(
        row.service
        for row in logs
        if row.record.severity_text == "ERROR" and incident.start_ns <= row.record.time_unix_nano < incident.end_ns
    )


def test_truths_of_parts_add_up(shop: Shop) -> None:
    (incident,) = shop.incidents(shop.start_ns, shop.start_ns + HOUR_NS)
    a, b = incident.begin_ns - MINUTE_NS, incident.end_ns + MINUTE_NS
    middle = incident.begin_ns + 71_234_567_890
    first, second, whole = shop.truth(a, middle), shop.truth(middle, b), shop.truth(a, b)
    for name in ("logs_by_service", "logs_by_severity", "spans_by_service", "incident_errors"):
        assert Counter(getattr(first, name)) + Counter(getattr(second, name)) == getattr(whole, name)
    assert (first.incidents, second.incidents, whole.incidents) == (
        (TimeRange(incident.begin_ns, middle),),
        (TimeRange(middle, incident.end_ns),),
        (incident.time,),
    )


def test_bulk_is_the_shop_s_own_stream_cut_by_count(shop: Shop) -> None:
    files = list(shop.bulk_logs(5_300, per_file=1_000))
    assert [file.records for file in files] == [1_000] * 5 + [300]
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(files))
    assert all(parse(file).SerializeToString(deterministic=True) == file.data for file in files)
    same = list(shop.batches("logs", shop.start_ns, files[-1].end_ns))
    assert contents(files) == contents(same)


def test_bulk_speed_is_told(shop: Shop) -> None:
    fast = replace(shop, rate=200)
    before = time.process_time()
    files = list(fast.bulk_logs(100_000, per_file=25_000))
    seconds = time.process_time() - before
    size = sum(len(file.data) for file in files)
    assert sum(file.records for file in files) == 100_000
    print(f"bulk logs: {100_000 / seconds:,.0f} records and {size / seconds / 1e6:,.0f} MB per CPU second")


def test_before_the_opening_there_is_nothing(shop: Shop) -> None:
    earlier = shop.start_ns - HOUR_NS
    for signal in SIGNALS:
        assert list(shop.batches(signal, earlier, shop.start_ns)) == []
        assert list(shop.batches(signal, shop.start_ns + 5, shop.start_ns + 5)) == []
    assert shop.truth(earlier, shop.start_ns).logs == 0
    opened = list(shop.batches("logs", earlier, shop.start_ns + 20 * SECOND_NS))
    assert opened == list(shop.batches("logs", shop.start_ns, shop.start_ns + 20 * SECOND_NS))


def test_a_slow_shop_has_quiet_seconds_and_no_empty_batches() -> None:
    quiet = Shop(seed=1, start_ns=0, rate=0.01)
    batches = list(quiet.batches("traces", 0, 10 * MINUTE_NS, per_batch_seconds=1))
    assert 0 < len(batches) < 60
    assert all(batch.records for batch in batches)


def test_nonsense_is_refused(shop: Shop) -> None:
    with pytest.raises(UserError, match="rate"):
        Shop(seed=1, start_ns=0, rate=0)
    with pytest.raises(UserError, match="open"):
        Shop(seed=1, start_ns=-1, rate=1)
    with pytest.raises(UserError, match="unknown signal 'profiles'"):
        shop.batches("profiles", 0, 1)
    with pytest.raises(UserError, match="per_batch_seconds"):
        shop.batches("logs", 0, 1, per_batch_seconds=0)
    with pytest.raises(UserError, match="files of 0"):
        next(shop.bulk_logs(1, per_file=0))
