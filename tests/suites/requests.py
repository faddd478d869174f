"""Small OTLP requests, and dropping them into a lake's store as a collector would."""

from __future__ import annotations

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from servers.lake import Lake, wait_until

TIME_NS = 1_766_577_984_449_000_001


def request_of(*messages: str, service: str = "cart", time_ns: int = TIME_NS) -> bytes:
    """A logs request with one record per message, a nanosecond apart, each with a number beyond 2^53."""
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    resource_logs.resource.attributes.add(key="service.name").value.string_value = service
    scope = resource_logs.scope_logs.add()
    for number, message in enumerate(messages):
        record = scope.log_records.add(time_unix_nano=time_ns + number, severity_number=9)
        record.body.string_value = message
        record.attributes.add(key="number").value.int_value = 2**53 + 1 + number
    return request.SerializeToString()


def drop(running: Lake, collector: str, name: str, data: bytes, organization: str = "default") -> None:
    """As a collector would: written elsewhere, then moved into place."""
    folder = running.store / "otel-raw" / organization / collector
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{name}.part"
    draft.write_bytes(data)
    draft.rename(folder / name)


def ended(running: Lake, collector: str, count: int) -> dict[str, tuple[str, str | None]]:
    """Until so many objects of the collector ended; key -> (state, reason)."""
    found: dict[str, tuple[str, str | None]] = {}

    def done() -> bool:
        found.clear()
        for entry in running.objects()["objects"]:
            if f"/{collector}/" in entry["key"]:
                found[entry["key"].removeprefix("otel-raw/")] = (entry["state"], entry["reason"])
        return len(found) == count and all(state != "seen" for state, _ in found.values())

    wait_until(done, f"{count} objects of {collector}", 120, running.process.text)
    return found
