"""A lake without rules: its segments are never asked for the points of one."""

from __future__ import annotations

from typing import Any


class NoPoints:
    def pick_points(self, *asked: Any) -> Any:
        raise AssertionError(f"points were picked for {asked}")
