"""Run the demo: write a shop's telemetry as raw OTLP files, ingest it, then ask questions with known answers.

The shop is the same for the same seed and opening time, which `HOME/demo.json` keeps, with how far it was written: a
second run goes on from there. The truth comes from the generator, so every answer of the lake is checked.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from isal import igzip
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lakerunner.commands.terminal.client import Client
from lakerunner.commands.terminal.show import Query, show_rows
from lakerunner.model.errors import UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.signal import METRICS, SIGNALS
from lakerunner.model.source import RAW_PREFIX, SourceState
from lakerunner.model.time import MINUTE_NS, SECOND_NS
from lakerunner.services.ground import now_ns
from lakerunner.services.home import CERTIFICATE
from lakerunner.services.parts import Parts
from lakerunner_demo.shop import Shop, Truth

COLLECTOR = "demo"
_STEP_NS = 10 * SECOND_NS
_PER_FILE_SECONDS = 60
_INGEST_SECONDS = 600


@dataclass(frozen=True)
class Progressed:
    """Which times of the shop of this home were written: windows [start, until), the last one growing. `aim_ns` is
    noted before the window is written up to it, so that a run that was killed is repeated with the same files.
    `points` counts the metric points in the windows."""

    seed: int
    rate: float
    opening_ns: int
    windows: tuple[tuple[int, int], ...]
    aim_ns: int
    points: int

    @property
    def shop(self) -> Shop:
        return Shop(self.seed, self.opening_ns, self.rate)

    @property
    def until_ns(self) -> int:
        return self.windows[-1][1]

    def aimed(self, aim_ns: int) -> Progressed:
        """Return the progress with the next aim, unless the last aim was not reached."""
        return self if self.aim_ns > self.until_ns else replace(self, aim_ns=max(aim_ns, self.until_ns))

    def reached(self, points: int) -> Progressed:
        """Return the progress with the aim reached, and the number of metric points that were written."""
        start, _ = self.windows[-1]
        return replace(self, windows=(*self.windows[:-1], (start, self.aim_ns)), points=self.points + points)

    def truths(self) -> list[Truth]:
        return [self.shop.truth(start, until) for start, until in self.windows]


@dataclass(frozen=True)
class Question:
    """`right` compares the answer's rows with the truth."""

    about: str
    sql: str
    right: Callable[[list[dict[str, Any]], Known], bool]


@dataclass(frozen=True)
class Known:
    """The truth about all windows together."""

    records: dict[str, int]
    errors: dict[str, int]
    spans: dict[str, int]
    points: int

    @classmethod
    def of(cls, state: Progressed) -> Known:
        records: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        spans: Counter[str] = Counter()
        for truth in state.truths():
            spans.update(truth.spans_by_service)
            for (service, severity), count in truth.logs_by_severity.items():
                records[service] += count
                errors[service] += count if severity == "ERROR" else 0
        return cls(dict(records), dict(+errors), dict(+spans), state.points)


QUESTIONS = (
    Question(
        "Which services log most, and which log errors?",
        """select service_name, count(*) as records, count(*) filter (where severity = 'ERROR') as errors
from logs where collector = 'demo' and timestamp < make_timestamp_ns({until})
group by 1 order by errors desc, records desc, 1""",
        lambda rows, known: (
            {row["service_name"]: row["records"] for row in rows} == known.records
            and {row["service_name"]: row["errors"] for row in rows if row["errors"]} == known.errors
        ),
    ),
    Question(
        "When did the errors occur?",
        """select date_trunc('minute', timestamp) as minute, count(*) as errors
from logs where collector = 'demo' and severity = 'ERROR' and timestamp < make_timestamp_ns({until})
group by 1 order by errors desc, 1 limit 5""",
        lambda rows, known: bool(rows) == bool(known.errors),
    ),
    Question(
        "What are the errors?",
        """select fingerprint, service_name, count(*) as times, min(message) as example
from logs where collector = 'demo' and severity = 'ERROR' and timestamp < make_timestamp_ns({until})
group by 1, 2 order by times desc, 1 limit 5""",
        lambda rows, known: (
            bool(rows) == bool(known.errors) and sum(row["times"] for row in rows) <= sum(known.errors.values())
        ),
    ),
    Question(
        "Which services are slow, and whose spans fail?",
        """select service_name, count(*) as spans, count(*) filter (where status_code = 2) as failed,
    round(quantile_cont(duration, 0.95) / 1e6, 1) as p95_ms
from spans where collector = 'demo' and end_timestamp < make_timestamp_ns({until})
group by 1 order by failed desc, spans desc, 1""",
        lambda rows, known: {row["service_name"]: row["spans"] for row in rows} == known.spans,
    ),
    Question(
        "Which metrics are there?",
        """select metric_name, metric_type, unit, count(distinct series) as series, count(*) as points
from metrics where collector = 'demo' and timestamp < make_timestamp_ns({until})
group by 1, 2, 3 order by 1""",
        lambda rows, known: sum(row["points"] for row in rows) == known.points,
    ),
)


@dataclass(frozen=True)
class Demo:
    seed: int
    rate: float
    minutes: int
    once: bool

    def run(self, parts: Parts, url: str) -> bool:
        """Run when the lake is up, until it should stop; return whether every answer was right."""
        console = Console(width=None if sys.stdout.isatty() else 120)
        saved = parts.settings.home / "demo.json"
        state = self._begin(saved, now_ns())
        state = self._write_with_progress(parts, state, saved, console)
        if not self._await_ingest(parts, console):
            return True  # the process is stopping
        right = ask(Client.at_home(parts.settings.home), state, console)
        if self.once or not right:
            return right
        _invite(console, url, parts.settings.home)
        while not parts.runtime.stopping.wait(_STEP_NS / SECOND_NS):
            state = write(parts, state, saved, lambda _files: None)
        return True

    def _begin(self, saved: Path, now: int) -> Progressed:
        start = (now - self.minutes * MINUTE_NS) // _STEP_NS * _STEP_NS
        if not saved.exists():
            return Progressed(self.seed, self.rate, start, ((start, start),), start, 0)
        try:
            found = orjson.loads(saved.read_bytes())
            windows = tuple((first, last) for first, last in found.pop("windows"))
            state = Progressed(windows=windows, **found)
        except (orjson.JSONDecodeError, TypeError, KeyError, ValueError) as error:
            raise UserError(f"{saved} is damaged ({error}): delete it, or choose another --home") from error
        # After a long pause, the time of the pause is skipped and a new window begins.
        paused = state.aim_ns == state.until_ns and state.until_ns < start
        return replace(state, windows=(*state.windows, (start, start)), aim_ns=start) if paused else state

    def _write_with_progress(self, parts: Parts, state: Progressed, saved: Path, console: Console) -> Progressed:
        files = max(1, (now_ns() - state.until_ns) // (_PER_FILE_SECONDS * SECOND_NS)) * len(SIGNALS)
        with _progress(console) as bar:
            task = bar.add_task("writing raw OTLP files", total=files)
            state = write(parts, state, saved, lambda count: bar.update(task, completed=count))
            bar.update(task, total=bar.tasks[task].completed)
        return state

    def _await_ingest(self, parts: Parts, console: Console) -> bool:
        """Wait until everything is ingested; return False if the process should stop."""
        deadline = time.monotonic() + _INGEST_SECONDS
        with _progress(console) as bar:
            task = bar.add_task("ingesting", total=None)
            while not self._all_ended(parts, bar, task):
                if time.monotonic() > deadline:
                    raise UserError(f"ingest did not finish within {_INGEST_SECONDS} s: see the log")
                if parts.runtime.stopping.wait(0.2):
                    return False
        return True

    def _all_ended(self, parts: Parts, bar: Progress, task: TaskID) -> bool:
        raw = sum(1 for _ in parts.store.list(f"{RAW_PREFIX}{DEFAULT_ORGANIZATION.id}/{COLLECTOR}/"))
        counts = parts.index.sources.counts(DEFAULT_ORGANIZATION.id)
        ended = sum(counts.values()) - counts[SourceState.SEEN]
        bar.update(task, completed=min(ended, raw), total=raw)
        return counts[SourceState.SEEN] == 0 and ended >= raw


def write(parts: Parts, state: Progressed, saved: Path, wrote: Callable[[int], None]) -> Progressed:
    """Write the shop's telemetry from where the last run stopped up to now, as raw objects."""
    state = state.aimed(now_ns() // _STEP_NS * _STEP_NS)
    _save(saved, state)
    files = points = 0
    for spec in SIGNALS.values():
        batches = state.shop.batches(spec.name, state.until_ns, state.aim_ns, per_batch_seconds=_PER_FILE_SECONDS)
        for batch in batches:
            name = f"{spec.name}_{batch.start_ns // SECOND_NS}_{batch.end_ns // SECOND_NS}.binpb.gz"
            key = f"{RAW_PREFIX}{DEFAULT_ORGANIZATION.id}/{COLLECTOR}/{name}"
            parts.store.put(key, igzip.compress(batch.data, compresslevel=1, mtime=0))
            files += 1
            points += batch.records if spec is METRICS else 0
            wrote(files)
    state = state.reached(points)
    _save(saved, state)
    return state


def _save(saved: Path, state: Progressed) -> None:
    draft = saved.with_suffix(".new")
    draft.write_bytes(orjson.dumps(asdict(state)))
    draft.replace(saved)


def ask(client: Client, state: Progressed, console: Console) -> bool:
    """Ask every question, print its answer, and return whether all were right."""
    known = Known.of(state)
    right = True
    for question in QUESTIONS:
        sql = question.sql.format(until=state.until_ns)
        console.print(f"\n[bold]{question.about}[/bold]\n[dim]{sql}[/dim]", highlight=False)
        with client.sql(Query(sql)) as answer:
            rows = list(answer)
        show_rows(answer.columns, rows, sys.stdout)
        if not question.right(rows, known):
            right = False
            console.print("[red]This differs from what the shop wrote.[/red]")
    if right:
        console.print(
            f"All answers are correct: {sum(known.records.values())} log records, "
            f"{sum(known.spans.values())} spans and {known.points} metric points, each stored "
            "once.",
            highlight=False,
        )
    return right


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def _invite(console: Console, url: str, home: Path) -> None:
    trust = f" --cacert {home / CERTIFICATE}" if url.startswith("https:") else ""
    console.print(
        f"""
The shop and the lake keep running. Query them from another terminal:
  .venv/bin/lakerunner sql --home {home} "select service_name, count(*) from logs group by 1"
  .venv/bin/lakerunner promql --home {home} "sum by (job) (rate(shop_requests_total[5m]))"
  curl -s{trust} {url}/api/v1/sql -H 'content-type: application/json' -d '{{"query": "select count(*) as n from logs"}}'
Ctrl-C stops everything; the next run goes on with this data.""",
        highlight=False,
        soft_wrap=True,
    )
