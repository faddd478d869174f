"""Up to when something has expired, as people read it."""

from __future__ import annotations

from lakerunner.model.tier import Expiry, expiry_text
from lakerunner.model.time import SECOND_NS

NOON_NS = 1_704_110_400 * SECOND_NS


def test_it_is_said_in_seconds_and_never_too_early() -> None:
    assert expiry_text(NOON_NS + 1) == "2024-01-01 12:00:00 UTC"  # the row at noon is gone
    assert expiry_text(NOON_NS) == "2024-01-01 12:00:00 UTC"  # the one a nanosecond before
    assert expiry_text(NOON_NS + 2) == "2024-01-01 12:00:01 UTC"


def test_the_last_ms_that_may_be_gone() -> None:
    expiry = Expiry({0: NOON_NS, 10_000: NOON_NS + 1})
    assert (expiry.last_ms(), expiry.last_ms(10_000), expiry.last_ms(60_000)) == (
        NOON_NS // 1_000_000 - 1,
        NOON_NS // 1_000_000,
        None,
    )
