"""`| decolorize`: the line without the escape sequences of terminals (ANSI)."""

from __future__ import annotations

import re

from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Decolorize

_STARTS = "\x1b", "\x9b"  # ESC, and CSI as one character
_WORD = r"[0-9A-Za-z]*"
_COMMAND = rf"{_WORD}(?:;{_WORD})*\x07"  # words up to BEL: titles, links
_NUMBERS = r"[0-9]{1,4}(?:;[0-9]{0,4})*"
_CONTROL = rf"(?:{_NUMBERS})?[0-9A-PRZcf-nqrty<=>~]"  # numbers up to the character that says what to do: colours, moves
_SEQUENCE = re.compile(rf"[{''.join(_STARTS)}][][()#;?]*(?:{_COMMAND}|{_CONTROL})")


def compile_decolorize(stage: Decolorize, context: StageContext) -> StageRun:  # noqa: ARG001
    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        return _SEQUENCE.sub("", line) if _STARTS[0] in line or _STARTS[1] in line else line

    return run
