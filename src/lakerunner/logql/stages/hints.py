"""Which labels the parsers of a query must extract: all of a log query, those that a metric query uses.

Comes in: the names that stages, grouping and unwrap use. Goes out: `ParserHints`, which parsers ask for each key. What
always holds: a parser stops once all required labels are extracted, so that what comes behind them in the line raises
no error; the labels that were extracted are recorded in the line's labels, never here.

Loki also lets parsers drop a line as soon as a later label filter must drop it; it does so only where the answer is
the same, so that is left to the filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakerunner.logql.stages.line_labels import ERROR, EXTRACTED, LineLabels


@dataclass(frozen=True, slots=True)
class ParserHints:
    """Without `required` all labels are extracted, with `no_labels` none. `preserves_errors`: the query names
    `__error__`, so it does not fail on errors of parsers."""

    required: frozenset[str] = frozenset()
    no_labels: bool = False
    preserves_errors: bool = False

    def wants(self, name: str) -> bool:
        return not self.required or name in self.required

    def wants_prefix(self, prefix: str) -> bool:
        """Return whether a label that starts so can be required."""
        return not self.required or any(name.startswith(prefix) for name in self.required)

    def is_met(self, labels: LineLabels) -> bool:
        """Return whether all required labels are extracted."""
        return bool(self.required) and self.required <= labels.extracted

    def skips_parsers(self, labels: LineLabels) -> bool:
        return self.no_labels or self.is_met(labels)


NO_HINTS = ParserHints()


@dataclass(frozen=True, slots=True)
class LabelNeeds:
    """What a metric query needs of a line's labels. `names` are those that its stages read; without `has_labels` its
    series have none."""

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    without: bool = False
    has_labels: bool = True
    unwrap: str = ""


def hints_of(needs: LabelNeeds) -> ParserHints:
    """Return what parsers must extract."""
    names = frozenset(_with_bases((*needs.names, *needs.groups, needs.unwrap)))
    if not needs.has_labels and not names:
        return ParserHints(no_labels=True)
    if needs.has_labels and (needs.without or not needs.groups):
        return NO_HINTS  # any label may be part of the series
    return ParserHints(names, preserves_errors=ERROR in names)


def _with_bases(names: Iterable[str]) -> Iterable[str]:
    """Yield the names, and what `<name>_extracted` is called in the line."""
    for name in filter(None, names):
        yield name
        if base := name.removesuffix(EXTRACTED):
            yield base
