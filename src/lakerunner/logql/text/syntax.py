"""The tree of a LogQL text, as it was written: selectors, the stages of a pipeline, and metric expressions.

parse.py builds it, printer.py writes it, compile.py turns it into a plan; stages/ has the meaning of each stage. Values
are as the user wrote them, unquoted; times are nanoseconds. A node that can cause an error when it is compiled or run
knows its place in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakerunner.model.labels.matcher import Matcher, Matchers
from lakerunner.series.expression import NOWHERE, Matching, Span

# ---- line filters

LineOperator = Literal["|=", "!=", "|~", "!~", "|>", "!>"]


@dataclass(frozen=True, slots=True)
class LinePattern:
    """What a line filter looks for: a text, a regular expression or a pattern, by its operator. `is_ip`: an address,
    range or network, as in `|= ip("10.0.0.0/8")`."""

    text: str
    is_ip: bool = False


@dataclass(frozen=True, slots=True)
class LineFilter:
    """`|= "a" or "b"`. A positive operator keeps lines with one of the alternatives, a negative one lines with none."""

    op: LineOperator
    alternatives: tuple[LinePattern, ...]
    span: Span = NOWHERE

    @property
    def is_negated(self) -> bool:
        return self.op[0] == "!"


# ---- parsers


@dataclass(frozen=True, slots=True)
class Extraction:
    """`label="path"` of json and logfmt; the path of a bare name is the name itself."""

    label: str
    path: str


@dataclass(frozen=True, slots=True)
class Json:
    """Without extractions: all members."""

    extractions: tuple[Extraction, ...] = ()
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Logfmt:
    extractions: tuple[Extraction, ...] = ()
    strict: bool = False
    keep_empty: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Regexp:
    pattern: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Pattern:
    """`pattern "<ip> - <_> <path>"`."""

    pattern: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Unpack:
    span: Span = NOWHERE


# ---- label filters

Comparison = Literal["==", "!=", ">", ">=", "<", "<="]
Unit = Literal["number", "duration", "bytes"]


@dataclass(frozen=True, slots=True)
class TextTest:
    """A label compared as text."""

    matcher: Matcher


@dataclass(frozen=True, slots=True)
class AmountTest:
    """A label compared as a number, a duration (`value` in ns) or a size (`value` in bytes). `written` is the amount as
    the user wrote it; `=` is written as `==`."""

    label: str
    op: Comparison
    value: float
    unit: Unit = "number"
    written: str = ""


@dataclass(frozen=True, slots=True)
class IpTest:
    label: str
    op: Literal["=", "!="]
    pattern: str


@dataclass(frozen=True, slots=True)
class Both:
    """Both tests. `joined_by` is what the user wrote between them: "and", "," or " " for nothing."""

    left: LabelTest
    right: LabelTest
    joined_by: Literal["and", ",", " "] = "and"


@dataclass(frozen=True, slots=True)
class Either:
    left: LabelTest
    right: LabelTest


LabelTest = TextTest | AmountTest | IpTest | Both | Either


@dataclass(frozen=True, slots=True)
class LabelFilter:
    test: LabelTest
    span: Span = NOWHERE


# ---- stages that change lines and labels


@dataclass(frozen=True, slots=True)
class LineFormat:
    template: str
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Assignment:
    """`label=source` renames (`is_rename`), `label="template"` renders."""

    label: str
    value: str
    is_rename: bool = False


@dataclass(frozen=True, slots=True)
class LabelFormat:
    assignments: tuple[Assignment, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class LabelChoice:
    """A label of `drop` or `keep`, by name, or only where its value meets a matcher."""

    name: str
    matcher: Matcher | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    choices: tuple[LabelChoice, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Keep:
    choices: tuple[LabelChoice, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Decolorize:
    span: Span = NOWHERE


Parser = Json | Logfmt | Regexp | Pattern | Unpack
Stage = LineFilter | Parser | LabelFilter | LineFormat | LabelFormat | Drop | Keep | Decolorize


# ---- log queries


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A log query: a selector and the stages behind it, in the order in which they were written."""

    matchers: Matchers
    stages: tuple[Stage, ...] = ()
    span: Span = NOWHERE


Conversion = Literal["", "bytes", "duration", "duration_seconds"]


@dataclass(frozen=True, slots=True)
class Unwrap:
    """`| unwrap conversion(label)`, and the label filters behind it."""

    label: str
    conversion: Conversion = ""
    filters: tuple[LabelFilter, ...] = ()
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class LogRange:
    """The lines of (t - range, t] at each step, `offset` back; a negative offset looks forward. In ns."""

    pipeline: Pipeline
    range: int
    offset: int = 0
    unwrap: Unwrap | None = None
    span: Span = NOWHERE


# ---- metric queries


@dataclass(frozen=True, slots=True)
class Grouping:
    labels: tuple[str, ...]
    without: bool = False


@dataclass(frozen=True, slots=True)
class RangeAggregation:
    """`op` over a range of lines. `parameter` is that of quantile_over_time."""

    op: str
    lines: LogRange
    parameter: float | None = None
    grouping: Grouping | None = None
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class VectorAggregation:
    """`parameter` is that of topk, bottomk and approx_topk."""

    op: str
    inner: Metric
    parameter: int | None = None
    grouping: Grouping | None = None
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Operation:
    """A binary operation. `matching` is None unless on, ignoring, group_left or group_right was written."""

    op: str
    left: Metric
    right: Metric
    matching: Matching | None = None
    return_bool: bool = False
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Constant:
    """A number."""

    value: float
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class VectorLiteral:
    """`vector(number)`."""

    value: float
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class LabelReplace:
    inner: Metric
    target: str
    replacement: str
    source: str
    pattern: str
    span: Span = NOWHERE


Metric = RangeAggregation | VectorAggregation | Operation | Constant | VectorLiteral | LabelReplace
Query = Pipeline | Metric
