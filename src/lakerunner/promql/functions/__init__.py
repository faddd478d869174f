"""All functions of PromQL. To add one, add a row to the table of its file; a new file is one more table here."""

from __future__ import annotations

from itertools import chain

from lakerunner.promql.functions.clock import CLOCK
from lakerunner.promql.functions.histograms import HISTOGRAMS
from lakerunner.promql.functions.info import INFO
from lakerunner.promql.functions.numbers import NUMBERS, PRESENCE, TRIGONOMETRY
from lakerunner.promql.functions.over_time import OVER_TIME
from lakerunner.promql.functions.rates import RATES
from lakerunner.promql.functions.regression import REGRESSIONS
from lakerunner.series.function import Function
from lakerunner.series.functions.label_functions import LABEL_FUNCTIONS
from lakerunner.series.functions.sorting import SORTING

_TABLES: tuple[tuple[Function, ...], ...] = (
    CLOCK,
    HISTOGRAMS,
    INFO,
    LABEL_FUNCTIONS,
    NUMBERS,
    OVER_TIME,
    PRESENCE,
    RATES,
    REGRESSIONS,
    SORTING,
    TRIGONOMETRY,
)
FUNCTIONS: dict[str, Function] = {function.name: function for function in chain.from_iterable(_TABLES)}
