"""What a push door accepts a task reads, alone and with its neighbours; what it refuses a task would set aside, for the
same reason. The judge is the task's own code, over whole, damaged and joined requests, with limits that some of them
reach."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.api.push.push_store import PUSH_FORMATS, Origin
from lakerunner.api.push.receiver import check_all, readable_groups
from lakerunner.model.errors import Corrupt, UserError
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import PUSH_GRACE_NS, SourceObject
from lakerunner.pipeline.make_segments import Raw, find_refused, make_segments
from lakerunner.pipeline.push_check import CHECKS
from lakerunner.pipeline.read import otlp, pieces, shared
from lakerunner.pipeline.read.otlp import Load
from lakerunner.pipeline.remote_write import reader as remote_write
from lakerunner.pipeline.remote_write.message_check import check_message
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from pipeline import test_metrics_random, test_read_remote_write, test_segments_random, test_traces_random
from pipeline.otlp_random import thorough
from pipeline.remote_write_oracle import framed
from pipeline.test_transcode_loki import push_json, push_protobuf

NOW = 1_760_000_000_000_000_000
VERSIONS = {"prw1": 0, "prw2": 1}

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
label_sets = st.dictionaries(st.sampled_from(["job", "app", "level", "x"]), words | st.just("v" * 300), max_size=3)
entries = st.tuples(st.integers(NOW - 9, NOW), words, st.dictionaries(words, words, max_size=2))
streams = st.lists(st.tuples(label_sets, st.lists(entries, max_size=4)), max_size=3)

REQUESTS: dict[tuple[str, str], st.SearchStrategy[bytes]] = {
    ("logs", "otlp"): test_segments_random.requests().map(lambda one: one.SerializeToString()),
    ("metrics", "otlp"): test_metrics_random.requests().map(lambda one: one.SerializeToString()),
    ("traces", "otlp"): test_traces_random.requests().map(lambda one: one.SerializeToString()),
    ("metrics", "prw1"): test_read_remote_write.requests("prw1"),
    ("metrics", "prw2"): test_read_remote_write.requests("prw2"),
    ("logs", "lokipb"): streams.map(lambda found: push_protobuf(*found)),
    ("logs", "lokijson"): streams.map(lambda found: push_json(*found)),
}


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A request with bytes changed, cut out or doubled; half of them are left as they are."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        end = draw(st.integers(at, min(len(data), at + 40)))
        kind = draw(st.sampled_from(["change", "cut", "double"]))
        if kind == "change":
            data[at] = draw(st.integers(0, 255))
        else:
            data[at:end] = b"" if kind == "cut" else 2 * data[at:end]
    return bytes(data)


# (FREE_BYTES, MAX_TIMES, MAX_MEMORY): as they are, and such that random requests reach them.
LIMITS = st.sampled_from(
    [(8192, 32, 384 << 20), (60, 1, 384 << 20), (200, 2, 384 << 20), (8192, 32, 6_000), (100, 1, 20_000)]
)


def bound(patch: pytest.MonkeyPatch, limits: tuple[int, int, int]) -> None:
    free, times, memory = limits
    patch.setattr(shared, "FREE_BYTES", free)
    patch.setattr(shared, "MAX_TIMES", times)
    for module in (otlp, pieces, remote_write):
        patch.setattr(module, "MAX_MEMORY", memory)


def raw_of(form: str, data: bytes) -> Raw:
    """As a task unpacks it."""
    if form in TRANSCODERS:
        made = TRANSCODERS[form]("logs", memoryview(data), GUESSED.near(NOW, PUSH_GRACE_NS))
        data, form = made.require_complete(), "otlp"
    return Raw(SourceObject("push", "key", "etag", len(data), NOW), memoryview(data), form)


def judged(signal: str, form: str, request: bytes) -> str:
    """Why a task would set the request aside; "" if it would not."""
    try:
        if form in VERSIONS:
            check_message(request, VERSIONS[form])
        raw = raw_of(form, PUSH_FORMATS[form].joined([request]))
    except (Corrupt, UserError) as error:
        return str(error)
    return next((reason for _, reason in find_refused(signal, [raw])), "")


@pytest.mark.parametrize(("signal", "form"), sorted(CHECKS))
@thorough(120)
@given(data=st.data())
def test_the_door_and_the_task_agree(signal: str, form: str, data: Any) -> None:
    drawn = data.draw(st.lists(damaged(REQUESTS[signal, form]), min_size=1, max_size=4))
    requests = {bytes([number]): request for number, request in enumerate(drawn) if request}
    with pytest.MonkeyPatch.context() as patch:
        bound(patch, data.draw(LIMITS))
        checked, errors = check_all(Origin(UUID(int=1), signal, form), requests, NOW)
        complaints = {digest: str(error) for digest, error in errors.items() if " has timestamp too " in str(error)}
        reasons = {digest: judged(signal, form, request) for digest, request in requests.items()}
        told = {digest: reason for digest, reason in reasons.items() if reason} | complaints
        assert {digest: str(error) for digest, error in errors.items()} == told
        assert {error.http_status for error in errors.values()} <= {400}
        groups = list(readable_groups(checked))
        assert sorted(digest for group in groups for digest in group) == sorted(checked)
        for group in groups:
            joined = PUSH_FORMATS[form].joined(requests[digest] for digest in group)
            made = make_segments(
                SIGNALS[signal], UUID(int=1), "edge", [raw_of(form, joined)], lambda _path, _data: None
            )
            assert made.failed == ()


def test_requests_that_one_read_does_not_take_together_have_objects_of_their_own() -> None:
    """Joined, the empty series of both would need more memory than an object may; a task would set it aside."""
    half = b"\x0a\x00" * 900_000
    requests = {b"a": half, b"b": half + b"\x0a\x00", b"c": b"\x0a\x00"}
    checked, errors = check_all(Origin(UUID(int=1), "metrics", "prw1"), requests, NOW)
    assert errors == {}
    assert list(readable_groups(checked)) == [[b"a"], [b"b", b"c"]]
    ((_, reason),) = find_refused("metrics", [raw_of("prw1", framed(*requests.values()))])
    assert "send smaller files" in reason
    assert [find_refused("metrics", [raw_of("prw1", framed(requests[one]))]) for one in requests] == [(), (), ()]


def test_a_request_whose_rows_share_much_has_an_object_of_its_own() -> None:
    """The labels of a Loki stream are written once for all requests of an object, so that they would outgrow it."""
    labels = {"job": "j" * 20_000}
    requests = {b"%d" % number: push_json((labels, [(NOW, f"line {number}", {})])) for number in range(100)}
    checked, errors = check_all(Origin(UUID(int=1), "logs", "lokijson"), requests, NOW)
    assert errors == {}
    assert list(readable_groups(checked)) == [[digest] for digest in requests]
    assert all(one.load is None for one in checked.values())
    joined = PUSH_FORMATS["lokijson"].joined(requests.values())
    ((_, reason),) = find_refused("logs", [raw_of("lokijson", joined)])
    assert "bytes become" in reason


def test_a_group_with_an_odd_request_is_smaller() -> None:
    plain, odd = Load(0, otlp.MAX_MEMORY // 5), Load(0, otlp.MAX_MEMORY // 5, odd=True)
    assert plain.plus(plain).plus(plain).fits
    assert odd.fits
    assert not odd.plus(plain).fits


def test_remote_write_is_counted_by_its_check() -> None:
    counts = CHECKS["metrics", "prw1"](bytes.fromhex("0a0c 0a060a0161120162 12021001"), NOW).counts
    assert counts is not None
    assert (counts.samples, counts.series, counts.labels) == (1, 1, 1)
