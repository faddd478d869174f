"""The latest sample of each series in Prometheus' text format 0.0.4, as its /federate writes it.

What always holds: numbers are untyped, with their time; a native histogram of custom buckets is a classic one, others
are left out, as the format cannot say them; a series that ended with a stale marker is not there. A series without an
`instance` gets an empty one, so that the scraper does not give it its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from lakerunner.model.labels import NAME, Labels, is_plain_label, is_plain_name, value_of
from lakerunner.promql.selection.staleness import STALE_BITS
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.numerals import number_text
from lakerunner.series.values import Samples

UTF8, UNDERSCORES = "allow-utf-8", "underscores"
_TEXT = "text/plain; version=0.0.4; charset=utf-8; escaping={}"
_INSTANCE = "instance"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_ODD_NAME, _ODD_LABEL = re.compile(r"[^a-zA-Z0-9_:]"), re.compile(r"[^a-zA-Z0-9_]")
_Row = tuple[str, Labels, int, float | Histogram]  # metric, labels, ms, value


def escaping_of(accept: str) -> str:
    """How the client takes names that are not plain."""
    return UTF8 if f"escaping={UTF8}" in accept.replace(" ", "").replace('"', "").lower() else UNDERSCORES


def media_type(escaping: str) -> str:
    return _TEXT.format(escaping)


def exposition(samples: Samples, escaping: str) -> bytes:
    lines: list[str] = []
    last: tuple[str, bool, bool] | None = None
    for name, labels, time, value in sorted(_latest(samples), key=lambda row: row[0]):
        histogram = isinstance(value, Histogram)
        family = name, histogram, isinstance(value, Histogram) and value.reset_hint == ResetHint.GAUGE
        if family != last:
            lines.append(f"# TYPE {_named(name, escaping)} {'histogram' if histogram else 'untyped'}")
            last = family
        lines += (
            _classic(name, labels, time, value, escaping)
            if isinstance(value, Histogram)
            else [f"{_series(name, labels, escaping)} {number_text(value)} {time}"]
        )
    return "".join(f"{line}\n" for line in lines).encode()


def _latest(samples: Samples) -> Iterator[_Row]:
    bits = np.ascontiguousarray(samples.values).view(np.uint64)
    for row, labels in enumerate(samples.labels):
        place = int(samples.offsets[row + 1]) - 1
        name = value_of(labels, NAME)
        if place < samples.offsets[row] or not name:
            continue
        histogram = None if samples.histograms is None else samples.histograms[place]
        if histogram is None:
            if bits[place] != STALE_BITS:
                yield name, labels, int(samples.times[place]), float(samples.values[place])
        elif histogram.is_custom and np.float64(histogram.sum).view(np.uint64) != STALE_BITS:
            yield name, labels, int(samples.times[place]), histogram


def _classic(name: str, labels: Labels, time: int, histogram: Histogram, escaping: str) -> list[str]:
    counts = dict(zip(histogram.positive.indexes.tolist(), histogram.positive.counts.tolist(), strict=True))
    below, lines = 0.0, []
    for index, bound in enumerate(histogram.custom_values):
        below += counts.get(index, 0.0)
        lines.append((f"{name}_bucket", number_text(bound), below))
    lines.append((f"{name}_bucket", "+Inf", histogram.count))
    lines += [(f"{name}_sum", "", histogram.sum), (f"{name}_count", "", histogram.count)]
    return [f"{_series(metric, labels, escaping, le)} {number_text(number)} {time}" for metric, le, number in lines]


def _series(name: str, labels: Labels, escaping: str, le: str = "") -> str:
    inside = [f'{_label(key, escaping)}="{value.translate(_ESCAPED)}"' for key, value in labels if key != NAME]
    inside += [] if value_of(labels, _INSTANCE) else [f'{_INSTANCE}=""']
    inside += [f'le="{le}"'] if le else []
    shown = _named(name, escaping)
    return f"{{{','.join([shown, *inside])}}}" if shown.startswith('"') else f"{shown}{{{','.join(inside)}}}"


def _named(name: str, escaping: str) -> str:
    if is_plain_name(name):
        return name
    return f'"{name.translate(_ESCAPED)}"' if escaping == UTF8 else _underscored(name, _ODD_NAME)


def _label(name: str, escaping: str) -> str:
    if is_plain_label(name):
        return name
    return f'"{name.translate(_ESCAPED)}"' if escaping == UTF8 else _underscored(name, _ODD_LABEL)


def _underscored(name: str, odd: re.Pattern[str]) -> str:
    found = odd.sub("_", name)
    return f"_{found[1:]}" if found[:1].isdigit() else found
