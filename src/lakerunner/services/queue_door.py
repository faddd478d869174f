"""The door for notifications in a queue: receive messages, record the objects that they name, then delete them.

What always holds: a message is deleted only after every object that it names is recorded in the index, durably, or can
never be: an object of another bucket, a key that no route takes. Until then the queue delivers it again, and recording
twice changes nothing. A message that is not a notification is counted and left to the queue's own dead-letter rule for
POISON_RECEIVES deliveries, then deleted; if the queue does not count deliveries, it is deleted at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakerunner.api.push.events import WatchedBucket
from lakerunner.model.errors import UserError
from lakerunner.model.notification import created_objects
from lakerunner.services import meters
from lakerunner.services.logs import Log

POISON_RECEIVES = 5
_STEP_SECONDS = 1.0

log = Log("queue")


@dataclass(frozen=True)
class Message:
    """A message of a queue. `receipt` deletes it; `receives` counts its deliveries, this one included, None if the
    queue does not count."""

    id: str
    receipt: str
    body: str
    receives: int | None


class Queue(Protocol):
    """A queue with notifications of a store. Calls raise Unavailable if it cannot be reached or refuses access."""

    @property
    def name(self) -> str:
        """Return the name for health and logs, without secrets."""

    @property
    def provider(self) -> str:
        """Return whose notifications it holds: one of PROVIDERS in model/notification.py."""

    def receive(self) -> list[Message]:
        """Return some messages. If the queue has long polls, wait for one; return an empty list in the end."""

    def event(self, message: Message) -> object:
        """Return the notification in a message; UserError if it has none."""

    def delete(self, messages: Sequence[Message]) -> None:
        """Delete messages, so that they are not delivered again. One that is gone already is not an error."""


class QueueDoor:
    """The loop of a queue. `announce` takes keys and returns when they are recorded."""

    def __init__(
        self, queue: Queue, announce: Callable[[list[str]], int], notified: WatchedBucket, stopping: threading.Event
    ) -> None:
        self._queue = queue
        self._announce = announce
        self._notified = notified
        self._stopping = stopping
        self._polling: _Polling | None = None

    def step(self) -> None:
        """Take what has come. Returns within about a second, so that the process can stop; a long poll continues in its
        thread."""
        polling = self._polling = self._polling or _Polling(self._queue.receive)
        if not polling.done.wait(_STEP_SECONDS):
            return
        self._polling = None
        messages = polling.messages()
        if messages:
            self.take(messages)
        elif polling.seconds < _STEP_SECONDS:  # this queue has no long poll: pause here
            self._stopping.wait(_STEP_SECONDS)

    def take(self, messages: Sequence[Message]) -> None:
        """Record the objects that these messages name, then delete the messages."""
        keys: dict[str, None] = {}
        finished: list[Message] = []
        for message in messages:
            try:
                found = created_objects(self._queue.provider, self._queue.event(message))
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
        """Count a message that is not a notification; return whether to delete it. Its body is not logged: it may hold
        anything."""
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
    """One call of `receive` in a thread that need not be joined: messages that it receives and that are not taken are
    delivered again by the queue."""

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
