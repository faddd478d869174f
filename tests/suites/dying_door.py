"""A push door in a process of its own that is killed at a named moment, as the out-of-memory killer would.

python dying_door.py '{"moment": "before put", "lines": ["a"], "index": URL, "store": URL, "options": [...]}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lakerunner.api.push.push_store import PushStore
from lakerunner.index.index import Index
from lakerunner.model.source import Routes
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.services.announce import Announcer
from suites.pushed import LOGS, NOW_NS, requests

SMALL = 60  # an object that closes a key is smaller, one with requests is larger


class Deadly:
    """Something whose calls end the process before or after the named one."""

    def __init__(self, target: Any, moment: str) -> None:
        self._target, self._moment = target, moment

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._target, name)
        return lambda *arguments, **named: self._call(self._name(name, arguments), lambda: call(*arguments, **named))

    def _name(self, name: str, arguments: tuple[Any, ...]) -> str:
        return "close" if name == "put" and len(arguments[1]) < SMALL else name

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        self._die_if(f"before {name}")
        result = call()
        self._die_if(f"after {name}")
        return result

    def _die_if(self, moment: str) -> None:
        if moment == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    order = json.loads(sys.argv[1])
    index = Index.open(order["index"], connections=2)
    store = open_store(StoreAddress(order["store"], tuple((name, value) for name, value in order["options"])))
    announcer = Deadly(Announcer(index, store, Routes().route_of), order["moment"])
    keeper = PushStore(
        Deadly(store, order["moment"]),
        Deadly(index.pushes, order["moment"]),  # type: ignore[arg-type]
        announcer.metas,
        claim_seconds=0,
    )
    print(keeper.keep(LOGS, requests(*order["lines"]), NOW_NS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
