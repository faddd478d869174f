"""Send hostile bodies to the push doors as A and judge the answers; what is accepted must not stop ingest."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence

import httpx
import pyarrow as pa

from hostile.inputs import Push
from hostile.two_tenants import Fault, TwoTenants

_READ = {"text": lambda text: text.encode(), "hex": bytes.fromhex, "base64": base64.b64decode}


def run_pushes(lake: TwoTenants, given: Sequence[Push]) -> list[Fault]:
    return [fault for one in given for fault in _faults_of(lake, one)]


def body_of(push: Push) -> bytes:
    """Return the bytes to send, packed as the file says."""
    data = _READ[push.written]("".join(push.text.split()) if push.written != "text" else push.text)
    match push.packed:
        case "gzip":
            return gzip.compress(data)
        case "zstd":
            return bytes(pa.compress(data, codec="zstd", asbytes=True))
        case "snappy":
            return bytes(pa.compress(data, codec="snappy", asbytes=True))
    return data


def _faults_of(lake: TwoTenants, push: Push) -> list[Fault]:
    headers = lake.headers(lake.a, "writer") | {"content-type": push.type} | dict(push.headers)
    try:
        response = lake.http.post(push.door, content=body_of(push), headers=headers)
    except httpx.TimeoutException:
        return [Fault(push.place, "no answer: it hangs", push.text)]
    except httpx.HTTPError as error:
        return [] if "closed" in push.expect else [Fault(push.place, f"the connection broke: {error!r}", push.text)]
    return lake.judge(push.place, push.text, push.expect, response)
