"""What DuckDB makes of a text before it is run: whether it can be parsed, and which columns a SELECT gives.

sqlglot forgives a missing condition or a comma too many, and would change the question without a word; DuckDB, asked
in a sandbox, does not. Answers depend on the text alone and are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lakerunner.lakeql.source import Source
from lakerunner.model.errors import UserError
from lakerunner.plan.scan import Scan
from lakerunner.query.kept import Kept
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.scan import empty_sql

_KEPT_BYTES = 4 << 20  # of texts
_ENTRY_BYTES = 200


class Syntax:
    """Safe to use from many threads."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._known: Kept[tuple[Any]] = Kept(_KEPT_BYTES)

    def check(self, organization: UUID, text: str) -> None:
        """UserError, with the place, unless DuckDB can parse the text as SELECTs."""
        found = self._answer(text, lambda: self._sandboxes.ask(organization, {"do": "syntax", "text": text}))
        if found is None:
            return
        message = f"the query cannot be read: {found['message'].partition(chr(10))[0]}"
        if found["position"] is None:
            raise UserError(message)
        before = text.encode()[: int(found["position"])].decode(errors="ignore")  # DuckDB counts bytes
        raise UserError(message, Source(text).position(len(before)))

    def types(self, organization: UUID) -> BoundTypes:
        """Types (plan/types.py) of SELECTs, bound in this organization's sandbox."""
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
    """What DuckDB makes of a SELECT over a scan, bound to the scan's empty relation: no file is read."""

    syntax: Syntax
    organization: UUID

    def of(self, sql: str, scan: Scan) -> list[tuple[str, str]] | None:
        return self.syntax.columns(self.organization, sql, scan)
