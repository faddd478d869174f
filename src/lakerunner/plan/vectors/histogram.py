"""A native histogram of Prometheus, as a sample of a series: its buckets are float counts.

What always holds: indexes of buckets ascend; a bucket of count zero may or may not stand there and means the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from lakerunner.plan.vectors.arrays import Floats

CUSTOM_BUCKETS = -53  # the schema of histograms whose bounds are listed in `custom_values`


class ResetHint(IntEnum):
    """As in Prometheus' protocol. A gauge histogram may fall; of the others the hint says whether the sample before it
    was counted on from."""

    UNKNOWN = 0
    RESET = 1
    NOT_RESET = 2
    GAUGE = 3


@dataclass(frozen=True, eq=False)
class Buckets:
    """Of schema s, bucket i holds the values of (2^((i - 1) / 2^s), 2^(i / 2^s)]; of custom buckets those of
    (custom_values[i - 1], custom_values[i]], open at both ends."""

    indexes: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    counts: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Histogram:
    schema: int
    count: float
    sum: float
    zero_threshold: float = 0.0
    zero_count: float = 0.0
    positive: Buckets = field(default_factory=Buckets)
    negative: Buckets = field(default_factory=Buckets)
    custom_values: tuple[float, ...] = ()
    reset_hint: ResetHint = ResetHint.UNKNOWN

    @property
    def is_custom(self) -> bool:
        return self.schema == CUSTOM_BUCKETS
