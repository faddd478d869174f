"""Where query workers are: the setting `workers` as base URLs, looked up again as time goes by.

    http://a:7080,https://b    these
    dns://name:7080            every address of a name, such as that of a headless service; the IPv4 ones of a name with
                               addresses of both families, so that each worker is known once
    k8s://namespace/name:7080  the ready endpoints of a Kubernetes service, from its EndpointSlices

Entries are separated by commas; all that they name are known. What always holds: a lookup that fails, or takes long,
changes nothing: what was known before is still the answer.

The API server of Kubernetes is called as pods do it: with the token and the certificate authority of the service
account of the pod, which needs permission to list `endpointslices` in that namespace. The token is read each time:
Kubernetes replaces it.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

import httpx

from lakerunner.model.errors import LakerunnerError, Unavailable, UserError, full_message

Lookup = Callable[[], Sequence[str]]
_EVERY_SECONDS = 5.0
_ENTRY = re.compile(r"k8s://(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9-]+):(?P<port>\d{1,5})/?")
_K8S_SECONDS = 5.0
_logger = logging.getLogger("lakerunner.api.addresses")


def these(entry: str) -> Lookup:
    url = entry.rstrip("/")
    return lambda: [url]


def dns_lookup(entry: str) -> Lookup:
    """`dns://name:port`."""
    try:
        url = urlsplit(entry)
        name, port = url.hostname, url.port
    except ValueError:
        name = port = None
    if not name or not port:
        raise UserError(f"setting workers: {entry!r} is not valid: write dns://name:port")

    def look() -> Sequence[str]:
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError as error:
            detail = f"name {name} has no address: {error.strerror}"
            raise Unavailable("cannot look up query workers", detail=detail) from error
        return urls_of([str(one[4][0]) for one in found], port)

    return look


def urls_of(addresses: Sequence[str], port: int) -> list[str]:
    """Of IPv4 addresses, or if there are none of IPv6; each once, in order."""
    known = sorted({ip_address(address.partition("%")[0]) for address in addresses}, key=str)
    first = min((address.version for address in known), default=4)
    return [
        f"http://{address}:{port}" if first == 4 else f"http://[{address}]:{port}"
        for address in known
        if address.version == first
    ]


@dataclass(frozen=True)
class Cluster:
    """Where the API server is, and the directory with `token` and, for https, `ca.crt`."""

    url: str = "https://kubernetes.default.svc"
    account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")


IN_CLUSTER = Cluster()


def k8s_lookup(entry: str, cluster: Cluster = IN_CLUSTER) -> Lookup:
    """`k8s://namespace/service:port`; the port is that of the pods."""
    given = _ENTRY.fullmatch(entry)
    if not given:
        raise UserError(f"setting workers: {entry!r} is not valid: write k8s://namespace/service:port")
    path = f"/apis/discovery.k8s.io/v1/namespaces/{given['namespace']}/endpointslices"
    wanted = {"labelSelector": f"kubernetes.io/service-name={given['service']}"}
    port = int(given["port"])

    def look() -> Sequence[str]:
        try:
            return urls_of(_ready(_asked(cluster, path, wanted)), port)
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                "cannot look up query workers",
                detail=f"cannot list the endpoints of {entry}: {error}. Check that the pod's service account "
                "may list endpointslices there",
            ) from error

    return look


def _asked(cluster: Cluster, path: str, wanted: dict[str, str]) -> dict[str, Any]:
    token = (cluster.account / "token").read_text().strip()
    https = cluster.url.startswith("https")
    verify = ssl.create_default_context(cafile=str(cluster.account / "ca.crt")) if https else False
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.get(cluster.url + path, params=wanted, headers=headers, verify=verify, timeout=_K8S_SECONDS)
    if answer.status_code != 200:
        raise ValueError(f"the API server returned {answer.status_code}")
    listed: dict[str, Any] = answer.json()
    return listed


def _ready(listed: dict[str, Any]) -> list[str]:
    """The first address of each endpoint that is ready; one that does not say is."""
    return [
        endpoint["addresses"][0]
        for piece in listed["items"]
        if piece["addressType"] in ("IPv4", "IPv6")
        for endpoint in piece.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]


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
