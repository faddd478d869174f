"""Compile LogQL into plans: a log query to rows in rounds, a metric query to samples and a finish over series.

Comes in: a question. Goes out: a plan of leaves over the logs. What always holds: a plan is made from the question
alone; windows are (t - range, t], the lines of a log query are those of [start, end).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakerunner.logql.columns.line_columns import RELATION
from lakerunner.logql.line_conditions import scan_conditions
from lakerunner.logql.log_limits import DEFAULT_LIMITS, LogLimits
from lakerunner.logql.log_lines import KINDS, FirstLines, LogLines
from lakerunner.logql.log_rows import lines_scan
from lakerunner.logql.metric_finish import MetricQuery
from lakerunner.logql.stages.pipeline import check_stage
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import LabelFilter, LineFilter, Pipeline
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules
from lakerunner.plan.plan import Leaf, Plan, Rounds, SqlFinish
from lakerunner.series.values import Steps

# Rows of segments that were committed together may have the same place: then the delivery keeps their order the same
# for every page.
_ORDER = ("timestamp", "arrived", "row_number", "delivery", "delivery_row")
# Without filters the newest segments have enough lines for a limit, and a line costs more than a row of SQL. With
# filters rounds stay large: many of them find nothing, and each costs about 10 ms.
_FIRST_BYTES = 1 << 20
NO_LOG_INSTANT = (
    "log queries are not supported as an instant query type, please change your query to a range query type"
)


@dataclass(frozen=True)
class LogqlQuestion:
    """A query as it was requested. Metric queries are evaluated at `start_ns`, and every `step_ns` up to `end_ns`
    inclusive; `step_ns` is 0 for one instant. Log queries return the lines of [start_ns, end_ns), at most `limit` of
    them (None: all)."""

    text: str
    start_ns: int
    end_ns: int
    step_ns: int = 0
    limit: int | None = 100
    direction: Literal["backward", "forward"] = "backward"
    rules: StreamRules = DEFAULT_RULES
    limits: LogLimits = DEFAULT_LIMITS
    with_deliveries: bool = False  # log queries also return the columns that tell a repeated delivery
    versions: tuple[RuleVersion, ...] = ()  # whose points may stand for lines of metric queries

    @property
    def instant(self) -> bool:
        return self.step_ns == 0

    @property
    def steps(self) -> Steps:
        return Steps(self.start_ns, self.end_ns, self.step_ns or 1) if not self.instant else Steps(*[self.end_ns] * 2)


def compile_logql(question: LogqlQuestion, now_ns: int) -> Plan:
    """Parse and compile a question. Raise UserError with its position if the text is invalid."""
    query = parse_logql(question.text, check_stage)
    if isinstance(query, Pipeline):
        if question.instant:
            raise UserError(NO_LOG_INSTANT)
        return _lines_plan(query, question, now_ns)
    return MetricQuery(
        query,
        question.steps,
        question.instant,
        question.rules,
        now_ns,
        question.limits,
        versions=question.versions,
    ).plan()


def _lines_plan(pipeline: Pipeline, question: LogqlQuestion, now_ns: int) -> Plan:
    backward = question.direction == "backward"
    conditions = scan_conditions(pipeline.matchers, pipeline.stages, question.rules)
    scan = lines_scan(question.start_ns, question.end_ns, conditions)
    first = None if question.limit is None else FirstLines(question.limit, backward)
    leaf = Leaf(scan, LogLines.of(pipeline, question.rules, now_ns, first))
    deliveries = ("delivery", "delivery_row") if question.with_deliveries else ()
    most_pass = not any(isinstance(stage, LineFilter | LabelFilter) for stage in pipeline.stages)
    first_bytes = _FIRST_BYTES if question.limit is not None and most_pass else 0
    rounds = Rounds(descending=backward, limit=question.limit, first_bytes=first_bytes)
    return Plan((leaf,), lines_finish(rounds, more=deliveries))


def lines_finish(rounds: Rounds, *, more: tuple[str, ...] = (), where: str = "") -> SqlFinish:
    """Return the finish that orders lines and returns them with the labels of each kind, and with `more` columns of
    the operator. `where` is a condition on them."""
    order = "DESC" if rounds.descending else "ASC"
    columns = ", ".join(("timestamp", "line", *KINDS, *more))
    # A row that was delivered twice counts once, as the last of them, which is the one that a merge keeps. It has the
    # same time both times, so that it is in one round.
    sql = (
        f'SELECT {columns} FROM "{RELATION}" {f"WHERE {where} " if where else ""}QUALIFY delivery IS NULL OR '
        "row_number() OVER (PARTITION BY delivery, delivery_row ORDER BY arrived DESC, row_number DESC) = 1 "
        f"ORDER BY {', '.join(f'{name} {order}' for name in _ORDER)}"
    )
    return SqlFinish(sql, rounds)
