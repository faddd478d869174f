"""Run one process from settings: open its parts, serve, wait for a signal, stop in order."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakerunner.model.errors import LakerunnerError
from lakerunner.model.failpoint import arm
from lakerunner.objects.open import open_store
from lakerunner.services.ground import store_address
from lakerunner.services.home import Home, make_private, refuse_half_restored
from lakerunner.services.meters import SECONDS, Reporter
from lakerunner.services.parts import Parts, open_parts
from lakerunner.services.preflight import WORKER
from lakerunner.services.processes import PARTS, Routes, serve, worker_routes
from lakerunner.services.renewal import load_certificate, renew_by
from lakerunner.services.runtime import Runtime
from lakerunner.services.warm import compile_aside
from lakerunner.settings import Settings

# A thread that computes, such as one that compiles SQL, gives way after this: with Python's 5 ms each of the twenty or
# so waits of another query would end up to 5 ms late.
_SWITCH_SECONDS = 0.0005
# Doors (query-api, pubsub) open last, when all behind them is ready, and close first.
UP = ("ingest", "compact", "rollup", "materialize", "boxer", "sweeper", "query-api", "pubsub")


class Screen(Protocol):
    """What a person sees of a process: one line of progress while it starts, where it serves, and its end."""

    def progress(self, sentence: str) -> None: ...

    def ready(self, settings: Settings, names: Sequence[str], url: str, doors: Mapping[str, str]) -> None: ...

    def show(self, text: str) -> None: ...

    def report(self, text: str) -> None:
        """Write a line about work in the background. A terminal does not get it: another line may be in progress."""
        ...

    def clear(self) -> None:
        """Remove the line of progress before something else writes."""
        ...


def run_parts(
    settings: Settings, names: Sequence[str], screen: Screen, then: Callable[[Parts, str], bool] | None = None
) -> int:
    """Run these parts as one process until a signal, and return the exit code. `then` is called with the base URL once
    everything is up; when it returns the process stops, with exit code 1 if it returned False."""
    with _running("up" if len(names) > 1 else names[0], screen) as process:
        runtime = process.runtime
        refuse_half_restored(settings.home)
        compile_aside(runtime, names, screen.show, screen.report)
        make_private(settings.home, embedded=not settings.database_url)
        arm(settings.failpoint)
        certificate = load_certificate(settings)
        home = _home(settings, runtime) if "query-api" in names else None
        if certificate:
            renew_by(runtime, certificate, home.show_certificate if home else None)
        parts = open_parts(settings, runtime, process.step, home.token if home else "", certificate)
        runtime.every(
            "summary", SECONDS, Reporter(names).report
        )  # before the others: its first step takes a second, and readiness waits
        routes: Routes = []
        for name in names:
            process.step(f"starting {name}")
            routes += PARTS[name](parts, process.step)
        url = serve(settings, runtime, routes, certificate).url
        if home:
            home.announce(url)
        process.ready(settings, names, url, parts.doors)
        if then is None:
            runtime.wait()
        elif not then(parts, url):
            process.code = 1
    return process.code


def run_worker(settings: Settings, screen: Screen) -> int:
    """Run a query worker, which needs the object store and nothing else; return the exit code."""
    with _running(WORKER, screen) as process:
        compile_aside(process.runtime, [WORKER], screen.show, screen.report)
        make_private(settings.home, embedded=False)
        certificate = load_certificate(settings)
        if certificate:
            renew_by(process.runtime, certificate)
        process.runtime.every("summary", SECONDS, Reporter([WORKER]).report)
        store = open_store(store_address(settings))
        routes = worker_routes(settings, store, process.runtime.stopping)
        url = serve(settings, process.runtime, routes, certificate).url
        process.ready(settings, [WORKER], url, {})
        process.runtime.wait()
    return process.code


class _Stopped(Exception):
    """A signal came while the process was starting."""


class _Process:
    """A runtime, and what a person sees of it."""

    def __init__(self, name: str, screen: Screen) -> None:
        self.runtime = Runtime(name)
        self.screen = screen
        self.code = 0

    def step(self, sentence: str) -> None:
        """Show the next step of the start. _Stopped if a signal came meanwhile."""
        if self.runtime.stopping.is_set():
            raise _Stopped
        self.screen.progress(sentence)

    def ready(self, settings: Settings, names: Sequence[str], url: str, doors: Mapping[str, str]) -> None:
        """Report that everything is up. What is loaded by now stays, so it is frozen: a full garbage collection, which
        stops all threads, would otherwise visit its 180,000 objects every time, for 90 ms."""
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.runtime.log.milestone("ready", url=url)
        self.screen.ready(settings, names, url, doors)


@contextmanager
def _running(name: str, screen: Screen) -> Iterator[_Process]:
    process = _Process(name, screen)
    process.runtime.catch_signals()
    try:
        yield process
    except _Stopped:
        pass
    except LakerunnerError:
        if not process.runtime.stopping.is_set():  # otherwise the stop itself caused the error
            raise
    finally:
        process.screen.clear()
        process.code = max(process.code, process.runtime.shut_down())
    process.screen.show("stopped")


def _home(settings: Settings, runtime: Runtime) -> Home:
    home = Home(settings.home)
    runtime.defer("home", home.close)
    return home
