"""The named queries of queries/*.sql. A section starts with `-- name: NAME`; its key is `FILE.NAME`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load_queries() -> Mapping[str, bytes]:
    """Every query by its key. What stands in a file before its first name is a comment on all of it."""
    queries: dict[str, bytes] = {}
    for file in (files("lakerunner.index") / "queries").iterdir():
        if not file.name.endswith(".sql"):
            continue
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            key = f"{file.name.removesuffix('.sql')}.{name}"
            if key in queries:
                raise ValueError(f"query {key} stands twice in {file.name}")
            queries[key] = text.strip().encode()
    return queries
