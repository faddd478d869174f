"""Lines for LogQL: half of them the demo shop's, a quarter JSON of the service `edge`, a quarter logfmt of `gateway`.

`edge` and `gateway` are in the namespace `ingress`. Their lines have about 210 bytes and a trace id each.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import chain, zip_longest

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from _lake import HOUR_NS, OPENING_NS, PER_FILE, shop_batches

SERVICES = ("edge", "gateway")
_LEVELS = (("INFO", 9), ("DEBUG", 5), ("WARN", 13), ("ERROR", 17))
_METHODS = ("GET", "GET", "GET", "POST", "PUT", "DELETE")
_STATUSES = (200,) * 15 + (201, 304, 404, 500, 503)


def mixed_batches(hour: int, rows: int) -> Iterator[bytes]:
    """Yield requests of OTLP, those of all services in turn."""
    quarter = rows // 4
    ways = (shop_batches(hour, rows - 2 * quarter), *(_requests(service, hour, quarter) for service in SERVICES))
    return (data for data in chain.from_iterable(zip_longest(*ways)) if data is not None)


def _requests(service: str, hour: int, rows: int) -> Iterator[bytes]:
    chance = random.Random(f"{service} {hour}")
    between_ns = HOUR_NS // (rows + 1)
    for first in range(0, rows, PER_FILE):
        request = ExportLogsServiceRequest()
        of_service = request.resource_logs.add()
        for key, value in (("service.name", service), ("k8s.namespace.name", "ingress")):
            of_service.resource.attributes.add(key=key).value.string_value = value
        records = of_service.scope_logs.add().log_records
        for number in range(first, min(rows, first + PER_FILE)):
            time_ns = OPENING_NS + hour * HOUR_NS + (number + 1) * between_ns + 1
            status = chance.choice(_STATUSES)
            text, level = _LEVELS[3] if status >= 500 else _LEVELS[chance.randrange(3)]
            record = records.add(time_unix_nano=time_ns, severity_text=text, severity_number=level)
            record.body.string_value = _line(service, chance, status)
        yield request.SerializeToString()


def _line(service: str, chance: random.Random, status: int) -> str:
    fields = {
        "msg": f"request of user {chance.randrange(1_000_000)} done",
        "method": chance.choice(_METHODS),
        "path": f"/api/v1/{chance.choice(('items', 'carts', 'orders'))}/{chance.randrange(20)}",
        "status": status,
        "duration_ms": round(chance.expovariate(0.05), 3),
        "bytes": chance.randrange(100_000),
        "trace_id": f"{chance.getrandbits(128):032x}",
        "host": f"{service}-{chance.randrange(8)}",
    }
    if service == "edge":
        return json.dumps(fields)
    return " ".join(f'{name}="{value}"' if " " in str(value) else f"{name}={value}" for name, value in fields.items())
