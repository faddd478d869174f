"""How long rows are kept, in seconds by signal and frequency: what the setting `retention` says, and before it what an
organization says itself. What is not named is kept for ever."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.model.errors import UserError
from lakerunner.model.tier import RAW, TIER_NAMES
from lakerunner.model.time import SECOND_NS, duration_ns

_FREQUENCIES = {name: tier for tier, name in TIER_NAMES.items() if tier != RAW}


def kept_seconds(
    retention: Mapping[str, str], own: Mapping[tuple[str, int], int | None] | None = None
) -> dict[tuple[str, int], int]:
    """Of `logs=30d,metrics.1h=2y`, as the setting has it."""
    kept: dict[tuple[str, int], int | None] = {}
    for name, text in retention.items():
        signal, dot, tier = name.partition(".")
        length = duration_ns(text)
        if length is None or (dot and tier not in _FREQUENCIES):
            raise UserError(f"setting retention: {name}={text} is not like logs=30d or metrics.1h=2y")
        kept[signal, _FREQUENCIES[tier] if dot else RAW] = length // SECOND_NS
    kept.update(own or {})
    return {of: seconds for of, seconds in kept.items() if seconds is not None}
