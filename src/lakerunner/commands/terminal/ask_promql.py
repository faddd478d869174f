"""Run a PromQL query and show its answer as a plot, a table, JSON or CSV.

Points arrive as server-sent events, which end with `done` or `error`: an answer that breaks off is an error, never a
short answer. Exit codes are those of `lakerunner sql`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import click
import orjson

from lakerunner.api.time_range import time_range
from lakerunner.commands.terminal.ask_sql import INCOMPLETE, say
from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import (
    AnswerEnd,
    OnProgress,
    broken_off,
    error_text,
    progress_bar,
    warn,
)
from lakerunner.commands.terminal.show_series import (
    Answer,
    Series,
    dot_columns,
    fitting_step,
    iso_ms,
    page_width,
    show_series,
)
from lakerunner.model.display import escape_controls, for_terminal
from lakerunner.model.errors import LakerunnerError, UserError, error_from_body
from lakerunner.model.time import MS_NS
from lakerunner.query.read_lines import read_lines

FORMS = ("plot", "table", "json", "csv")

_NOT_NAMES = re.compile(r"""\{[^}]*\}|\[[^\]]*\]|"[^"]*"|'[^']*'|\b(?:by|without|on|ignoring)\s*\([^)]*\)""")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CLOSE = 0.75


@dataclass(frozen=True)
class Question:
    """The options of the command. `start` and `end` are times of the native API; `step` "" means one that fits;
    `instant`: evaluate at `end` only."""

    text: str
    start: str = ""
    end: str = ""
    step: str = ""
    instant: bool = False
    partial: bool = False
    raw: bool = False
    explain: bool = False
    plan: bool = False
    analyze: bool = False
    engine: str = "duckdb"

    def body(self, now_ns: int, columns: int) -> dict[str, Any]:
        """Return the body of the request. Relative times are resolved here, so that the plot knows its ends. `columns`
        is the number of points there is room for, at whole steps; 0: the server chooses."""
        if not self.text.strip():
            raise UserError("the query is empty: write PromQL, such as up")
        names = ("--start", "--time" if self.instant else "--end")
        time = time_range(dict(zip(names, (self.start, self.end), strict=True)), now_ns, names)
        start, end = time.start_ns // MS_NS, time.end_ns // MS_NS
        fields: dict[str, Any] = {"q": self.text, "instant": self.instant, "partial": self.partial}
        fields |= {"tier": "raw"} if self.raw else {}
        fields |= {"explain": True} if self.explain else {}
        fields |= {"engine": self.engine} if self.engine != "duckdb" else {}
        if self.step:
            fields["step"] = self.step
        elif columns and not self.instant:
            seconds = fitting_step(end - start, columns)
            fields["step"] = f"{seconds}s"
            start, end = start - start % (1000 * seconds), end - end % (1000 * seconds)
        return fields | {"s": iso_ms(start), "e": iso_ms(max(end, start + 1))}


def ask_promql(client: Client, question: Question, form: str, now_ns: int) -> int:
    """Run the query and show its answer, or an error; return the exit code."""
    try:
        return _ask(client, question, form or ("table" if question.instant else "plot"), now_ns)
    except LakerunnerError as error:
        say(error_text(error, question.text))
        return 1


def _ask(client: Client, question: Question, form: str, now_ns: int) -> int:
    width = page_width()
    body = question.body(now_ns, dot_columns(width) if form == "plot" else 0)
    if question.plan or question.analyze:
        plan = client.explain_promql(body, analyze=question.analyze)
        click.echo("\n".join(escape_controls(line) for line in plan))
        return 0
    if question.explain:
        answered = orjson.loads(client.download_promql(body))
        click.echo("\n".join(escape_controls(line) for line in read_lines(answered["reads"])))
        for warning in answered["warnings"]:
            say(warning)
        return 0 if answered["complete"] else INCOMPLETE
    if form == "json":
        answered = client.download_promql(body)
        sys.stdout.write(for_terminal(answered.decode(), sys.stdout) + "\n")
        return 0 if orjson.loads(answered)["complete"] else INCOMPLETE
    with progress_bar(sys.stderr.isatty()) as on_progress:
        answer = read_answer(client, body, on_progress)
    start, end = (round(datetime.fromisoformat(body[name]).timestamp() * 1000) for name in ("s", "e"))
    show_series(answer, "table" if question.instant and form == "plot" else form, (start, end), width)
    for note in (*answer.notes, *_hints(client, question, answer, body)):
        say(note)
    warn(answer.ended, say)
    return 0 if answer.ended.complete else INCOMPLETE


def _hints(client: Client, question: Question, answer: Answer, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why there are no series, if that can be found out; the answer is right without it."""
    if not answer.series and not answer.texts and answer.ended.complete:
        with suppress(LakerunnerError):
            if hint := metric_hint(question.text, client.metric_names(body["s"], body["e"])):
                yield hint


def metric_hint(query: str, names: Collection[str]) -> str:
    """Return why an answer has no series, or "" if it is not known. `names`: the metrics that have points in the time
    of the query. Prometheus answers with an empty result, and so does our API; the command line shows the reason."""
    if not names:
        return "no series: there are no metrics in this time"
    unknown = [word for word in _NAME.findall(_NOT_NAMES.sub(" ", query)) if word not in names]
    for word in unknown:
        if meant := get_close_matches(word, names, 1, _CLOSE):
            return f"no series: there is no metric {word} in this time. Did you mean {meant[0]}?"
    return ""


def read_answer(client: Client, body: Mapping[str, Any], on_progress: OnProgress) -> Answer:
    answer, by_label = Answer(), dict[str, Series]()
    with client.promql(body) as events:
        for event in events:
            data = event.get("data", {})
            match event["type"]:
                case "result":
                    _take(answer, by_label, data)
                case "progress":
                    on_progress(data["segments_done"], data["segments_total"])
                case "error":
                    raise error_from_body({"kind": data["code"], **data})
                case "done":
                    answer.step_ms = data["step"]
                    answer.notes = [*data["warnings"], *data["infos"]]
                    answer.ended = AnswerEnd(0, data["complete"], tuple(data["missing"]), data["degraded"])
                    return answer
    raise broken_off()


def _take(answer: Answer, by_label: dict[str, Series], data: dict[str, Any]) -> None:
    if "text" in data:
        answer.texts.append(data["text"])
        return
    series = by_label.get(data["label"])
    if series is None:
        series = by_label[data["label"]] = Series(data["label"], data["tags"])
        answer.series.append(series)
    if "histogram" in data:
        series.histograms.append((data["timestamp"], data["histogram"]))
    else:
        series.points.append((data["timestamp"], float(data["value"])))


def parse_question(text: str, options: Mapping[str, Any]) -> Question:
    """Check the options of the command and return them as a Question."""
    start, end, time = (options[name] or "" for name in ("start", "end", "time"))
    instant = bool(options["instant"] or time)
    if instant and (start or options["step"]):
        raise UserError("--instant takes one --time: --start and --step need a range")
    if time and end:
        raise UserError("--time and --end are both given: give only one of them")
    return Question(
        text,
        start,
        time or end,
        options["step"] or "",
        instant,
        options["partial"],
        options.get("raw", False),
        **{name: options.get(name, False) for name in ("explain", "plan", "analyze")},
        engine=options.get("engine", "duckdb"),
    )
