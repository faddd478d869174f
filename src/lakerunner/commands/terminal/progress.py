"""How far a command has come, for people who wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console

_SAY_SECONDS = 10.0  # between two lines, where there is no terminal


@contextmanager
def progress(errors: TextIO) -> Iterator[Callable[[str], None]]:
    """One line that changes, on a terminal; elsewhere a line every now and then."""
    if errors.isatty():
        with Console(file=errors).status("") as status:
            yield status.update
        return
    last = time.monotonic()

    def say(sentence: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SAY_SECONDS:
            last = time.monotonic()
            errors.write(f"{sentence}\n")
            errors.flush()

    yield say
