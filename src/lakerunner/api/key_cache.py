"""Whom keys stand for, remembered for a short time, so that few requests ask PostgreSQL.

Comes in: a secret. Goes out: its caller, or None for a secret that stands for nobody.

What always holds: an answer is taken without asking for `fresh` seconds only, so a revoked key dies within them and the
time that one question takes, which one request asks for all; while the index is away, a caller that it named before is
let in up to `away` seconds after it did. A secret with an end dies at that end in either case. Secrets are not held,
only their digests, and of these so many: guesses push out guesses, never a caller. Secrets that nobody is known by are
asked for as often as guesses.py allows, and then Busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

from lakerunner.api.guesses import Guesses, client_address
from lakerunner.index.keys import Known, digest
from lakerunner.model.caller import Caller
from lakerunner.model.errors import Unavailable

KNOWN_MAX = 10_000
UNKNOWN_MAX = 1_000
UNKNOWN_SECONDS = 5.0
ASK_AGAIN_SECONDS = 5.0  # while the index is away, one request in so long finds out whether it still is


@dataclass(frozen=True)
class Ages:
    """In seconds, as above."""

    fresh: float
    away: float


@dataclass(frozen=True)
class _Answer:
    known: Known | None
    asked_at: float

    @property
    def caller(self) -> Caller | None:
        return self.known.caller if self.known else None

    def is_good(self, now: float, age: float) -> bool:
        ends = self.known.seconds if self.known else UNKNOWN_SECONDS
        return now - self.asked_at < (age if ends is None else min(age, ends))


class KeyCache:
    """Safe between threads. `find` asks the index; `clock` counts seconds; `guesses` by default as the module says."""

    def __init__(
        self,
        find: Callable[[bytes], Known | None],
        ages: Ages,
        clock: Callable[[], float],
        guesses: Guesses | None = None,
    ) -> None:
        self._find = find
        self._ages = ages
        self._clock = clock
        self._guesses = guesses or Guesses(clock)
        self._lock = threading.Lock()
        self._known: dict[bytes, _Answer] = {}  # oldest answer first, as in the other one
        self._unknown: dict[bytes, _Answer] = {}
        self._asking: set[bytes] = set()
        self._away: Unavailable | None = None
        self._ask_at = 0.0
        self._changes = 0

    def caller(self, secret: str) -> Caller | None:
        """Blocks on the index where it has to. Unavailable if that is away and nothing is remembered, Busy if too many
        secrets that stand for nobody were tried."""
        return self.caller_by(digest(secret))

    def caller_by(self, hashed: bytes) -> Caller | None:
        with self._lock:
            now = self._clock()
            held = self._known.get(hashed) or self._unknown.get(hashed)
            if held is not None and held.is_good(now, self._ages.fresh):
                return held.caller
            if hashed in self._asking and (before := self._fallback(held)):
                return before
            if self._away is not None:
                if now < self._ask_at:
                    return self._fallback(held) or _raise(self._away)
                self._ask_at = now + ASK_AGAIN_SECONDS  # this one asks, and no other meanwhile
            is_guess = hashed not in self._known
            leave = self._guesses.take(client_address.get()) if is_guess else None
            self._asking.add(hashed)
            changes = self._changes
        caller: Caller | None = None
        try:
            caller = self._ask(hashed, now, changes)
            return caller
        except Unavailable as error:
            if leave:
                self._guesses.give_back(leave)
            with self._lock:
                self._away, self._ask_at = error, self._clock() + ASK_AGAIN_SECONDS
            return self._fallback(held) or _raise(error)
        finally:
            if leave and caller:
                self._guesses.give_back(leave)
            with self._lock:
                self._asking.discard(hashed)

    def _ask(self, hashed: bytes, now: float, changes: int) -> Caller | None:
        answer = _Answer(self._find(hashed), now)
        with self._lock:
            self._away = None
            if changes == self._changes:
                self._keep(hashed, answer)
        return answer.caller

    def forget(self, organization: UUID) -> None:
        """Its keys changed: ask again for all of them. What is being asked at this moment is not remembered."""
        with self._lock:
            self._changes += 1
            for hashed, answer in list(self._known.items()):
                if answer.known and answer.known.caller.organization.id == organization:
                    del self._known[hashed]

    def _fallback(self, held: _Answer | None) -> Caller | None:
        return held.caller if held is not None and held.is_good(self._clock(), self._ages.away) else None

    def _keep(self, hashed: bytes, answer: _Answer) -> None:
        for answers in (self._known, self._unknown):
            answers.pop(hashed, None)
        answers, most = (self._known, KNOWN_MAX) if answer.known else (self._unknown, UNKNOWN_MAX)
        answers[hashed] = answer
        if len(answers) > most:
            del answers[next(iter(answers))]


def _raise(error: Unavailable) -> NoReturn:
    """A new one, as many threads may raise it."""
    raise Unavailable(str(error), detail=error.detail) from error
