"""Ctrl-C, heard where there is something to stop: it raises KeyboardInterrupt once for each `hear`, and is forgotten
between times, so that no second one, pressed while the first is dealt with, ends what should go on.

`hear` is called inside the `try` that catches it, and `forget` at its end.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    def __init__(self) -> None:
        self._heard = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In the main thread; before and after, Ctrl-C means what it did."""
        before = signal.signal(signal.SIGINT, self._pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def hear(self) -> None:
        self._heard = True

    def forget(self) -> None:
        self._heard = False

    def _pressed(self, _signal: int, _frame: FrameType | None) -> None:
        if self._heard:
            self._heard = False
            raise KeyboardInterrupt
