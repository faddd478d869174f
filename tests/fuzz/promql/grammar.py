"""Random queries of the whole language over the series of data.py, built by the kind of value that each place takes.

A query is text: it has parentheses where they are needed or by chance. Some are refused, since numbers may be anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fuzz.promql import words
from fuzz.promql.data import END, START
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.series.expression import Kind
from lakerunner.series.function import Function
from lakerunner.series.values import Steps

DEPTH = 4


@dataclass(frozen=True)
class Query:
    text: str
    steps: Steps
    instant: bool

    def __str__(self) -> str:
        when = f"at {self.steps.start}" if self.instant else f"from {self.steps.start} to {self.steps.end}"
        return f"{self.text}   {when}" + ("" if self.instant else f" step {self.steps.step}")


def random_query(chance: random.Random) -> Query:
    grammar = Grammar(chance)
    if chance.random() < 0.4:
        at = moment(chance)
        kind = chance.choices((grammar.vector, grammar.scalar, grammar.matrix), (90, 7, 3))[0]
        return Query(kind(DEPTH), Steps(at, at), instant=True)
    start = moment(chance)
    step = chance.choice((1000, 15_000, 30_000, 60_000, 60_000, 60_001, 123_456, 300_000, 420_000))
    end = start + step * chance.choice((0, 1, 3, 10, 30, 100)) + chance.choice((0, 0, step - 1))
    return Query(chance.choices((grammar.vector, grammar.scalar), (95, 5))[0](DEPTH), Steps(start, end, step), False)


def moment(chance: random.Random) -> int:
    at = chance.randrange(START - 300_000, END + 300_000)
    return at - at % 60_000 if chance.random() < 0.5 else at


class Grammar:
    """Each method returns text of one kind of value, of limited depth."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._subqueries = 0

    def _one(self, choices: Sequence[str]) -> str:
        return self._chance.choice(choices)

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _some(self, choices: Sequence[str], most: int) -> str:
        return ", ".join(self._chance.sample(choices, self._chance.randint(0, most)))

    # Vectors

    def vector(self, depth: int, wanted: Sequence[str] = ()) -> str:
        if depth <= 0:
            return self.selector(wanted)
        makers: Mapping[Callable[[int], str], int] = {
            lambda depth: self.selector(wanted): 14,
            self._over_range: 16,
            self._function: 14,
            self._of_histogram: 10,
            self._aggregation: 16,
            self._vector_and_scalar: 10,
            self._vectors: 14,
            self._labelled: 4,
            self._sorted: 1,
            self._presence: 2,
            self._info: 2,
            lambda depth: f"({self.vector(depth - 1, wanted)})": 3,
            lambda depth: f"-{self._operand(self.vector(depth - 1, wanted))}": 2,
            lambda depth: f"vector({self.scalar(depth - 1)})": 2,
        }
        make = self._chance.choices(list(makers), list(makers.values()))[0]
        return make(depth)

    def selector(self, wanted: Sequence[str] = (), *, modified: bool = True) -> str:
        name = self._one(wanted or words.METRICS)
        found = [self._matcher() for _ in range(self._chance.choice((0, 0, 0, 0, 0, 1, 1, 2)))]
        if name == "dotted.name":
            text = "{" + ", ".join(['"dotted.name"', *found]) + "}"
        elif self._happens(0.06):
            text = "{" + ", ".join([self._one(words.NAME_MATCHERS), *found]) + "}"
        else:
            text = name + ("{" + ", ".join(found) + "}" if found else "")
        if not modified:
            return text
        return text + (" smoothed" if self._happens(0.03) else "") + self._when()

    def _matcher(self) -> str:
        label = self._one(
            ("job", "instance") if self._happens(0.7) else ("code", "le", "room", '"label.dotted"', "nothing")
        )
        op = self._one(("=", "!=", "=~", "!~"))
        values = words.VALUES_OF.get(label, words.VALUES) if self._happens(0.9) else words.VALUES
        return f'{label}{op}"{self._one(words.PATTERNS if "~" in op else values)}"'

    def _when(self) -> str:
        """Return offset and @, in any order."""
        found = []
        if self._happens(0.1):
            found.append(f" offset {self._offset()}")
        if self._happens(0.1):
            at = moment(self._chance)
            found.append(f" @ {self._one((str(at // 1000), f'{at / 1000:.3f}', 'start()', 'end()', '0', '-1.5'))}")
        self._chance.shuffle(found)
        return "".join(found)

    def _offset(self) -> str:
        return self._one(words.OFFSETS) if self._happens(0.8) else self._one(words.OFFSET_TERMS)

    def _function(self, depth: int) -> str:
        """Return a function of one vector and numbers."""
        name = self._one(_OF_VECTOR)
        if name in ("round", *words.CLOCK) and self._happens(0.3):
            return f"{name}()" if name != "round" else f"round({self.vector(depth - 1)})"
        numbers = [self.scalar(depth - 2) for _ in FUNCTIONS[name].arguments[1:]]
        return f"{name}({', '.join([self.vector(depth - 1), *numbers])})"

    def _labelled(self, depth: int) -> str:
        inner = self.vector(depth - 1)
        if self._happens(0.3):
            sources = "".join(f', "{self._one(words.LABELS)}"' for _ in range(self._chance.randint(0, 3)))
            return f'label_join({inner}, "{self._one(words.NEW_LABELS)}", "{self._one(("-", "", "é"))}"{sources})'
        pattern, replacement = self._chance.choice(words.REPLACED)
        if pattern == "(":  # which is reported before any other mistake
            inner = self.selector()
        names = f'"{self._one(words.NEW_LABELS)}", "{replacement}", "{self._one(words.LABELS)}"'
        return f'label_replace({inner}, {names}, "{pattern}")'

    def _sorted(self, depth: int) -> str:
        if self._happens(0.5):
            return f"{self._one(('sort', 'sort_desc'))}({self.vector(depth - 1)})"
        labels = "".join(f', "{self._one(words.LABELS)}"' for _ in range(self._chance.randint(1, 2)))
        return f"{self._one(('sort_by_label', 'sort_by_label_desc'))}({self.vector(depth - 1)}{labels})"

    def _presence(self, depth: int) -> str:
        inner = self.vector(depth - 1) if self._happens(0.5) else f'nothing{{{self._matcher()}, x="1"}}'
        return f"absent({inner})"

    def _info(self, depth: int) -> str:
        data = self._one(words.INFO_SELECTORS)
        return f"info({self.vector(depth - 1)}{', ' + data if data else ''})"

    # Ranges

    def matrix(self, depth: int, wanted: Sequence[str] = (), modifiers: Sequence[str] = ()) -> str:
        if depth > 0 and self._subqueries < 2 and self._happens(0.25):
            return self._subquery(depth, wanted)
        length = self._one(words.RANGES) if self._happens(0.85) else self._one(words.RANGE_TERMS)
        modifier = f" {self._one(modifiers)}" if modifiers and self._happens(0.25) else ""
        return f"{self.selector(wanted, modified=False)}[{length}]{modifier}{self._when()}"

    def _subquery(self, depth: int, wanted: Sequence[str]) -> str:
        self._subqueries += 1
        inner = self.vector(depth - 1, wanted) if self._happens(0.98) else self.scalar(depth - 1)
        self._subqueries -= 1
        length = self._one(words.RANGES) if self._happens(0.9) else self._one(words.RANGE_TERMS)
        step = self._one(words.SUBQUERY_STEPS)
        return f"{self._operand(inner)}[{length}:{step}]{self._when()}"

    def _over_range(self, depth: int) -> str:
        name = self._one(_OF_RANGE)
        function = FUNCTIONS[name]
        wanted = words.COUNTERS if name in words.OF_COUNTERS and self._happens(0.6) else ()
        modifiers = function.extended if self._happens(0.98) else ("anchored", "smoothed")
        matrix = self.matrix(depth - 1, wanted, modifiers)
        return f"{name}({', '.join(self._argument(kind, matrix, depth) for kind in function.arguments)})"

    def _argument(self, kind: Kind, matrix: str, depth: int) -> str:
        if kind is Kind.MATRIX:
            return matrix
        return self._one(words.SHARES) if self._happens(0.8) else self.scalar(depth - 2)

    # Histograms

    def _histograms(self, depth: int) -> str:
        """Return a vector that mostly has histograms."""
        if self._happens(0.3):
            return self.selector(words.HISTOGRAMS)
        if self._happens(0.4):
            return f"{self._one(words.KEEPING_HISTOGRAMS)}({self.matrix(0, words.HISTOGRAMS)})"
        if self._happens(0.4):
            return f"{self._one(('sum', 'avg'))}{self._grouping()}({self.vector(depth - 2, words.HISTOGRAMS)})"
        return self.vector(depth - 1, words.HISTOGRAMS)

    def _of_histogram(self, depth: int) -> str:
        vector = self._histograms(depth)
        if self._happens(0.3):
            vector = self._one((*words.CLASSIC, f"rate(latency_bucket[{self._one(words.RANGES)}])"))
        match self._chance.randrange(6):
            case 0 | 1:
                return f"histogram_quantile({self._share(depth)}, {vector})"
            case 2:
                shares = ", ".join(self._share(depth) for _ in range(self._chance.randint(1, 4)))
                return f'histogram_quantiles({vector}, "{self._one(("q", "job", "le"))}", {shares})'
            case 3:
                return f"histogram_fraction({self.number()}, {self.number()}, {vector})"
            case 4:
                return f"{self._operand(vector)} {self._one(('</', '>/'))} {self._operand(self.number())}"
        return f"{self._one(_OF_HISTOGRAM)}({vector})"

    def _share(self, depth: int) -> str:
        return self._one(words.SHARES) if self._happens(0.9) else self.scalar(depth - 2)

    # Aggregations

    def _aggregation(self, depth: int) -> str:
        op = self._one(words.AGGREGATIONS)
        inner = self.vector(depth - 1)
        parameter = ""
        if op in words.COUNTED:
            parameter = f"{self._one(words.COUNTS) if self._happens(0.85) else self.scalar(depth - 2)}, "
        elif op in ("quantile", "limit_ratio"):
            parameter = f"{self._one(words.SHARES) if self._happens(0.85) else self.scalar(depth - 2)}, "
        elif op == "count_values":
            parameter = f'"{self._one(("v", "job", "é", "__name__"))}", '
        if self._happens(0.2):
            return f"{op}({parameter}{inner}){self._grouping()}"
        return f"{op}{self._grouping()}({parameter}{inner})"

    def _grouping(self) -> str:
        if self._happens(0.35):
            return " "
        return f" {self._one(('by', 'by', 'without'))} ({self._some(words.GROUPING, 3)}) "

    # Operators

    def _vector_and_scalar(self, depth: int) -> str:
        op = self._one(words.OPERATORS)
        sides = [self._operand(self.vector(depth - 1)), self._operand(self.scalar(depth - 2))]
        self._chance.shuffle(sides)
        return f"{sides[0]} {op}{self._bool(op)} {sides[1]}"

    def _vectors(self, depth: int) -> str:
        if self._happens(0.6):
            left, right, matching = self._alike()
        else:
            left, right, matching = self.vector(depth - 1), self.vector(depth - 1), self._matching()
        if self._happens(0.3):
            op = self._one(("and", "or", "unless"))
            matching = self._one(("", "", f" {self._one(('on', 'ignoring'))} ({self._some(words.GROUPING, 3)})"))
        else:
            op = self._one(words.OPERATORS)
            matching = self._bool(op) + matching + self._fill()
        return f"{self._operand(left)} {op}{matching} {self._operand(right)}"

    def _alike(self) -> tuple[str, str, str]:
        """Return vectors whose series pair with each other, and how they are matched."""
        return self._chance.choice(
            (
                (self.selector(("load",)), self.selector(("other",)), ""),
                (self.selector(("size",)), self.selector(("mixed", "size", "load")), ""),
                (self.selector(("custom",)), self.selector(("custom",)), ""),
                ("requests_total", "load", " on (job, instance) group_left ()"),
                ("build_info", "requests_total", " on (job, instance) group_right (build)"),
                ("requests_total", 'requests_total{code="404"}', " ignoring (code) group_left (code)"),
                (f"sum by (job) ({self.selector()})", f"sum by (job) ({self.selector()})", ""),
                ("rate(requests_total[5m])", "requests_total offset 3m", ""),
            )
        )

    def _matching(self) -> str:
        if self._happens(0.3):
            return ""
        text = f" {self._one(('on', 'ignoring'))} ({self._some(words.GROUPING, 3)})"
        if self._happens(0.4):
            text += f" {self._one(('group_left', 'group_right'))} ({self._some(words.INCLUDED, 2)})"
        return text

    def _fill(self) -> str:
        if self._happens(0.8):
            return ""
        return f" {self._one(('fill', 'fill_left', 'fill_right'))}({self._one(('0', '-1', '2.5', 'NaN', 'Inf', '-0'))})"

    def _bool(self, op: str) -> str:
        return " bool" if op in words.COMPARISONS and self._happens(0.3) else ""

    def _operand(self, text: str) -> str:
        """Add parentheses where they are needed, or by chance: `a + b * c` means something too."""
        plain = " " not in text and not text.startswith(("-", "+"))
        return text if plain or self._happens(0.1) else f"({text})"

    # Scalars

    def scalar(self, depth: int) -> str:
        if depth <= 0 or self._happens(0.4):
            return self.number()
        match self._chance.randrange(6):
            case 0:
                return f"scalar({self.vector(depth - 1)})"
            case 1:
                return f"{self._one(('time', 'pi', 'start', 'end', 'step', 'range'))}()"
            case 2:
                return f"{self._one(('min_of', 'max_of'))}({self.scalar(depth - 1)}, {self.scalar(depth - 1)})"
            case 3:
                return f"-{self._operand(self.scalar(depth - 1))}"
        op = self._one(words.OPERATORS)
        both = [self._operand(self.scalar(depth - 1)) for _ in range(2)]
        return f"{both[0]} {op}{' bool' if op in words.COMPARISONS else ''} {both[1]}"

    def number(self) -> str:
        if self._happens(0.6):
            return self._one(words.NUMBERS)
        return repr(round(self._chance.gauss(0, 10), self._chance.randrange(6)))


def _is_of_vector(function: Function) -> bool:
    return (
        function.returns is Kind.VECTOR
        and function.arguments[:1] == (Kind.VECTOR,)
        and set(function.arguments[1:]) <= {Kind.SCALAR}
        and function.name not in ("absent", "sort", "sort_desc", "scalar", "info")
    )


_OF_VECTOR = [name for name, one in FUNCTIONS.items() if _is_of_vector(one) and not name.startswith("histogram")]
_OF_HISTOGRAM = [name for name, one in FUNCTIONS.items() if _is_of_vector(one) and name.startswith("histogram")]
_OF_RANGE = [name for name, one in FUNCTIONS.items() if Kind.MATRIX in one.arguments and name not in words.OURS]
