"""Load the certificate of a process (api/tls.py) from settings and renew it: new files at the same paths are used
within seconds, for new connections. If they cannot be used, that is logged, and the previous certificate stays in
force."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from lakerunner.api.tls import Certificate
from lakerunner.model.errors import UserError
from lakerunner.services import meters
from lakerunner.services.logs import Log
from lakerunner.services.runtime import Runtime
from lakerunner.settings import Settings

LOOK_SECONDS = 5.0
_DAY_SECONDS = 86_400.0
_SOON_SECONDS = 7 * _DAY_SECONDS

log = Log("tls")


def load_certificate(settings: Settings) -> Certificate | None:
    """Return the certificate of the settings; None if they name none, or only half of it (settings.py reports that).
    UserError if it cannot be used."""
    if not settings.tls_certificate or not settings.tls_key:
        return None
    return Certificate(Path(settings.tls_certificate).expanduser(), Path(settings.tls_key).expanduser())


def renew_by(runtime: Runtime, certificate: Certificate, show: Callable[[bytes], None] | None = None) -> None:
    """Look for new files while the process runs. `show` is called with the certificate, now and whenever it changes."""
    renewal = Renewal(certificate, show or (lambda _chain: None))
    renewal.report()
    runtime.every("certificate", LOOK_SECONDS, renewal.look)


class Renewal:
    """The loop that looks for new files. `clock` returns seconds since 1970."""

    def __init__(
        self, certificate: Certificate, show: Callable[[bytes], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._certificate = certificate
        self._show = show
        self._clock = clock
        self._warned = -math.inf

    def look(self) -> None:
        try:
            if self._certificate.renew():
                self.report()
                log.info("certificate renewed", expires=_moment(self._certificate.pair.expires))
        except UserError as error:
            log.error("the new certificate cannot be used; the previous one stays in force", reason=str(error))
        except OSError as error:
            log.error("the new certificate cannot be shown to commands of this home", reason=str(error))
        self._warn()

    def report(self) -> None:
        """Show the certificate, and warn of what is wrong with it."""
        self._show(self._certificate.pair.chain)
        meters.CERTIFICATE_EXPIRES.set(self._certificate.pair.expires)
        if self._certificate.key_is_open:
            log.warning("every user of this machine may read the file of tls_key: chmod 600")
        self._warned = -math.inf
        self._warn()

    def _warn(self) -> None:
        """Warn about its dates, once a day. An expired certificate is still served: it may be renewed at any time, and
        work without connections, such as ingest of files, continues."""
        pair, now = self._certificate.pair, self._clock()
        soon = min(_SOON_SECONDS, (pair.expires - pair.begins) / 3)  # some are valid for a day and renewed every night
        if now - self._warned < _DAY_SECONDS:
            return
        if now < pair.begins:
            log.warning("clients refuse the certificate: it is not valid yet", begins=_moment(pair.begins))
        elif now >= pair.expires:
            log.warning("clients refuse the certificate: it has expired", expired=_moment(pair.expires))
        elif now >= pair.expires - soon:
            log.warning("the certificate expires soon", expires=_moment(pair.expires))
        else:
            return
        self._warned = now


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
