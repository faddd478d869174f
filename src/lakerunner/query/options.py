"""How a plan is answered: what a request says beside its text."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.plan.explain import Explain


@dataclass(frozen=True)
class Options:
    """`partial`: what cannot be read is named in the account instead of being an error. `streamed`: series in groups of
    time, the first of them soon, which takes longer in all. `text`: what the user wrote, for positions in errors.
    `planned`: the seconds that making the plan took."""

    now_ns: int
    partial: bool = False
    streamed: bool = False
    explain: Explain = Explain.NO
    text: str = ""
    planned: float = 0.0
