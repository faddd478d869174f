"""Ask the engine itself for LogQL: lines are ingested into segments on disk, and one worker in this process reads them.

Names of services and levels are not looked for: scripts state every label.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import orjson

from conformance.answer import Answer, LogEntry
from conformance.logql_push import ingested_lines
from conformance.logql_script import LogCase, LogState
from conformance.subject import answered
from lakerunner.api.loki import log_json
from lakerunner.api.loki.log_queries import LogRequest, read_streams
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import Pipeline
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.objects.open import StoreAddress
from lakerunner.query.options import Options
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples
from query.sample_lake import Lake, removed

PLAIN_RULES = StreamRules(service_labels=(), detect_levels=False)


class EngineLogSubject:
    """Each state is an organization of its own in one lake, ingested when it is first asked for. Its lines are in as
    many segments as there are `parts`."""

    def __init__(self, parts: int = 1) -> None:
        self._parts = parts
        self._folder = tempfile.TemporaryDirectory(prefix="logql-scripts-")
        self._lake = Lake(Path(self._folder.name))
        self._engine = self._lake.engine().engine
        self._organizations: dict[LogState, UUID] = {}

    def __enter__(self) -> EngineLogSubject:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._lake.close()
        removed(Path(self._folder.name))  # units that a limit ended may still be giving back their sandboxes

    def ask(self, case: LogCase) -> Answer:
        organization = self._loaded(case.state)
        try:
            question = question_of(case)
            plan = compile_logql(question, question.end_ns)
            answer = self._engine.answer(organization, plan, Options(question.end_ns, text=case.query))
            return _series(case, answer) if isinstance(answer, SeriesAnswer) else _lines(answer, case)
        except UserError as error:
            return Answer(error=error.message)

    def _loaded(self, state: LogState) -> UUID:
        if state not in self._organizations:
            organization = UUID(int=len(self._organizations) + 1)
            address = StoreAddress((self._lake.directory / "store").as_uri())
            self._lake.all += ingested_lines(address, organization, state, self._parts)
            self._organizations[state] = organization
        return self._organizations[state]


def question_of(case: LogCase) -> LogqlQuestion:
    if asks_lines(case):
        return LogqlQuestion(
            case.query,
            case.window.start,
            case.window.end,
            1,
            limit=None if case.interval else case.limit,
            direction=case.direction,
            rules=PLAIN_RULES,
        )
    steps = case.steps
    return LogqlQuestion(case.query, steps.start, steps.end, 0 if case.instant else steps.step, rules=PLAIN_RULES)


def asks_lines(case: LogCase) -> bool:
    try:
        return case.selects or isinstance(parse_logql(case.query), Pipeline)
    except UserError:
        return False


def _series(case: LogCase, answer: SeriesAnswer) -> Answer:
    (group,) = answer
    assert not isinstance(group.value, Samples)
    return answered(group.value, case.steps, Notes({}), case.query, instant=case.instant)


def _lines(answer: Any, case: LogCase) -> Answer:
    """Return the lines of an answer, as the API takes them from it."""
    request = LogRequest(question_of(case), case.limit, case.interval, categorized=True)
    found = (entry for _, entries in read_streams(answer, request).sorted() for entry in entries)
    return Answer("streams", entries=[_entry(one) for one in found])


def _entry(one: log_json.LogEntry) -> LogEntry:
    return LogEntry(one.timestamp, one.line, *map(_labels, (one.stream, one.metadata, one.parsed)))


def _labels(text: str) -> Labels:
    return tuple(sorted(orjson.loads(text).items()))
