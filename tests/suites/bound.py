"""Types (plan/scan.py) as the engine gets them: bound by DuckDB in a sandbox."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from uuid import UUID

from lakerunner.plan.scan import Types
from lakerunner.query.contract.failures import Limits
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sql import Syntax


@cache
def syntax() -> Syntax:
    directory = Path(tempfile.mkdtemp(prefix="lakerunner-types-"))
    return Syntax(Sandboxes(Limits("500MB", 60.0, 1000), threads=1, spill_directory=directory))


def bound_types() -> Types:
    return partial(syntax().columns, UUID(int=1))
