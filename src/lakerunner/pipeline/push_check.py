"""What a push door checks of a request before it is stored: the wire and the limits. No rows are made.

Comes in: one request in a format of `CHECKS`. Goes out: what it takes to read it, or Corrupt or UserError with the
reason for which a task would set it aside.

What always holds: a task reads what passed, alone in its object or with others as long as one read takes all of them
(`Load.fits`). What is unusual, because one read does not take it or its rows share much, is judged by the task's own
code and has an object to itself: joined with others it might be judged differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lakerunner.model.errors import Corrupt, UserError
from lakerunner.model.protobuf import varint
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read import shared
from lakerunner.pipeline.read.otlp import Load, checked, settled
from lakerunner.pipeline.read.remote_write import SAMPLES as REMOTE_WRITE_SAMPLES
from lakerunner.pipeline.read.remote_write import load_of
from lakerunner.pipeline.read.remote_write_check import Counts, check_message
from lakerunner.pipeline.read.remote_write_fields import V1, V2
from lakerunner.pipeline.read.remote_write_shared import most_shared_in_series
from lakerunner.pipeline.read.sample import SAMPLES
from lakerunner.pipeline.segments import Raw, refused
from lakerunner.pipeline.signals import REQUESTS
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.pipeline.transcode.plausible import PUSH_GRACE_NS, TOO_NEW, TOO_OLD


@dataclass(frozen=True)
class Checked:
    """A request that a task will read. `load` is None if it must have an object to itself; `counts` is what a
    remote-write request holds."""

    load: Load | None
    counts: Counts | None = None


# A request and the time of its arrival. Corrupt or UserError if it is refused.
Check = Callable[[bytes, int], Checked]


def _check_otlp(signal: str, data: bytes, _now_ns: int) -> Checked:
    part = checked(np.frombuffer(data, np.uint8), REQUESTS[signal])
    plain = settled(part)
    if part.fits and plain.fits and shared.most_shared(plain.data, metrics=signal == "metrics") <= shared.FREE_BYTES:
        return Checked(Load(max(len(part.data), len(plain.data)), max(part.memory, plain.memory), part.odd))
    _judge(signal, "otlp", data)
    return Checked(None)


def _check_remote_write(version: int, form: str, data: bytes, _now_ns: int) -> Checked:
    counts = check_message(data, version)
    framed = varint(len(data)) + data
    load = load_of(counts, len(framed))
    if load.fits and most_shared_in_series(data, version, counts.texts) <= shared.FREE_BYTES:
        return Checked(load, counts)
    _judge("metrics", form, framed)
    return Checked(None, counts)


def _check_loki(form: str, data: bytes, now_ns: int) -> Checked:
    """Check the OTLP that a task will make of it. Times that are probably wrong are refused too, as Loki does."""
    framed = varint(len(data)) + data
    made = TRANSCODERS[form]("logs", memoryview(framed), GUESSED.near(now_ns, PUSH_GRACE_NS))
    complaint = next((note.text for note in made.findings.notes if note.kind in (TOO_OLD, TOO_NEW)), None)
    if complaint is not None:
        raise UserError(complaint)
    return _check_otlp("logs", made.whole(), now_ns)


def _judge(signal: str, form: str, data: bytes) -> None:
    """Corrupt if a task would set this object aside: it is read as a task would."""
    source = SourceObject("push", "request", "push", len(data), 0)
    for _, reason in refused(signal, [Raw(source, memoryview(data), form)]):
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
