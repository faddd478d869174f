"""Types (plan/scan.py) as the engine gets them: bound by DuckDB in a sandbox."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from uuid import UUID

from lakerunner.query.contract.failures import Limits
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sql import BoundTypes, Syntax


@cache
def bound_types() -> BoundTypes:
    directory = Path(tempfile.mkdtemp(prefix="lakerunner-types-"))
    return Syntax(Sandboxes(Limits("500MB", 60.0, 1000), threads=1, spill_directory=directory)).types(UUID(int=1))
