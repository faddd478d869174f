"""The lines around a line in its stream.

Comes in: the labels of a stream, a time, and how many lines before and after it. Goes out: plans for the lines before
that time, at it, and after it. What always holds: lines are those of exactly this stream, in the order of queries, in
which lines of equal time stand as they arrived; `position` tells these apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from lakerunner.logql.log_plan import LogqlQuestion, compile_logql, lines_finish
from lakerunner.logql.stream_list import read_matchers
from lakerunner.model.display import go_quote
from lakerunner.model.errors import UserError
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.plan.plan import Plan, Rounds

PLACE = ("arrived", "row_number")


@dataclass(frozen=True)
class ContextQuestion:
    """Times are ns; lines outside of [start_ns, end_ns) are not looked at. `most_at` limits the lines of `time_ns`."""

    stream: dict[str, str]
    time_ns: int
    before: int
    after: int
    start_ns: int
    end_ns: int
    most_at: int

    @property
    def selector(self) -> str:
        return "{" + ", ".join(f"{name}={go_quote(value)}" for name, value in sorted(self.stream.items())) + "}"

    def plans(self, rules: StreamRules, now_ns: int) -> tuple[Plan, Plan, Plan]:
        """Return the plans of the lines before the time, newest first, and at it and after it, oldest first."""
        question = LogqlQuestion(self.selector, self.start_ns, self.end_ns, 1, rules=rules)
        at, behind = self.time_ns, self.time_ns + 1

        def plan(start_ns: int, end_ns: int, limit: int, *, backward: bool = False) -> Plan:
            leaves = compile_logql(replace(question, start_ns=start_ns, end_ns=end_ns), now_ns).leaves
            return Plan(leaves, lines_finish(Rounds(backward, limit=limit), more=PLACE, where=self._own_stream))

        return (
            plan(min(self.start_ns, at), at, self.before, backward=True),
            plan(at, behind, self.most_at),
            plan(behind, max(self.end_ns, behind), self.after),
        )

    @property
    def _own_stream(self) -> str:
        """Return the condition of exactly this stream: the selector also finds streams that have further labels."""
        labels = orjson.dumps(self.stream, option=orjson.OPT_SORT_KEYS).decode().replace("'", "''")
        return f"stream = '{labels}'"


def read_stream(text: str) -> dict[str, str]:
    """Parse the labels of a stream, written as a selector: {app="cart", env="prod"}."""
    if not text:
        raise UserError('parameter stream is missing: write the labels of the stream, such as {service_name="cart"}')
    matchers = read_matchers(text)
    if any(matcher.op != "=" for matcher in matchers):
        raise UserError(f"stream {text!r} is not one stream: write all of its labels with =")
    return {matcher.name: matcher.value for matcher in matchers}
