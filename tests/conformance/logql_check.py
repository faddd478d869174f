"""Run one case of LogQL in every way that must give the same answer: as it is and, for an instant, as the middle of a
range; and compare the lines of a log query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from conformance.answer import Answer, LogEntry, middle_of, problem_of, problem_of_value, same_histogram
from conformance.logql_script import LogCase, streams_of
from lakerunner.model.labels import labels_text
from lakerunner.series.values import Steps

MINUTE_NS = 60_000_000_000


class LogSubject(Protocol):
    def ask(self, case: LogCase) -> Answer:
        """Return the answer; an `error` in it is the caller's fault. Any other problem is raised."""


def log_problem(case: LogCase, subject: LogSubject) -> str | None:
    """Return what is wrong with the answers to this case; None if nothing is."""
    answer = subject.ask(case)
    if answer.kind == "streams" and answer.error is None and not case.fail:
        return _problem_of_lines(case, answer.entries)
    if case.lines and answer.error is None:
        return f"expected lines, got a {answer.kind}"
    found = problem_of(case, answer)
    if found or not case.instant or answer.error is not None or case.ordered:
        return found
    at = case.steps.start
    ranged = subject.ask(replace(case, steps=Steps(at - MINUTE_NS, at + MINUTE_NS, MINUTE_NS), instant=False))
    if ranged.error is not None:
        return None  # of a line that is in another step's window, or of a function that has no range
    found = problem_of_value(case, middle_of(ranged, at, answer.kind), same_histogram)
    return f"in a range: {found}" if found else None


def _problem_of_lines(case: LogCase, entries: Sequence[LogEntry]) -> str | None:
    if case.series or case.scalar is not None:
        return "expected series, got lines"
    expected, got = (streams_of(tuple(some), by_kind=case.by_kind) for some in (case.lines, entries))
    for labels in dict.fromkeys((*expected, *got)):
        if expected.get(labels) != got.get(labels):
            return f"{labels_text(labels)}: expected {expected.get(labels)}, got {got.get(labels)}"
    return None
