"""The one runtime of every process: loops in threads, health, signals, ordered shutdown.

A service gives the runtime loops (a step called again and again) and things to close. The runtime stops on SIGINT or
SIGTERM, or when a loop fails for good; it ends the loops first, all at once, then closes what was opened, last
opened first. A step that raises Unavailable is retried with growing pauses; any other exception is a bug: it is
logged with its trace and stops the process with exit code 1, because a process that runs in part hides the fault.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from lakerunner.api.app import Health
from lakerunner.model.errors import Unavailable, full_message
from lakerunner.services.logs import Log

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0
_JOIN_SECONDS = 20.0


class Runtime:
    def __init__(self, name: str) -> None:
        self.health = Health()
        self.stopping = threading.Event()
        self.log = Log(name)
        self._failed = False
        self._threads: list[threading.Thread] = []
        self._interrupts: list[Callable[[], None]] = []
        self._closers: list[tuple[str, Callable[[], None]]] = []

    @property
    def loops(self) -> set[str]:
        return {thread.name for thread in self._threads}

    def loop(self, name: str, step: Callable[[], None]) -> None:
        """Call step until the process stops. A step returns within a second or so when there is nothing to do."""
        self.health.starting(name)
        thread = threading.Thread(target=self._run, args=(name, step), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def every(self, name: str, seconds: float, do: Callable[[], object], *, first: float | None = None) -> None:
        """Call `do` at this interval until the process stops, the first time after `first` seconds, by default one
        interval."""
        self.loop(name, Every(seconds, do, time.monotonic, self.stopping.wait, first).step)

    def on_stop(self, interrupt: Callable[[], None]) -> None:
        """Call this as soon as the process begins to stop, to cut long work short."""
        self._interrupts.append(interrupt)

    def defer(self, name: str, close: Callable[[], None]) -> None:
        """Close this at the end, after everything opened later."""
        self._closers.append((name, close))

    def catch_signals(self) -> None:
        """Let SIGINT and SIGTERM stop the process in order; a second one ends it at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def wait(self) -> None:
        """Wait until something stops the process."""
        while not self.stopping.wait(0.5):
            pass

    def shut_down(self) -> int:
        """End loops, close everything in order, and return the exit code."""
        self.stopping.set()
        for interrupt in self._interrupts:
            self._quietly("interrupt", interrupt)
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.log.warning("loop did not end in time", loop=thread.name)
        for name, close in reversed(self._closers):
            self._quietly(name, close)
        self.log.milestone("stopped")
        return 1 if self._failed else 0

    def fail(self, part: str, reason: str) -> None:
        """Stop the process because a part has failed for good."""
        self._failed = True
        self.health.fail(part, reason)
        self.stopping.set()

    def _quietly(self, name: str, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:  # noqa: BLE001 - shutdown goes on whatever one part says; it is reported
            self.log.warning("part did not close cleanly", part=name, error=str(error))

    def _run(self, name: str, step: Callable[[], None]) -> None:
        pause = _FIRST_PAUSE
        while not self.stopping.is_set():
            try:
                step()
            except Unavailable as error:
                if self.stopping.is_set():
                    return
                self.health.waiting(name, str(error))
                self.log.warning(
                    "waiting for a dependency", loop=name, error=full_message(error), seconds=round(pause, 1)
                )
                self.stopping.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001 - a bug: reported with its trace, and the process stops
                if self.stopping.is_set():
                    self.log.debug("loop ended with an error while stopping", loop=name, error=str(error))
                    return
                self.log.error("loop failed", trace=True, loop=name)
                self.fail(name, str(error))
            else:
                pause = _FIRST_PAUSE
                self.health.well(name)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.stopping.is_set():
            raise SystemExit(128 + number)
        self.stopping.set()


class Every:
    """A step that acts at an interval, the first time after `first` seconds (one interval by default), and otherwise
    waits a little. `clock` returns monotonic seconds; `wait` sleeps, and is woken when the process stops."""

    def __init__(
        self,
        seconds: float,
        do: Callable[[], object],
        clock: Callable[[], float],
        wait: Callable[[float], object],
        first: float | None = None,
    ) -> None:
        self._seconds = seconds
        self._do = do
        self._clock = clock
        self._wait = wait
        self._next = clock() + (seconds if first is None else first)

    def step(self) -> None:
        if self._clock() >= self._next:
            self._do()
            self._next = self._clock() + self._seconds
        self._wait(min(1.0, self._seconds))
