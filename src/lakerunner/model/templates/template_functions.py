"""All functions that a template may call beside those of Go itself, in one table.

A new function is one value in the file of its kind (text, numbers, times), or of the caller's own table.
"""

from __future__ import annotations

from lakerunner.model.templates.go_time import GoTime
from lakerunner.model.templates.number_functions import NUMBER_FUNCTIONS
from lakerunner.model.templates.signatures import TemplateFunction
from lakerunner.model.templates.text_functions import TEXT_FUNCTIONS
from lakerunner.model.templates.time_functions import TIME_FUNCTIONS

_INPUTS: dict[str, TemplateFunction] = {
    "__line__": TemplateFunction(lambda run: run.line, needs_rendering=True),
    "__timestamp__": TemplateFunction(lambda run: GoTime.from_ns(run.timestamp_ns), needs_rendering=True),
}
TEMPLATE_FUNCTIONS: dict[str, TemplateFunction] = {
    **_INPUTS,
    **TEXT_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **TIME_FUNCTIONS,
}
