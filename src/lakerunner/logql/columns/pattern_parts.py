"""`| pattern` for a batch of lines: a kernel that finds the literals of a pattern and what stands between them.

Comes in: lines and the stage. Goes out: a column for each named capture, or for those that are wanted. What always
holds: no row is odd, since what a pattern captures is a part of the line as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.logql.columns.extracted import Extracted, extracted, line_bytes, name_bytes, no_spans
from lakerunner.logql.stages.pattern import parser_pattern
from lakerunner.logql.text.syntax import Pattern


def extract_pattern(lines: pa.Array, pattern: Pattern, names: Collection[str] | None = None) -> Extracted:
    """Return the labels that the stage sets, of these names if some are given."""
    parts = parser_pattern(pattern.pattern)
    wanted = [name for name in parts.names if names is None or name in names]
    literals = name_bytes([part for number, part in enumerate(parts.parts) if number not in parts.captures])
    # For each capture in turn the number of its column, -1 if it is not wanted.
    captures = [parts.parts[number][1:-1] for number in sorted(parts.captures)]
    columns = np.array([wanted.index(name) if name in wanted else -1 for name in captures], np.int64)
    data, bounds = line_bytes(lines)
    spans = no_spans(len(wanted), len(lines))
    _pattern_lines(data, bounds, literals, columns, 0 not in parts.captures, spans)
    return extracted(lines, data, wanted, spans, np.zeros(len(lines), np.bool_))


def warm() -> None:
    """Compile the kernel."""
    extract_pattern(pa.array(["GET /"]), Pattern("<method> <path>"))


@njit(cache=True, nogil=True)
def _pattern_lines(data: Any, bounds: Any, literals: Any, columns: Any, starts_with: Any, spans: Any) -> None:
    """Find the captures of each line. `starts_with`: the first literal stands before the first capture."""
    for row in range(len(bounds) - 1):
        at, end = bounds[row], bounds[row + 1]
        if at == end:
            continue
        literal = 0
        if starts_with:
            if _find(data, at, min(end, at + literals.bounds[1]), literals, 0) != at:
                continue
            at += literals.bounds[1]
            literal = 1
        for column in columns:
            is_last = literal + 1 >= len(literals.bounds)
            stop = -1 if is_last else _find(data, at, end, literals, literal)
            if column >= 0:
                spans.starts[column, row], spans.ends[column, row] = at, stop if stop >= 0 else end
                spans.sizes[column, row] = spans.ends[column, row] - at
            if stop < 0:
                break
            at = stop + literals.bounds[literal + 1] - literals.bounds[literal]
            literal += 1


@njit(cache=True, nogil=True)
def _find(data: Any, at: Any, end: Any, literals: Any, number: Any) -> Any:
    """Return where the literal stands first, -1 if it does not."""
    base = literals.bounds[number]
    size = literals.bounds[number + 1] - base
    first = literals.data[base]
    while at + size <= end:
        if data[at] == first:
            place = 1
            while place < size and data[at + place] == literals.data[base + place]:
                place += 1
            if place == size:
                return at
        at += 1
    return -1
