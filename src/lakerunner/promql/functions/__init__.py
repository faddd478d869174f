"""Every function of PromQL. One more is one more row in the table of its file."""

from __future__ import annotations

from lakerunner.plan.vectors.function import Function

FUNCTIONS: dict[str, Function] = {}
