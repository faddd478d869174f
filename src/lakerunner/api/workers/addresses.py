"""Where query workers are: the setting `workers` as base URLs, looked up again as time goes by.

    http://a:7080,https://b    these
    dns://name:7080            every address of a name (api/workers/dns.py)
    k8s://namespace/name:7080  the ready endpoints of a Kubernetes service (api/workers/k8s.py)

Entries are separated by commas; all that they name are known. What always holds: a lookup that fails, or takes long,
changes nothing: what was known before is still the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Lock, Thread

from lakerunner.api.workers.dns import dns_lookup
from lakerunner.api.workers.k8s import k8s_lookup
from lakerunner.model.errors import LakerunnerError, UserError, full_message

Lookup = Callable[[], Sequence[str]]
_EVERY_SECONDS = 5.0
_logger = logging.getLogger("lakerunner.api.addresses")


def these(entry: str) -> Lookup:
    url = entry.rstrip("/")
    return lambda: [url]


# By scheme: what makes a lookup of an entry. UserError if the entry cannot be read. A lookup gives host:port addresses
# as URLs and raises Unavailable if it cannot say.
WAYS: dict[str, Callable[[str], Lookup]] = {"http": these, "https": these, "dns": dns_lookup, "k8s": k8s_lookup}


def lookups(setting: str) -> list[Lookup]:
    """One for each entry of the setting; UserError for a scheme that is not one of WAYS."""
    entries = [entry.strip() for entry in setting.split(",") if entry.strip()]
    made = []
    for entry in entries:
        scheme = entry.partition("://")[0]
        if "://" not in entry or scheme not in WAYS:
            raise UserError(
                f"setting workers: {entry!r} is not valid: write one of {', '.join(f'{way}://...' for way in WAYS)}"
            )
        made.append(WAYS[scheme](entry))
    return made


class Addresses:
    """What the lookups gave last. The first answer is waited for; later ones come while the old one is still given.
    Safe to use from many threads."""

    def __init__(self, lookups: Sequence[Lookup], clock: Callable[[], float] = time.monotonic) -> None:
        self._lookups = [_Kept(lookup, clock) for lookup in lookups]

    def here(self) -> list[str]:
        """Sorted, each once. Unavailable if a lookup has failed and never gave anything."""
        return sorted({url for kept in self._lookups for url in kept.here()})


class _Kept:
    def __init__(self, lookup: Lookup, clock: Callable[[], float]) -> None:
        self._lookup = lookup
        self._clock = clock
        self._lock = Lock()
        self._known: Sequence[str] | None = None
        self._looked = 0.0
        self._looking = False

    def here(self) -> Sequence[str]:
        with self._lock:
            if self._known is None:
                self._known, self._looked = self._lookup(), self._clock()
            elif self._clock() - self._looked >= _EVERY_SECONDS and not self._looking:
                self._looking = True
                Thread(target=self._look_again, name="worker-lookup", daemon=True).start()
            return self._known

    def _look_again(self) -> None:
        found: Sequence[str] | None = None
        try:
            found = self._lookup()
        except LakerunnerError as error:
            _logger.warning("lookup of query workers failed, using the ones known before: %s", full_message(error))
        finally:
            with self._lock:
                self._known = self._known if found is None else found
                self._looked, self._looking = self._clock(), False
