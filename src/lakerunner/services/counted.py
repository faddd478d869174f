"""The answer of `lakerunner cardinality`, drawn for a person or as JSON."""

from __future__ import annotations

from typing import Any, TextIO

import orjson

from lakerunner.services.drawn import drawn, for_terminal
from lakerunner.services.show import show_rows

_BARS = " ▁▂▃▄▅▆▇█"
_MOST_BARS = 48


def show_cardinality(answer: dict[str, Any], form: str, output: TextIO) -> None:
    if form == "json":
        output.write(for_terminal(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode(), output) + "\n")
        return
    if "labels" in answer:
        rows = [{**one, "values": one["values"] if one["exact"] else f"~{one['values']}"} for one in answer["labels"]]
        show_rows(("label", "of", "values"), rows, output)
    else:
        rows = [{**one, "by window": bars(one["by_window"])} for one in answer["metrics"]]
        show_rows(("metric", "series", "now", "most", "by window"), rows, output)
    if answer["truncated"]:
        output.write("more metrics exist: raise --limit\n")
    if answer["windows"]:
        first, last = answer["windows"][0]["end"], answer["windows"][-1]["end"]
        output.write(f"windows of {_width(answer['step'])}, ends {first[:19]}Z to {last[:19]}Z; {_tiers(answer)}\n")
        if not answer["windows"][-1]["over"]:
            output.write("the last window is not complete yet; `now` is the one before it\n")
    for warning in answer["warnings"]:
        output.write(f"warning: {drawn(warning)}\n")
    if answer["degraded"]:
        output.write(f"{drawn(answer['degraded'])}\n")


def bars(numbers: list[int]) -> str:
    """One for each, the largest a whole one; of many, the last ones."""
    most = max(numbers, default=0)
    return "".join(_BARS[-(-8 * number // most)] if most else " " for number in numbers[-_MOST_BARS:])


def _tiers(answer: dict[str, Any]) -> str:
    """Counted from what."""
    found = dict.fromkeys(tier for window in answer["windows"] for tier in window["tiers"])
    return "counted from " + ", ".join("points" if tier == "raw" else f"{tier} rollups" for tier in found)


def _width(step_ms: int) -> str:
    for unit, ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if step_ms % ms == 0:
            return f"{step_ms // ms}{unit}"
    return f"{step_ms // 1000}s"
