"""What a push door does with telemetry: keep it as a raw object, durably, then announce it.

Comes in: one OTLP export request as protobuf bytes. Goes out: nothing; when `accept` returns, the object is stored
and recorded. The object's key is a digest of its content, so a client that sends the same request again, because it
did not see our answer, adds nothing. The same bytes then go the same way as any raw file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

from google.protobuf.message import DecodeError, Message
from isal import igzip
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.errors import Conflict, UserError
from lakerunner.model.organization import Organization
from lakerunner.model.signal import signal_named
from lakerunner.model.source import RAW_PREFIX
from lakerunner.objects.store import ObjectStore

PUSH_COLLECTOR = "otlp"
REQUESTS: dict[str, type[Message]] = {"logs": ExportLogsServiceRequest, "traces": ExportTraceServiceRequest}


@dataclass(frozen=True)
class Receiver:
    """`announce` takes the key of a stored object."""

    store: ObjectStore
    announce: Callable[[str], None]

    def accept(self, organization: Organization, signal: str, data: bytes) -> None:
        """Blocks until the request is durable. UserError if it is not what it says it is."""
        refuse_unless_ingested(signal)
        try:
            REQUESTS[signal].FromString(data)
        except DecodeError as error:
            raise UserError(f"the body is not an OTLP {signal} request: {error}") from error
        if not data:
            return  # an empty export is valid and holds nothing
        digest = blake2b(data, digest_size=16).hexdigest()
        key = f"{RAW_PREFIX}{organization.id}/{PUSH_COLLECTOR}/{digest[:2]}/{signal}_{digest}.binpb.gz"
        # Sent before: announcing it again changes nothing, and mends a crash between put and announce.
        with suppress(Conflict):
            self.store.put(key, igzip.compress(data, compresslevel=1, mtime=0), if_absent=True)
        self.announce(key)


def refuse_unless_ingested(signal: str) -> None:
    if not signal_named(signal).ingested:
        raise UserError(f"{signal} are not ingested by this version: it takes {' and '.join(REQUESTS)}")
