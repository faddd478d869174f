"""Where in the services' code log lines are written: each line of lines.py laid out as an OTLP LogRecord with holes.

Besides the facts of its line, a record has the holes `time` and `observed`, and where a request is behind it
`trace_id` and `span_id`. It also says who came (for requests), and which thread and function wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakerunner.model.segment import digest64
from lakerunner_demo.lines import LINES, Line
from lakerunner_demo.services import service_named
from lakerunner_demo.wire import (
    FIXED32,
    FIXED64,
    VARINT,
    Form,
    Hole,
    Part,
    Value,
    any_value,
    key_values,
    nested,
    tag,
    varint,
)

_TIME, _OBSERVED = Hole("time", Form.BYTES), Hole("observed", Form.BYTES)
_TRACE_ID, _SPAN_ID = Hole("trace_id", Form.BYTES), Hole("span_id", Form.BYTES)
_SAMPLED = (1).to_bytes(4, "little")
_RUNTIMES = {  # how threads are called and source files end
    "cpp": ("worker-{thread}", "cc"),
    "dotnet": (".NET TP Worker {thread}", "cs"),
    "go": ("goroutine-{thread}", "go"),
    "java": ("grpc-worker-{thread}", "java"),
    "nodejs": ("event-loop", "ts"),
    "python": ("ThreadPoolExecutor-0_{thread}", "py"),
    "ruby": ("puma srv tp {thread}", "rb"),
    "rust": ("tokio-runtime-worker-{thread}", "rs"),
}
_VISITOR: dict[str, Value] = {
    "shop.request.id": Hole("request", Form.INT),
    "session.id": "{session}",
    "user.id": "u-{user}",
    "user.tier": "{tier}",
    "shop.mobile": Hole("mobile", Form.BOOL),
}


@dataclass(frozen=True, eq=False)
class Site:
    """A line at the place in the code that writes it. `salt` tells its chances from those of other lines."""

    service: str
    line: Line
    salt: str
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, service: str, line: Line, *, traced: bool) -> Site:
        return cls(service, line, f"line {service} {line.body}", (_record(service, line, traced),))


def _record(service: str, line: Line, traced: bool) -> Part:
    """Return a LogRecord as field 2 of ScopeLogs, in the order of field numbers."""
    attributes = {**(_VISITOR if traced else {}), **_code(service, line), **line.attributes}
    event = [nested(12, line.event.encode())] if line.event else []
    trace = [tag(8, FIXED32) + _SAMPLED, nested(9, _TRACE_ID), nested(10, _SPAN_ID)] if traced else []
    return nested(
        2,
        tag(1, FIXED64),
        _TIME,
        tag(2, VARINT) + varint(line.severity),
        nested(3, line.severity.name.encode()),
        any_value(5, line.body),
        *key_values(6, attributes),
        *trace,
        tag(11, FIXED64),
        _OBSERVED,
        *event,
    )


def _code(service: str, line: Line) -> dict[str, Value]:
    owner = service_named(service)
    thread, ending = _RUNTIMES[owner.language]
    function = re.sub(r"\W+", "_", line.site).strip("_")
    return {
        "thread.name": thread,
        "code.function.name": f"{owner.package}.{function}",
        "code.file.path": f"services/{service}/src/{function.lower()}.{ending}",
        "code.line.number": 20 + digest64(service, str(line.body)) % 400,
    }


SITES: Mapping[tuple[str, str], tuple[Site, ...]] = {
    (service, place): tuple(Site.of(service, line, traced=True) for line in lines if line.site == place)
    for service, lines in LINES.items()
    for place in {line.site for line in lines}
}
