"""What rates of samples and rates of windows have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.model.labels import NAME, TYPE, Labels
from lakerunner.promql.selection.sample_notes import perhaps_no_counter
from lakerunner.series.arrays import Bools
from lakerunner.series.expression import Span
from lakerunner.series.grouping import grouped
from lakerunner.series.notes import Notes


def range_seconds(range_: int) -> float:
    """Whole seconds and the rest apart, as Prometheus adds them up."""
    return float(range_ // 1000) + range_ % 1000 * 1_000_000 / 1e9


def check_counters(labels: Sequence[Labels], floats: Bools, notes: Notes, span: Span) -> None:
    """Say of which series with such samples it seems that they are no counters. Series of one name and type are judged
    alike."""
    groups = grouped(labels, (NAME, TYPE), without=False)
    for group in np.unique(groups.of[floats.any(axis=1)]).tolist():
        perhaps_no_counter(notes, groups.labels[group], span)
