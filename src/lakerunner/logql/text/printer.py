"""Write a LogQL tree as text.

Comes in: a tree. Goes out: one line of text. `query_text` is Loki's canonical text, character for character; it rounds
some amounts (2560 bytes are `2.6kB`) and leaves out what seldom matters. `exact_text` is text that parses to the same
tree, for sending a query to another process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakerunner.logql.text.amounts import bytes_text, duration_text, parse_bytes, prometheus_duration_text
from lakerunner.logql.text.regex_form import is_simple_regex
from lakerunner.logql.text.syntax import (
    AmountTest,
    Both,
    Constant,
    Decolorize,
    Drop,
    Either,
    Grouping,
    IpTest,
    Json,
    Keep,
    LabelFilter,
    LabelFormat,
    LabelReplace,
    LabelTest,
    LineFilter,
    LineFormat,
    Logfmt,
    LogRange,
    Operation,
    Pattern,
    Pipeline,
    Query,
    RangeAggregation,
    Regexp,
    Stage,
    Unpack,
    Unwrap,
    VectorAggregation,
    VectorLiteral,
)
from lakerunner.model.display import go_quote
from lakerunner.model.labels.matcher import Matcher, Matchers
from lakerunner.series.expression import Matching
from lakerunner.series.numerals import number_text, scalar_text

_PLAIN_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_NOT_FINITE = {"NaN": "(0 / 0)", "+Inf": "(1e+308 * 10)", "-Inf": "(-1e+308 * 10)"}


def query_text(query: Query) -> str:
    """Return the canonical text."""
    return LOKI.query(query)


def exact_text(query: Query) -> str:
    """Return a text that parses to an equal tree, but for spans and the signs between tests of labels."""
    return _EXACT.query(query)


def stage_text(stage: Stage) -> str:
    """Return the canonical text of one stage."""
    return LOKI.stage(stage)


def go_value(number: float) -> str:
    """Write a number as Go's fmt.Sprint does: without exponent from 1e-4 up to 1e21."""
    return scalar_text(number) if 1e6 <= abs(number) < 1e21 else number_text(number)


@dataclass(frozen=True)
class Writer:
    exact: bool

    def query(self, query: Query) -> str:
        match query:
            case Pipeline():
                return self.pipeline(query)
            case RangeAggregation():
                return self._range_aggregation(query)
            case VectorAggregation():
                return self._vector_aggregation(query)
            case Operation():
                op = self.operator(query.op, query.matching, return_bool=query.return_bool)
                return f"({self.query(query.left)} {op} {self.query(query.right)})"
            case Constant():
                return self.constant(query.value)
            case VectorLiteral():
                return f"vector({self._vector_value(query.value)})"
            case LabelReplace():
                texts = (query.target, query.replacement, query.source, query.pattern)
                return f"label_replace({','.join((self.query(query.inner), *map(go_quote, texts)))})"

    # ---- metric queries

    def _range_aggregation(self, query: RangeAggregation) -> str:
        parameter = "" if query.parameter is None else f"{scalar_text(query.parameter)},"
        grouping = grouping_text(query.grouping) if query.grouping else ""
        return f"{query.op}({parameter}{self.log_range(query.lines)}){grouping}"

    def _vector_aggregation(self, query: VectorAggregation) -> str:
        parameter = "" if query.parameter is None else f"{query.parameter},"
        grouping = query.grouping
        shown = grouping is not None and (self.exact or grouping.without or grouping.labels)
        return (
            f"{query.op}{grouping_text(grouping) if grouping and shown else ''}({parameter}{self.query(query.inner)})"
        )

    def operator(self, op: str, matching: Matching | None, *, return_bool: bool, separator: str = ",") -> str:
        """Return the operator followed by bool, on/ignoring and group_left/right."""
        text = f"{op} bool" if return_bool else op
        if matching is None or not (self.exact or matching.on or matching.labels):
            return text
        group = {"many-to-one": "group_left", "one-to-many": "group_right"}.get(matching.card, "")
        if matching.include or (self.exact and group):
            group = f"{group} ({separator.join(matching.include)})"
        return f"{text} {'on' if matching.on else 'ignoring'} ({separator.join(matching.labels)}) {group}"

    def constant(self, value: float) -> str:
        text = go_value(value)
        if not self.exact:
            return text
        return "-0.0" if text == "-0" else _NOT_FINITE.get(text, text)

    def _vector_value(self, value: float) -> str:
        if not math.isfinite(value):
            return go_value(value)
        rounded = f"{value:f}"
        return scalar_text(value) if self.exact and float(rounded) != value else rounded

    # ---- log queries

    def pipeline(self, query: Pipeline) -> str:
        return " ".join((self.selector(query.matchers), *map(self.stage, query.stages)))

    def selector(self, matchers: Matchers) -> str:
        return f"{{{', '.join(map(self.matcher, matchers))}}}"

    def log_range(self, lines: LogRange) -> str:
        unwrap = f" {self.unwrap(lines.unwrap)}" if lines.unwrap else ""
        offset = f" offset {duration_text(lines.offset)}" if lines.offset else ""
        return f"{self.pipeline(lines.pipeline)}{unwrap}[{prometheus_duration_text(lines.range)}]{offset}"

    def unwrap(self, unwrap: Unwrap, separator: str = " ") -> str:
        label = f"{unwrap.conversion}({unwrap.label})" if unwrap.conversion else unwrap.label
        return separator.join((f"| unwrap {label}", *map(self.stage, unwrap.filters)))

    def matcher(self, matcher: Matcher) -> str:
        is_plain = self.exact or _PLAIN_NAME.fullmatch(matcher.name)
        name = matcher.name if is_plain else go_quote(matcher.name)
        return f"{name}{matcher.op}{go_quote(matcher.value)}"

    # ---- stages

    def stage(self, stage: Stage) -> str:
        match stage:
            case LineFilter():
                return " ".join(line_filter_texts(stage, as_written=self.exact))
            case Json():
                return f"| json{_extractions(stage)}"
            case Logfmt():
                flags = (" --strict" if stage.strict else "") + (" --keep-empty" if stage.keep_empty else "")
                return f"| logfmt{flags}{_extractions(stage)}"
            case Regexp():
                return f"| regexp {go_quote(stage.pattern)}"
            case Pattern():
                return f"| pattern {go_quote(stage.pattern)}"
            case Unpack():
                return "| unpack"
            case LabelFilter():
                return f"| {self.test(stage.test)}"
            case _:
                return self._change(stage)

    def _change(self, stage: LineFormat | LabelFormat | Drop | Keep | Decolorize) -> str:
        match stage:
            case LineFormat():
                return f"| line_format {go_quote(stage.template)}"
            case LabelFormat():
                items = (
                    f"{one.label}={one.value if one.is_rename else go_quote(one.value)}" for one in stage.assignments
                )
                return f"| label_format {','.join(items)}"
            case Drop() | Keep():
                names = (self.matcher(one.matcher) if one.matcher else one.name for one in stage.choices)
                return f"| {'drop' if isinstance(stage, Drop) else 'keep'} {','.join(names)}"
            case Decolorize():
                return "| decolorize"

    # ---- label filters

    def test(self, test: LabelTest) -> str:
        match test:
            case Both():
                return f"( {self.test(test.left)} , {self.test(test.right)} )"
            case Either():
                return f"( {self.test(test.left)} or {self.test(test.right)} )"
            case IpTest():
                return f"{test.label}{test.op}ip({go_quote(test.pattern)})"
            case AmountTest():
                return f"{test.label}{test.op}{self._amount(test)}"
        return self._text_test(test.matcher)

    def _amount(self, test: AmountTest) -> str:
        if test.unit == "duration":
            return duration_text(int(test.value))
        if test.unit == "bytes":
            text = bytes_text(int(test.value))
            return f"{int(test.value)}B" if self.exact and parse_bytes(text) != test.value else text
        return self.constant(test.value) if self.exact and not test.value else scalar_text(test.value)

    def _text_test(self, matcher: Matcher) -> str:
        # Loki prints the regular expressions that it runs as such, and not those that it turns into comparisons.
        value = matcher.value
        if self.exact or matcher.op != "=~" or "`" in value or is_simple_regex(value):
            return self.matcher(matcher)
        return f"{matcher.name}=~`{value}`"


LOKI = Writer(exact=False)
_EXACT = Writer(exact=True)


def grouping_text(grouping: Grouping, separator: str = ",") -> str:
    return f" {'without' if grouping.without else 'by'} ({separator.join(grouping.labels)})"


def line_filter_texts(line_filter: LineFilter, *, as_written: bool = False) -> Iterable[str]:
    """Return the filter as Loki keeps it: a negative one with alternatives is one filter for each."""
    texts = [f"ip({go_quote(one.text)})" if one.is_ip else go_quote(one.text) for one in line_filter.alternatives]
    if line_filter.is_negated and not as_written:
        return [f"{line_filter.op} {text}" for text in texts]
    return [f"{line_filter.op} {' or '.join(texts)}"]


def _extractions(stage: Json | Logfmt) -> str:
    items = ",".join(f"{one.label}={go_quote(one.path)}" for one in stage.extractions)
    return f" {items}" if items else ""
