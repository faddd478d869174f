"""What a push door checks of a request before it is stored: the wire and the limits. No rows are made.

Comes in: one request in a format of `CHECKS`. Goes out: what reading it takes, or Corrupt or UserError with the reason
for which a task would set it aside.

What always holds: a task can read a request that passed, alone in its object or together with others that fit in one
read (`Load.fits`). An unusual request, which does not fit in one read or whose rows share much, is judged by the task's
own code and stored in an object of its own: the task might judge it differently together with others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lakerunner.model.errors import Corrupt, UserError
from lakerunner.model.protobuf import varint
from lakerunner.model.source import PUSH_GRACE_NS, TOO_NEW, TOO_OLD, SourceObject
from lakerunner.pipeline.make_segments import Raw, find_refused
from lakerunner.pipeline.read import shared
from lakerunner.pipeline.read.otlp import Load, check_request, prepare_file
from lakerunner.pipeline.read.sample import SAMPLES
from lakerunner.pipeline.remote_write.fields import V1, V2
from lakerunner.pipeline.remote_write.message_check import MessageCounts, check_message, most_shared_in_series
from lakerunner.pipeline.remote_write.reader import SAMPLES as REMOTE_WRITE_SAMPLES
from lakerunner.pipeline.remote_write.reader import estimate_load
from lakerunner.pipeline.signals import REQUESTS
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS


@dataclass(frozen=True)
class CheckedRequest:
    """A request that a task can read. `load` is None if it needs an object of its own; `counts` is what a remote-write
    request holds."""

    load: Load | None
    counts: MessageCounts | None = None


# From a request and the time of its arrival. Raises Corrupt or UserError if it is refused.
Check = Callable[[bytes, int], CheckedRequest]


def _check_otlp(signal: str, data: bytes, _now_ns: int) -> CheckedRequest:
    part = check_request(np.frombuffer(data, np.uint8), REQUESTS[signal])
    plain = prepare_file(part)
    if part.fits and plain.fits and shared.most_shared(plain.data, metrics=signal == "metrics") <= shared.FREE_BYTES:
        return CheckedRequest(Load(max(len(part.data), len(plain.data)), max(part.memory, plain.memory), part.odd))
    _judge(signal, "otlp", data)
    return CheckedRequest(None)


def _check_remote_write(version: int, form: str, data: bytes, _now_ns: int) -> CheckedRequest:
    counts = check_message(data, version)
    framed = varint(len(data)) + data
    load = estimate_load(counts, len(framed))
    if load.fits and most_shared_in_series(data, version, counts.texts) <= shared.FREE_BYTES:
        return CheckedRequest(load, counts)
    _judge("metrics", form, framed)
    return CheckedRequest(None, counts)


def _check_loki(form: str, data: bytes, now_ns: int) -> CheckedRequest:
    """Check the OTLP that a task will write for it. Times that are probably wrong are refused too, as Loki does."""
    framed = varint(len(data)) + data
    made = TRANSCODERS[form]("logs", memoryview(framed), GUESSED.near(now_ns, PUSH_GRACE_NS))
    complaint = next((note.text for note in made.findings.notes if note.kind in (TOO_OLD, TOO_NEW)), None)
    if complaint is not None:
        raise UserError(complaint)
    return _check_otlp("logs", made.require_complete(), now_ns)


def _judge(signal: str, form: str, data: bytes) -> None:
    """Raise Corrupt if a task would set this object aside: read it as a task does."""
    source = SourceObject("push", "request", "push", len(data), 0)
    for _, reason in find_refused(signal, [Raw(source, memoryview(data), form)]):
        raise Corrupt(reason)


CHECKS: dict[tuple[str, str], Check] = {
    ("logs", "otlp"): partial(_check_otlp, "logs"),
    ("metrics", "otlp"): partial(_check_otlp, "metrics"),
    ("traces", "otlp"): partial(_check_otlp, "traces"),
    ("metrics", "prw1"): partial(_check_remote_write, V1, "prw1"),
    ("metrics", "prw2"): partial(_check_remote_write, V2, "prw2"),
    ("logs", "lokipb"): partial(_check_loki, "lokipb"),
    ("logs", "lokijson"): partial(_check_loki, "lokijson"),
}


def warm() -> None:
    """Compile the jitted code of the checks, or load it from numba's cache."""
    for signal, sample in SAMPLES.items():
        CHECKS[signal, "otlp"](sample(), 0)
    for form, message in zip(("prw1", "prw2"), REMOTE_WRITE_SAMPLES, strict=True):
        CHECKS["metrics", form](message, 0)
