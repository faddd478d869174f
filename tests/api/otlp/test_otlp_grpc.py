"""OTLP over gRPC, with a real channel on a real index and store."""

from __future__ import annotations

import gzip

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.api.auth import Authenticator
from lakerunner.api.push.otlp_grpc import OtlpGrpcServer
from lakerunner.model.errors import UserError
from suites.doors import Doors
from suites.pushed import ACME, pushed_objects

LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

pytestmark = pytest.mark.parametrize("address", ["local"], indirect=True)


def export(doors: Doors, data: bytes, method: str = LOGS, key: str = "lrk_acme", **named: object) -> bytes:
    metadata = [("authorization", f"Bearer {key}")]
    with grpc.insecure_channel(doors.grpc_address) as channel:
        answer: bytes = channel.unary_unary(method)(data, timeout=30, metadata=metadata, **named)
    return answer


def request(size: int = 5) -> bytes:
    made = ExportLogsServiceRequest()
    made.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1).body.string_value = "x" * size
    return made.SerializeToString()


def status_of(error: grpc.RpcError) -> Status:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    return Status.FromString(details)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_request_is_stored_as_it_came_before_it_is_answered_and_once(
    doors: Doors, compression: grpc.Compression
) -> None:
    for _ in range(2):
        assert export(doors, request(), compression=compression) == b""  # a full success is an empty response
    ((key, data),) = pushed_objects(doors.store).items()
    assert key.startswith(f"otel-raw/{ACME.id}/otlp/")
    assert data == request()
    assert [record.source.key for record in doors.index.sources.list(None)] == [key]


@pytest.mark.parametrize(
    ("data", "method", "key", "code"),
    [
        (b"\xff", LOGS, "lrk_acme", grpc.StatusCode.INVALID_ARGUMENT),
        (request(), LOGS, "wrong", grpc.StatusCode.UNAUTHENTICATED),
        (request(), LOGS, "lrk_reader", grpc.StatusCode.PERMISSION_DENIED),
        (request(200_000), LOGS, "lrk_acme", grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"", "/other.Service/Export", "lrk_acme", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_is_wrong_is_refused_with_its_code_and_not_to_be_sent_again(
    doors: Doors, data: bytes, method: str, key: str, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        export(doors, data, method, key)
    assert caught.value.code() == code
    trailing = dict(caught.value.trailing_metadata() or ())
    assert b"RetryInfo" not in trailing.get("grpc-status-details-bin", b"")
    assert pushed_objects(doors.store) == {}


def test_beyond_what_may_wait_the_client_is_told_when_to_come_back(doors: Doors) -> None:
    doors.hold()
    waiting = [doors.offer(line) for line in ("a", "b")]
    with pytest.raises(grpc.RpcError) as caught:
        export(doors, request())
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    status = status_of(caught.value)
    assert (status.code, status.message) == (8, caught.value.details())
    assert status.message.startswith(
        "your organization uses 2 of the 4 requests that may wait to be stored (push_max_waiting_requests)"
    )
    assert export(doors, request(), key="lrk_other") == b""
    retry = RetryInfo()
    assert isinstance(status.details[0], AnyMessage)
    assert status.details[0].Unpack(retry)
    assert retry.retry_delay.seconds == 2
    doors.release()
    for answer in waiting:
        answer.result(30)
    assert export(doors, request()) == b""


def test_without_an_index_it_is_unavailable(doors: Doors) -> None:
    doors.index.close()
    with pytest.raises(grpc.RpcError) as caught:
        export(doors, request())
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert status_of(caught.value).details[0].type_url == "type.googleapis.com/google.rpc.RetryInfo"


def test_a_body_that_lies_about_its_packing_is_refused(doors: Doors) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        export(doors, gzip.compress(request()))  # packed, but not by gRPC
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "looks like gzip" in caught.value.details()


def test_a_port_that_is_taken_is_said_at_once(doors: Doors, capfd: pytest.CaptureFixture[str]) -> None:
    server = OtlpGrpcServer(doors.receiver, Authenticator(lambda _secret: None, None), 1000)
    with pytest.raises(UserError, match=rf"cannot listen on {doors.grpc_address} for OTLP over gRPC"):
        server.start("127.0.0.1", int(doors.grpc_address.rpartition(":")[2]))
    assert capfd.readouterr() == ("", "")  # gRPC's library writes no line of its own
