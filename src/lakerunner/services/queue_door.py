"""The door of notifications that wait in a queue: take messages, record what they name, then delete them.

What always holds: a message is deleted only after every object it names is recorded in the index, durably, or can
never be: an object of another bucket, a key that no route takes. Until then the queue gives it again, and recording
twice changes nothing. A message that is no notification is counted and left to the queue's own dead-letter rule for
POISON_RECEIVES receives, then deleted; where a queue does not count, it is deleted at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakerunner.api.events import Notified
from lakerunner.model.errors import UserError
from lakerunner.model.notification import created_in
from lakerunner.services import meters
from lakerunner.services.logs import Log

POISON_RECEIVES = 5
_STEP_SECONDS = 1.0

log = Log("queue")


@dataclass(frozen=True)
class Message:
    """`receipt` deletes it; `receives` is how often it was given out, this time included, None if nobody counts."""

    id: str
    receipt: str
    body: str
    receives: int | None


class Queue(Protocol):
    """A queue that a store's notifications wait in. Calls raise Unavailable when it is away or refuses us."""

    @property
    def name(self) -> str:
        """For health and logs: without secrets."""

    @property
    def provider(self) -> str:
        """Whose notifications it holds: one of model/notification.py's PROVIDERS."""

    def receive(self) -> list[Message]:
        """Some messages; waits for one where the queue can (long poll), and returns none in the end."""

    def event(self, message: Message) -> object:
        """The notification inside; UserError if the message cannot hold one."""

    def delete(self, messages: Sequence[Message]) -> None:
        """They do not come again. A message that is gone already is no error."""


class QueueDoor:
    """`announce` takes keys and returns when they are recorded."""

    def __init__(
        self, queue: Queue, announce: Callable[[list[str]], int], notified: Notified, stopping: threading.Event
    ) -> None:
        self._queue = queue
        self._announce = announce
        self._notified = notified
        self._stopping = stopping
        self._polling: _Polling | None = None

    def step(self) -> None:
        """Returns within a second or so, so that the process can stop: a long poll goes on beside it."""
        polling = self._polling = self._polling or _Polling(self._queue.receive)
        if not polling.done.wait(_STEP_SECONDS):
            return
        self._polling = None
        messages = polling.messages()
        if messages:
            self.take(messages)
        elif polling.seconds < _STEP_SECONDS:  # this queue does not wait, so we do
            self._stopping.wait(_STEP_SECONDS)

    def take(self, messages: Sequence[Message]) -> None:
        """Record what these name, then delete them."""
        keys: dict[str, None] = {}
        finished: list[Message] = []
        for message in messages:
            try:
                found = created_in(self._queue.provider, self._queue.event(message))
            except UserError as error:
                if self._is_over(message, str(error)):
                    finished.append(message)
                continue
            finished.append(message)
            for created in found:
                if self._notified.is_foreign(created):
                    meters.FOREIGN.labels(self._queue.provider).inc()
                    log.warning(
                        "notification names another bucket",
                        queue=self._queue.name,
                        bucket=created.bucket,
                        id=message.id,
                    )
                elif key := self._notified.key_of(created):
                    keys[key] = None
        self._announce(list(keys))
        if finished:
            self._queue.delete(finished)
            meters.NOTIFICATIONS.labels(self._queue.provider).inc(len(finished))

    def _is_over(self, poison: Message, reason: str) -> bool:
        """The body stays out of the log: nobody knows what is in it."""
        over = poison.receives is None or poison.receives >= POISON_RECEIVES
        meters.POISON.labels(self._queue.provider).inc()
        log.warning(
            "message is not a notification",
            queue=self._queue.name,
            id=poison.id,
            reason=reason,
            receives=poison.receives,
            deleted=over,
        )
        return over


class _Polling:
    """One call of `receive`, in a thread that nobody needs to wait for: what it takes and nobody asks for comes
    again from the queue."""

    def __init__(self, receive: Callable[[], list[Message]]) -> None:
        self.done = threading.Event()
        self.seconds = 0.0
        self._result: list[Message] | Exception = []
        threading.Thread(target=self._run, args=(receive,), name="queue poll", daemon=True).start()

    def messages(self) -> list[Message]:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def _run(self, receive: Callable[[], list[Message]]) -> None:
        started = time.monotonic()
        try:
            self._result = receive()
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
            self._result = error
        self.seconds = time.monotonic() - started
        self.done.set()
