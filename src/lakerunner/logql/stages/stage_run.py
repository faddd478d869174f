"""What a stage is compiled into: a function of a line's time, text and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.logql.stages.hints import NO_HINTS, ParserHints
from lakerunner.logql.stages.line_labels import LineLabels

# Takes the time in ns, the line and its labels, which it may change. Returns the line, None to drop it.
StageRun = Callable[[int, str, LineLabels], str | None]


@dataclass(frozen=True, slots=True)
class StageContext:
    """What all stages of a query share. `now_ns` is the query's instant, for templates."""

    hints: ParserHints = NO_HINTS
    now_ns: int = 0
