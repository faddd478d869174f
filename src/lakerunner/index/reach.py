"""Whether the server can be reached, so that only the first to find it gone waits for it.

Comes in: that a wait for the server was in vain. Goes out: Unavailable, at once, for whoever wants the server then,
until it answers a probe. What always holds: a server that answers probes is never called away, however busy it is;
while it is away, one caller in PROBE_SECONDS probes, in its own time, and no other waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from lakerunner.model.errors import Unavailable

PROBE_SECONDS = 1.0


class Reach:
    """Safe to use from many threads. `answers` is the probe; `clock` counts seconds; `server` names it in messages."""

    def __init__(self, server: str, answers: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._server = server
        self._answers = answers
        self._clock = clock
        self._lock = Lock()
        self._probe_at: float | None = None  # None while the server is there, as far as is known

    def check(self) -> None:
        """Unavailable if the server is away."""
        with self._lock:
            if self._probe_at is None:
                return
            probes = self._clock() >= self._probe_at
            if probes:
                self._probe_at = self._clock() + PROBE_SECONDS
        if not probes or not self._found():
            raise Unavailable(f"{self._server} is away: it does not answer")

    def missed(self) -> None:
        """A wait was in vain: is the server away, or only busy?"""
        self._found()

    def _found(self) -> bool:
        answered = self._answers()
        with self._lock:
            self._probe_at = None if answered else self._clock() + PROBE_SECONDS
        return answered
