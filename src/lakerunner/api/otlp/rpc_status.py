"""google.rpc.Status, in which OTLP tells errors, over gRPC and over HTTP. Three fields: not worth a dependency."""

from __future__ import annotations

from lakerunner.model.protobuf import DELIMITED, VARINT, delimited, tag, varint

_MESSAGE_BYTES = 2000
_CODE, _MESSAGE, _DETAILS = tag(1, VARINT), tag(2, DELIMITED), tag(3, DELIMITED)
_TYPE, _VALUE = tag(1, DELIMITED), tag(2, DELIMITED)  # of the Any that a detail is
_DELAY, _SECONDS = tag(1, DELIMITED), tag(1, VARINT)  # RetryInfo.retry_delay, a Duration
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def rpc_status(code: int, message: str, retry_seconds: int = 0) -> bytes:
    """As protobuf. `retry_seconds` adds a RetryInfo, by which a client knows that it may send the same again."""
    text = message.encode()[:_MESSAGE_BYTES].decode(errors="ignore").encode()
    status = (_CODE + varint(code) if code else b"") + delimited(_MESSAGE, text)
    if not retry_seconds:
        return status
    delay = delimited(_DELAY, _SECONDS + varint(retry_seconds))
    return status + delimited(_DETAILS, delimited(_TYPE, _RETRY_INFO) + delimited(_VALUE, delay))
