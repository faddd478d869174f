"""OTLP/JSON to OTLP protobuf. It is proto3 JSON but for trace and span ids, which are hex instead of base64."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson
from google.protobuf.json_format import ParseDict, ParseError

from lakerunner.api.receive import REQUESTS, refuse_unless_ingested
from lakerunner.model.errors import UserError

_ID_NAMES = ("traceId", "spanId", "trace_id", "span_id", "parentSpanId", "parent_span_id")


def request_from_json(signal: str, data: bytes) -> bytes:
    """The same export request as protobuf bytes. Unknown fields are ignored, as OTLP asks of receivers."""
    refuse_unless_ingested(signal)
    try:
        value = orjson.loads(data)
        if not isinstance(value, dict):
            raise UserError("an OTLP/JSON request is an object")
        message = ParseDict(_with_base64_ids(value), REQUESTS[signal](), ignore_unknown_fields=True)
    except orjson.JSONDecodeError as error:
        raise UserError(f"the body is not JSON: {error}") from error
    except (ParseError, RecursionError) as error:
        raise UserError(f"the body is not an OTLP {signal} request: {error}") from error
    encoded: bytes = message.SerializeToString()
    return encoded


def _with_base64_ids(value: Any) -> Any:
    """A copy whose id fields are base64. Attributes are lists of {key, value}, so no user key can be mistaken."""
    if isinstance(value, list):
        return [_with_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _base64_id(name, item) if name in _ID_NAMES else _with_base64_ids(item) for name, item in value.items()
    }


def _base64_id(name: str, value: Any) -> str:
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (TypeError, ValueError, binascii.Error):
        raise UserError(f"{name} {value!r} is not hex") from None
