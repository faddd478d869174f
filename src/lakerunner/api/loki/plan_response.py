"""Answer one plan of LogQL as a whole response: what the endpoints of samples, patterns and context share.

Comes in: a request, and a function that makes the plan with the organization's rules. Goes out: a response with the
bytes that `write` makes of the answer. What always holds: nothing is sent before all of it is computed; if the client
leaves, its query ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from starlette.responses import Response

from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import Close, whole_response
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.plan.plan import Plan
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options

MakePlan = Callable[[StreamRules, int], Plan]  # of the rules, and the query's instant in ns


@dataclass(frozen=True)
class PlanResponse:
    engine: Engine
    rules: KnownRules

    def begin(self, asked: QueryRequest, make: MakePlan, text: str, *, whole: bool = False) -> Any:
        """Make the plan, and return its answer. Blocks on the index. `text` is what the user wrote; `whole`: return all
        rows, however many (query/options.py)."""
        now_ns = asked.now_ns()
        plan = make(self.rules.of(asked.organization), now_ns)
        return self.engine.answer(asked.organization, plan, Options(now_ns, text=text, whole=whole))

    async def whole(
        self, asked: QueryRequest, make: MakePlan, write: Callable[[Any], bytes], text: str = ""
    ) -> Response:
        """Respond with what `write`, which may block, makes of the answer."""

        async def respond(answer: Any, close: Close) -> Response:
            body = await to_thread.run_sync(write, answer, abandon_on_cancel=True)
            await to_thread.run_sync(close)
            return whole_response(asked.http, body)

        return await asked.respond(lambda: self.begin(asked, make, text), respond)
