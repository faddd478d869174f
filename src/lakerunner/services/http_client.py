"""httpx without its own command line, which imports rich and pygments and would be a third of the time that `lakerunner
promql` takes to start. httpx does without it where it cannot be imported."""

from __future__ import annotations

import sys

sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

import httpx  # noqa: E402 after the line above

__all__ = ["httpx"]
