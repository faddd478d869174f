"""DuckDB's view of a text before it runs: whether it can be parsed, and which columns a SELECT gives.

sqlglot accepts a missing condition or a superfluous comma, and would silently change the query; DuckDB, called in a
sandbox, does not. Answers depend on the text alone and are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lakerunner.lakeql.source import QueryText
from lakerunner.model.errors import UserError
from lakerunner.plan.scan import Scan
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.lru import LruCache
from lakerunner.query.segment_cache.relation import empty_sql

_CACHE_BYTES = 4 << 20  # of texts
_ENTRY_BYTES = 200


class Syntax:
    """Safe to use from many threads."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._known: LruCache[tuple[Any]] = LruCache(_CACHE_BYTES)

    def check(self, organization: UUID, text: str) -> None:
        """Raise UserError, with the position, unless DuckDB can parse the text as SELECTs."""
        found = self._answer(text, lambda: self._sandboxes.ask(organization, {"do": "syntax", "text": text}))
        if found is None:
            return
        message = f"the query cannot be read: {found['message'].partition(chr(10))[0]}"
        if found["position"] is None:
            raise UserError(message)
        before = text.encode()[: int(found["position"])].decode(errors="ignore")  # DuckDB counts bytes
        raise UserError(message, QueryText(text).position(len(before)))

    def types(self, organization: UUID) -> BoundTypes:
        """Return the types (plan/scan.py) of SELECTs, bound in this organization's sandbox."""
        return BoundTypes(self, organization)

    def columns(self, organization: UUID, sql: str, scan: Scan) -> list[tuple[str, str]] | None:
        empty = empty_sql(scan)
        request = {"do": "types", "sql": sql, "relation": scan.relation, "empty": empty}
        found = self._answer((sql, empty), lambda: self._sandboxes.ask(organization, request))
        return None if found is None else [(name, type_) for name, type_ in found]

    def _answer(self, key: Any, ask: Callable[[], Any]) -> Any:
        known = self._known.get(key)
        if known is None:
            known = (ask(),)
            self._known.put(key, known, _ENTRY_BYTES + len(str(key)))
        return known[0]


@dataclass(frozen=True)
class BoundTypes:
    """The columns of a SELECT over a scan, bound to the scan's empty relation: no file is read."""

    syntax: Syntax
    organization: UUID

    def of(self, sql: str, scan: Scan) -> list[tuple[str, str]] | None:
        return self.syntax.columns(self.organization, sql, scan)
