"""Query workers by Kubernetes: the ready endpoints of a service, from its EndpointSlices.

The API server is called as pods do it: with the token and the certificate authority of the service account of the pod,
which needs permission to list `endpointslices` in that namespace. The token is read each time: Kubernetes replaces it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lakerunner.api.workers.dns import urls_of
from lakerunner.model.errors import Unavailable, UserError

_ENTRY = re.compile(r"k8s://(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9-]+):(?P<port>\d{1,5})/?")
_SECONDS = 5.0


@dataclass(frozen=True)
class Cluster:
    """Where the API server is, and the directory with `token` and, for https, `ca.crt`."""

    url: str = "https://kubernetes.default.svc"
    account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")


IN_CLUSTER = Cluster()


def k8s_lookup(entry: str, cluster: Cluster = IN_CLUSTER) -> Callable[[], Sequence[str]]:
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
    answer = httpx.get(cluster.url + path, params=wanted, headers=headers, verify=verify, timeout=_SECONDS)
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
