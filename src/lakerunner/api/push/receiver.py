"""Receive pushed telemetry for all push protocols: check it, store it durably in a raw object, then acknowledge it.

Many requests arrive at once; each is answered when it is stored and announced. Requests of the same organization,
signal and format that arrive shortly after each other share one object: a store handles few large objects better than
many small ones, and a sender waits for one write either way.

An acknowledged request is durable, and a request that is sent again, byte for byte, counts once (`push_store.py`). What
the pipeline would set aside is refused here, and requests share an object only if one read of the pipeline takes all of
them (`pipeline/push_check.py`), so that no request spoils an object for others. Waiting requests are bounded in bytes
and in number, and shared between organizations (`api/limits.py`); beyond that, senders get an error and retry.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from anyio import to_thread
from prometheus_client import Gauge

from lakerunner.api.limits import Holdings
from lakerunner.api.push.push_store import Origin, PushStore
from lakerunner.model.errors import Busy, Corrupt, LakerunnerError, Unavailable, UserError, full_message
from lakerunner.model.organization import Organization
from lakerunner.model.signal import signal_named
from lakerunner.pipeline.push_check import CHECKS, CheckedRequest
from lakerunner.pipeline.read.otlp import Load
from lakerunner.pipeline.remote_write.message_check import MessageCounts

WAITING = Gauge("lakerunner_push_waiting_requests", "Pushed requests that are not stored yet")
_logger = logging.getLogger("lakerunner.api")
_THREADS = 4  # objects that are written at the same time
_STOP_SECONDS = 15.0
_Name = tuple[UUID, str, bytes]
PushResult = Future[MessageCounts | None]  # the counts are those of a remote-write request


@dataclass(frozen=True)
class PushLimits:
    """Age in seconds and size in bytes at which an object is written; how much may wait to be stored."""

    max_seconds: float
    max_bytes: int
    max_waiting_bytes: int
    max_waiting_requests: int


@dataclass
class _Batch:
    """The requests of one object, by digest."""

    origin: Origin
    due: float
    requests: dict[bytes, bytes] = field(default_factory=dict)
    answers: dict[bytes, PushResult] = field(default_factory=dict)
    size: int = 0


class Receiver:
    """Collects requests into objects; safe between threads. Call `start` before the first request, `stop` after the
    last."""

    def __init__(self, keeper: PushStore, limits: PushLimits, on_bug: Callable[[str], None]) -> None:
        self._keeper = keeper
        self._limits = limits
        self._on_bug = on_bug
        self._changed = threading.Condition()
        self._open: dict[Origin, _Batch] = {}  # oldest first, because all are due at the same age
        self._full: deque[_Batch] = deque()
        self._answers: dict[_Name, PushResult] = {}
        self._requests = Holdings(
            limits.max_waiting_requests, "requests that may wait to be stored (push_max_waiting_requests)"
        )
        self._bytes = Holdings(limits.max_waiting_bytes, "bytes that may wait to be stored (push_max_waiting_bytes)")
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"push-{number}", daemon=True) for number in range(_THREADS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """Refuse further requests, and store what waits without delay."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Drain and wait. Requests that could not be stored in time are answered with Unavailable."""
        self.drain()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            left = [*self._full, *self._open.values()]
            self._full.clear()
            self._open.clear()
        for batch in left:
            self._answer(batch, dict.fromkeys(batch.requests, _stopping()), {})

    async def accept_soon(
        self, organization: Organization, signal: str, form: str, data: bytes
    ) -> MessageCounts | None:
        """Return when the request is durable, with its counts if it is remote-write; no thread is held meanwhile.

        Raise UserError if it is not valid in its format, Busy if too much waits, Unavailable if it could not be
        stored; after the latter two it may be sent again.
        """
        return await asyncio.wrap_future(await to_thread.run_sync(self.offer, organization, signal, form, data))

    def offer(self, organization: Organization, signal: str, form: str, data: bytes) -> PushResult:
        """Do as `accept_soon`, but return a future at once."""
        signal_named(signal)  # raises UserError for an unknown signal
        if not data:
            return _done()  # an empty request is valid and has no records
        digest = blake2b(data, digest_size=16, person=form.encode()).digest()
        origin = Origin(organization.id, signal, form)
        with self._changed:
            if self._stopping:
                raise _stopping()
            same = self._answers.get((origin.organization, signal, digest))
            if same is not None:  # the same request was sent before and has not been answered yet
                return same
            if reason := self._requests.refusal(origin.organization, 1):
                raise Busy(reason)
            self._bytes.take(origin.organization, len(data))
            self._requests.take(origin.organization, 1)
            WAITING.inc()
            batch = self._open.get(origin)
            if batch is not None and batch.size + len(data) > self._limits.max_bytes:
                self._full.append(self._open.pop(origin))
                batch = None
            if batch is None:
                batch = self._open[origin] = _Batch(origin, time.monotonic() + self._limits.max_seconds)
            answer: PushResult = Future()
            answer.set_running_or_notify_cancel()  # so that a sender that leaves cannot cancel its request
            self._answers[origin.organization, signal, digest] = batch.answers[digest] = answer
            batch.requests[digest] = data
            batch.size += len(data)
            if batch.size >= self._limits.max_bytes or not self._limits.max_seconds:
                self._full.append(self._open.pop(origin))
            self._changed.notify()
            return answer

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            checked: Mapping[bytes, CheckedRequest] = {}
            try:
                checked, refused = check_all(batch.origin, batch.requests, time.time_ns())
                errors: Mapping[bytes, Exception] = {**refused, **self._keep(batch, checked)}
            except LakerunnerError as error:
                errors = dict.fromkeys(batch.requests, error)
            except Exception as error:  # noqa: BLE001 - a bug: the senders get an error, and the process stops
                errors = dict.fromkeys(batch.requests, error)
                self._on_bug(repr(error))
            self._answer(batch, errors, checked)

    def _next(self) -> _Batch | None:
        """Wait for the next batch that is full or old enough; return None when there will be no more."""
        with self._changed:
            while True:
                if self._full:
                    return self._full.popleft()
                oldest = next(iter(self._open.values()), None)
                if oldest is None:
                    if self._stopping:
                        return None
                    self._changed.wait()
                    continue
                wait = oldest.due - time.monotonic()
                if wait <= 0 or self._stopping:
                    return self._open.pop(oldest.origin)
                self._changed.wait(wait)

    def _keep(self, batch: _Batch, checked: Mapping[bytes, CheckedRequest]) -> dict[bytes, LakerunnerError]:
        """Store the requests that passed the check; return the errors of those that were not stored."""
        now_ns = time.time_ns()
        errors: dict[bytes, LakerunnerError] = {}
        for digests in readable_groups(checked):
            requests = {digest: batch.requests[digest] for digest in digests}
            try:
                errors |= self._keeper.keep(batch.origin, requests, now_ns)
            except LakerunnerError as error:
                errors |= dict.fromkeys(digests, error)
        away = [error for error in errors.values() if isinstance(error, Unavailable)]
        if away:  # each sender gets its own error; the operator sees only the log
            _logger.warning("%d pushed requests are not stored: %s", len(away), full_message(away[0]))
        return errors

    def _answer(
        self, batch: _Batch, errors: Mapping[bytes, Exception], checked: Mapping[bytes, CheckedRequest]
    ) -> None:
        with self._changed:
            for digest in batch.requests:
                del self._answers[batch.origin.organization, batch.origin.signal, digest]
            self._requests.give_back(batch.origin.organization, len(batch.requests))
            self._bytes.give_back(batch.origin.organization, batch.size)
        WAITING.dec(len(batch.requests))
        for digest, answer in batch.answers.items():
            error = errors.get(digest)
            if error is None:
                answer.set_result(checked[digest].counts)
            else:
                answer.set_exception(error)


def check_all(
    origin: Origin, requests: Mapping[bytes, bytes], now_ns: int
) -> tuple[dict[bytes, CheckedRequest], dict[bytes, UserError]]:
    """Return the requests that the pipeline can read, and the errors of those that it would set aside."""
    check = CHECKS.get((origin.signal, origin.format))
    if check is None:
        error = UserError(f"this version does not accept {origin.signal} as {origin.format}")
        return {}, dict.fromkeys(requests, error)
    passed: dict[bytes, CheckedRequest] = {}
    refused: dict[bytes, UserError] = {}
    for digest, request in requests.items():
        try:
            passed[digest] = check(request, now_ns)
        except (Corrupt, UserError) as error:
            refused[digest] = UserError(str(error))
    return passed, refused


def readable_groups(checked: Mapping[bytes, CheckedRequest]) -> Iterator[list[bytes]]:
    """Yield the digests of requests that share an object: as many as one read takes, in their order."""
    group: list[bytes] = []
    load = Load(0, 0)
    for digest, one in checked.items():
        if one.load is None:
            yield [digest]
            continue
        if group and not load.plus(one.load).fits:
            yield group
            group, load = [], Load(0, 0)
        group.append(digest)
        load = load.plus(one.load)
    if group:
        yield group


def _stopping() -> Unavailable:
    return Unavailable("this server is stopping: send the request again, here or elsewhere")


def _done() -> PushResult:
    answer: PushResult = Future()
    answer.set_result(None)
    return answer
