"""OTLP over gRPC, with a real channel on a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import grpc
import pytest
from isal import igzip
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.api.auth import Authenticator
from lakerunner.api.otlp_grpc import OtlpGrpcServer
from lakerunner.api.receive import Receiver
from lakerunner.model.organization import Organization
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore

ACME = Organization(UUID(int=7), "acme")
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class Door:
    def __init__(self, store: ObjectStore, channel: grpc.Channel, announced: list[str]) -> None:
        self.store, self.channel, self.announced = store, channel, announced

    def export(self, data: bytes, method: str = LOGS, key: str = "lrk_acme") -> bytes:
        answer: bytes = self.channel.unary_unary(method)(
            data, timeout=10, metadata=[("authorization", f"Bearer {key}")]
        )
        return answer


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    store = open_store(StoreAddress(tmp_path.as_uri()))
    announced: list[str] = []
    authenticator = Authenticator({"lrk_acme": ACME}.get, None)
    server = OtlpGrpcServer(Receiver(store, announced.append), authenticator, max_bytes=10_000)
    port = server.start("127.0.0.1", 0)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Door(store, channel, announced)
    server.stop()


def request(size: int = 5) -> bytes:
    made = ExportLogsServiceRequest()
    made.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1).body.string_value = "x" * size
    return made.SerializeToString()


def test_a_request_is_stored_as_it_came_before_it_is_answered_and_once(door: Door) -> None:
    for _ in range(2):
        assert door.export(request()) == b""
    (meta,) = door.store.list("otel-raw/")
    assert meta.key.startswith(f"otel-raw/{ACME.id}/otlp/")
    assert igzip.decompress(bytes(door.store.get(meta.key, max_bytes=10_000))) == request()
    assert door.announced == [meta.key, meta.key]


@pytest.mark.parametrize(
    ("data", "method", "key", "code"),
    [
        (b"\xff", LOGS, "lrk_acme", grpc.StatusCode.INVALID_ARGUMENT),
        (request(), LOGS, "wrong", grpc.StatusCode.UNAUTHENTICATED),
        (b"", METRICS, "lrk_acme", grpc.StatusCode.INVALID_ARGUMENT),
        (request(20_000), LOGS, "lrk_acme", grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"", "/other.Service/Export", "lrk_acme", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_is_wrong_is_refused_with_its_code(
    door: Door, data: bytes, method: str, key: str, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        door.export(data, method, key)
    assert caught.value.code() == code
    assert list(door.store.list("otel-raw/")) == []
