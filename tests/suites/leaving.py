"""A client that asks and goes before it is answered: when, its test says, and no clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def leaving(url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Iterator[None]:
    """Its request is on its way in the block, a POST if it has a body; behind the block it is gone."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=60)) as connection:
        path = f"{parts.path}?{parts.query}"
        if body is None:
            connection.request("GET", path, headers=dict(headers or {}))
        else:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
        yield
