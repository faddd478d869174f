"""The streams that meet a selector.

Comes in: what was stored of a resource. Goes out: its labels, or None. What always holds: a resource is looked at
once, unless there are very many.
"""

from __future__ import annotations

from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matchers, SelectorTest
from lakerunner.model.streams.log_record import ResourceLabels, stored_stream_of
from lakerunner.model.streams.stream_rules import StreamRules

_MAX_KNOWN = 50_000  # resources


class SelectedStreams:
    """Remembers the resources that it was called with."""

    def __init__(self, matchers: Matchers, rules: StreamRules) -> None:
        self._test = SelectorTest(matchers)
        self._stream_of = stored_stream_of(rules)
        self._found: dict[tuple[str, str], ResourceLabels | None] = {}

    def __call__(self, attributes: str, schema_url: str) -> ResourceLabels | None:
        """Return the stream of a resource, None if it does not meet the matchers."""
        key = attributes, schema_url
        if key not in self._found:
            if len(self._found) >= _MAX_KNOWN:
                self._found.clear()
            found = self._stream_of(attributes, schema_url)
            labels: Labels = tuple(found.labels.items())
            self._found[key] = found if self._test(labels) else None
        return self._found[key]
