"""Why an answer in PromQL has no series: a metric whose name is misspelt, or a time without metrics.

Prometheus answers both with an empty result, and so does our API; the command line shows the reason beside it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

_NOT_NAMES = re.compile(r"""\{[^}]*\}|\[[^\]]*\]|"[^"]*"|'[^']*'|\b(?:by|without|on|ignoring)\s*\([^)]*\)""")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CLOSE = 0.75


def metric_hint(query: str, names: Collection[str]) -> str:
    """Return the reason, or "" if it is not known. `names`: the metrics that have points in the time of the query."""
    if not names:
        return "no series: there are no metrics in this time"
    unknown = [word for word in _NAME.findall(_NOT_NAMES.sub(" ", query)) if word not in names]
    for word in unknown:
        if meant := get_close_matches(word, names, 1, _CLOSE):
            return f"no series: there is no metric {word} in this time. Did you mean {meant[0]}?"
    return ""
