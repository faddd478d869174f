"""`| regexp "..."`: the named groups of a regular expression's first match in the line, a label for each.

A line without a match stays as it is; a group without a part in the match gives "".
"""

from __future__ import annotations

from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.parsed import label_name, name_to_set
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Regexp
from lakerunner.model.errors import UserError
from lakerunner.model.regex import compile_group_search, repeated_group_name


def compile_regexp(stage: Regexp, context: StageContext) -> StageRun:
    if repeated := repeated_group_name(stage.pattern):
        raise UserError(f"duplicate extracted label name '{repeated}'")
    search = compile_group_search(stage.pattern)
    if not search.names:
        raise UserError("at least one named capture must be supplied")
    names = sorted((number, label_name(name)) for name, number in search.names.items())
    hints = context.hints

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        found = search.groups(line)
        if found is not None:
            for number, name in names:
                own = name_to_set(labels, hints, name)
                if own:
                    labels.set_parsed(own, found[number])
        return line

    return run
