"""One process from settings: put its parts together, serve, wait for a signal, stop in order."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakerunner.model.failpoint import arm
from lakerunner.objects.open import open_store
from lakerunner.services.ground import Say, store_address
from lakerunner.services.home import Home, make_private
from lakerunner.services.parts import Parts, open_parts
from lakerunner.services.processes import PARTS, Routes, serve, worker_routes
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings

# Doors open last, when all behind them is ready, and close first.
# A thread that computes, such as one that compiles SQL, gives way after this: with Python's 5 ms each of the twenty or
# so waits of another query would end up to 5 ms late.
_SWITCH_SECONDS = 0.0005
UP = ("ingest", "compact", "rollup", "boxer", "sweeper", "query-api", "pubsub")


def run_parts(
    settings: Settings, names: Sequence[str], say: Say, then: Callable[[Parts, str], bool] | None = None
) -> int:
    """Run these parts as one process until a signal; the exit code. `then` is called once all is up, with the
    base URL; when it returns the process stops, with exit code 1 if it returned False."""
    with _running("up" if len(names) > 1 else names[0]) as (runtime, code):
        make_private(settings.home, embedded=not settings.database_url)
        arm(settings.failpoint)
        home = _home(settings, runtime) if "query-api" in names else None
        parts = open_parts(settings, runtime, say, home.token if home else "")
        routes: Routes = [route for name in names for route in PARTS[name](parts, say)]
        url = serve(settings, runtime, routes).url
        if home:
            home.announce(url)
        _ready(runtime, url, say)
        if then is None:
            runtime.wait()
        elif not then(parts, url):
            code.append(1)
        say("stopping")
    return max(code)


def run_worker(settings: Settings, say: Say) -> int:
    """A query worker: it needs the object store and nothing else."""
    with _running("query-worker") as (runtime, code):
        make_private(settings.home, embedded=False)
        store = open_store(store_address(settings))
        url = serve(settings, runtime, worker_routes(settings, store)).url
        _ready(runtime, url, say)
        runtime.wait()
    return max(code)


@contextmanager
def _running(name: str) -> Iterator[tuple[Runtime, list[int]]]:
    runtime = Runtime(name)
    runtime.catch_signals()
    code = [0]
    try:
        yield runtime, code
    finally:
        code.append(runtime.shut_down())


def _ready(runtime: Runtime, url: str, say: Say) -> None:
    """What is loaded by now stays. A full collection of garbage, in which no thread goes on, would look at it every
    time: at 180,000 objects, for 90 ms."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    runtime.log.info("ready", url=url)
    say(f"ready at {url}")


def _home(settings: Settings, runtime: Runtime) -> Home:
    home = Home(settings.home)
    runtime.defer("home", home.close)
    return home
