"""What a gRPC client that is not authenticated can take of the server: no message of it is read."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from lakerunner.api.push import otlp_grpc
from servers.lake import wait_until
from suites.doors import MAX_BYTES, Doors
from suites.pushed import pushed_objects
from suites.requests import request_of

LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
KEY = [("authorization", "Bearer lrk_acme")]
OTHER_KEY = [("authorization", "Bearer lrk_other")]
WRONG = [("authorization", "Bearer wrong")]

pytestmark = pytest.mark.parametrize("address", ["local"], indirect=True)


def messages(*some: bytes, then: threading.Event) -> Iterator[bytes]:
    """A client that never says that it has sent all."""
    yield from some
    then.wait(60)


@pytest.mark.parametrize(
    ("key", "code"), [("wrong", grpc.StatusCode.UNAUTHENTICATED), ("lrk_reader", grpc.StatusCode.PERMISSION_DENIED)]
)
def test_a_call_is_refused_before_its_message_is_there(doors: Doors, key: str, code: grpc.StatusCode) -> None:
    end = threading.Event()
    with grpc.insecure_channel(doors.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.stream_unary(LOGS)(messages(then=end), timeout=30, metadata=[("x-api-key", key)])
    end.set()
    assert refused.value.code() == code


@pytest.mark.parametrize("count", [0, 2])
def test_a_call_has_one_message(doors: Doors, count: int) -> None:
    sent = iter([request_of(f"{number}") for number in range(count)])
    with grpc.insecure_channel(doors.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.stream_unary(LOGS)(sent, timeout=30, metadata=KEY)
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "an export call must have exactly one message",
    )
    assert pushed_objects(doors.store) == {}


def test_messages_that_do_not_come_keep_others_waiting_for_a_time_only(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_grpc, "READ_SECONDS", 1.0)
    end = threading.Event()
    with grpc.insecure_channel(doors.grpc_address) as channel:
        slow = channel.stream_unary(LOGS)
        calls = [slow.future(messages(then=end), timeout=60, metadata=KEY) for _ in range(otlp_grpc.READS_MAX)]
        assert {call.code() for call in calls} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert all(b"RetryInfo" in dict(call.trailing_metadata())["grpc-status-details-bin"] for call in calls)
        end.set()
        assert channel.unary_unary(LOGS)(request_of("after them"), timeout=60, metadata=KEY) == b""


def test_messages_that_do_not_come_keep_no_other_organization_waiting(doors: Doors) -> None:
    end = threading.Event()
    with grpc.insecure_channel(doors.grpc_address) as channel:
        slow = channel.stream_unary(LOGS)
        calls = [slow.future(messages(then=end), timeout=120, metadata=KEY) for _ in range(otlp_grpc.READS_MAX)]
        assert channel.unary_unary(LOGS)(request_of("b"), timeout=50, metadata=OTHER_KEY) == b""
        assert not any(call.done() for call in calls)
        end.set()
        assert {call.details() for call in calls} == {"an export call must have exactly one message"}


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one organization two."""
    monkeypatch.setattr(otlp_grpc, "CALLS_MAX", 4)


@pytest.mark.usefixtures("few_calls")
def test_calls_beyond_the_most_are_to_be_sent_again(doors: Doors) -> None:
    end = threading.Event()
    with grpc.insecure_channel(doors.grpc_address) as channel:
        slow = channel.stream_unary(LOGS)
        calls: dict[str, grpc.Future] = {}

        def refusal() -> str:
            """Send a call while these are under way. The place of one of them may be taken by another call."""
            for text in ("one", "two"):
                if text not in calls or calls[text].done():
                    calls[text] = slow.future(messages(request_of(text), then=end), timeout=600, metadata=KEY)
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(LOGS)(b"\xff", timeout=60, metadata=KEY)
            exhausted = refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            return str(refused.value.details()) if exhausted else ""

        # Until both are there: a call whose key is being looked up belongs to no organization yet.
        wait_until(lambda: refusal().startswith("your organization uses 2 of the 4 "), "both are under way", 60)
        assert refusal() == (
            "your organization uses 2 of the 4 gRPC calls that may be under way, and may use as "
            "many as are free: send it again later"
        )
        assert channel.unary_unary(LOGS)(request_of("b"), timeout=60, metadata=OTHER_KEY) == b""
        end.set()
        assert [call.result() for call in calls.values()] == [b"", b""]


def test_metadata_is_bounded(doors: Doors) -> None:
    with grpc.insecure_channel(doors.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(LOGS)(request_of("a"), timeout=60, metadata=[*KEY, ("x-large", "a" * 100_000)])
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "metadata size" in refused.value.details()


def test_what_unpacks_to_more_than_a_request_is_refused(doors: Doors) -> None:
    bomb = request_of("a" * 50 * MAX_BYTES)
    assert len(gzip.compress(bomb)) < MAX_BYTES
    with grpc.insecure_channel(doors.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(LOGS)(bomb, timeout=60, metadata=KEY, compression=grpc.Compression.Gzip)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def _resident(pid: int) -> int:
    """Bytes of memory that the process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.heavy
def test_large_messages_without_a_key_take_no_memory(doors: Doors) -> None:
    """24 calls of 60 MB at once: 2.2 GB while gRPC read the messages first, 4 MB since. The clients are a process of
    their own, so that all memory that this one gains is the server's."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("there is no /proc to read memory from")
    client = subprocess.Popen([sys.executable, "-c", _CLIENTS, doors.grpc_address], stdout=subprocess.PIPE, text=True)
    before = most = _resident(os.getpid())
    while client.poll() is None:
        most = max(most, _resident(os.getpid()))
        time.sleep(0.01)
    assert client.communicate()[0].split() == ["UNAUTHENTICATED"] * 24
    assert most - before < 200 << 20


_CLIENTS = f"""
import grpc, sys
data, address = bytes(60_000_000), sys.argv[1]
own = [("grpc.use_local_subchannel_pool", 1)]
channels = [grpc.insecure_channel(address, options=own) for _ in range(24)]
calls = [one.unary_unary("{LOGS}").future(data, timeout=120, metadata={WRONG}) for one in channels]
print(*(call.code().name for call in calls))
"""
