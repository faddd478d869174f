"""Random LogQL over the rows of lines.py: log and metric queries as text, with the times they are asked for.

Regular expressions are of the part of RE2's syntax that Python's `re` reads in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuzz.logql.lines import END, SECOND, SPAN, START

_LABELS = ("app", "env", "pod", "level", "service_name", "detected_level", "status", "method", "took", "size", "user")
_MORE_LABELS = ("trace_id", "app_extracted", "user_id", "user_name", "msg", "addr", "nothing", "deployment_environment")
_STREAM_LABELS = ("app", "env", "pod", "service_name", "job", "deployment_environment", "k8s_namespace_name", "nothing")
_SELECTORS = (
    'service_name=~".+"',
    'service_name=~".+"',
    'service_name!=""',
    'env="prod"',
    'app=~"cart|pay"',
    'app="cart"',
)
_VALUES = ("cart", "pay", "prod", "dev", "p-1", "error", "info", "200", "500", "GET", "ann", "inner", "shop/é", "x")
_PATTERNS = (
    "cart|pay",
    "p.*",
    ".+",
    ".*",
    "",
    "[a-c].*",
    "(?i)CART",
    "pro?d|dev",
    "5..",
    "(er|wa).*",
    "[^c]+",
    "é|shop/.",
)
_TEXTS = (
    "refused",
    "Cart",
    "cart",
    "50",
    "=",
    "",
    "é",
    "日本",
    '\\"',
    "user",
    "took",
    "it's",
    "{",
    "\\n",
    "absent word",
    "10.0",
    "s",
    "t",
    "level",
)
_LINE_PATTERNS = (
    "refused|timeout",
    "5\\\\d\\\\d",
    "(?i)CART",
    ".*",
    ".+",
    "",
    "took .",
    "^.level",
    "[a-f0-9]{8}",
    "a.b",
)
_CAPTURES = ("<_> - <_>", "<_>took<_>", "{<_>}", "<_>", "10.0.0.<_> - <_> took <_>", "", "<_>status<_>")
_IPS = ("10.0.0.7", "10.0.0.0/24", "10.0.0.2-10.0.0.6", "::1")
_GROUPS = ("app", "env", "service_name", "detected_level", "level", "status", "method", "pod", "trace_id", "nothing")
_RANGES = ("1s", "30s", "1m", "90s", "5m", "5m", "20m", "1h")
_OFFSETS = ("1s", "1m", "-1m", "10m", "-30s")
_TEMPLATES = (
    "{{.app}}",
    "{{.status}} {{.method}}",
    "{{__line__}}",
    "x {{.took | trunc 2}} {{ToUpper .level}}",
    "{{if eq .status `500`}}bad{{else}}{{.msg}}{{end}}",
    "{{__timestamp__ | unixEpoch}}",
    "{{.took | int}} {{len .app}}",
    "{{.nothing}}",
    "{{div 1 .zero}}",
    "constant",
)
_LINES = ("count_over_time", "rate", "bytes_over_time", "bytes_rate", "absent_over_time")
_VALUES_OVER = (
    "sum_over_time",
    "avg_over_time",
    "max_over_time",
    "min_over_time",
    "first_over_time",
    "last_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "quantile_over_time",
    "rate",
    "rate_counter",
    "absent_over_time",
)
_GROUPED = (
    "avg_over_time",
    "max_over_time",
    "min_over_time",
    "first_over_time",
    "last_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "quantile_over_time",
)
_DROP_ERRORS = " | drop __error__, __error_details__"
_AGGREGATIONS = ("sum", "sum", "sum", "avg", "count", "max", "min", "stddev", "stdvar")


@dataclass(frozen=True)
class LogqlQuery:
    """`step` is 0 for an instant, at `end`. `limit` and `direction` are those of log queries."""

    text: str
    start: int
    end: int
    step: int
    limit: int = 100
    forward: bool = False

    def __str__(self) -> str:
        when = f"{(self.start - START) / 1e9}s to {(self.end - START) / 1e9}s step {self.step / 1e9}"
        return f"{self.text}   from {when}, limit {self.limit}, {'forward' if self.forward else 'backward'}"


def random_query(chance: random.Random) -> LogqlQuery:
    grammar = Grammar(chance)
    start = START + chance.choice((0, 0, -60, chance.randrange(900))) * SECOND
    start += chance.choice((0, 0, 1, -1, 123_456_789))
    if chance.random() < 0.4:
        end = chance.choice(
            (start + chance.randrange(1, SPAN), END + SECOND, END + SECOND, start + 60 * SECOND, start + 1)
        )
        start = chance.choice((start, START))
        end = max(end, start + 1)
        return LogqlQuery(
            grammar.log_query(), start, end, 1, chance.choice((1, 2, 5, 20, 100, 1000)), chance.random() < 0.5
        )
    if chance.random() < 0.4:
        at = START + chance.randrange(300, 1000) * SECOND
        return LogqlQuery(grammar.metric(2, instant=True), at, at, 0)
    step = chance.choice((1, 7, 15, 60, 60, 300)) * SECOND
    return LogqlQuery(grammar.metric(2), start, start + step * chance.choice((1, 5, 20)) + chance.choice((0, 3)), step)


class Grammar:
    """Each method returns text."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def _one(self, choices: Sequence[str]) -> str:
        return self._chance.choice(choices)

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _label(self) -> str:
        return self._one(_LABELS if self._happens(0.8) else _MORE_LABELS)

    # ---- lines

    def log_query(self) -> str:
        return self.selector() + "".join(self._stage() for _ in range(self._chance.choice((0, 1, 1, 2, 2, 3, 4))))

    def selector(self) -> str:
        found = [self._matcher(self._one(_STREAM_LABELS)) for _ in range(self._chance.choice((0, 0, 0, 0, 1, 2)))]
        if self._happens(0.97):  # otherwise it may be refused, since every matcher allows the empty value
            found.insert(0, self._one(_SELECTORS))
        return "{" + ", ".join(found) + "}"

    def _matcher(self, name: str) -> str:
        op = self._one(("=", "!=", "!=", "=~", "!~"))
        return f'{name}{op}"{self._one(_PATTERNS if "~" in op else (*_VALUES, ""))}"'

    def _stage(self, parsers: int = 30) -> str:
        makers: dict[Callable[[], str], int] = {
            self._line_filter: 20,
            self._parser: parsers,
            self._label_filter: 15,
            self._format: 10,
            self._drop_keep: 8,
            lambda: "| decolorize": 2,
        }
        return " " + self._chance.choices(list(makers), list(makers.values()))[0]()

    def _line_filter(self) -> str:
        op = self._one(("|=", "|=", "!=", "|~", "!~", "|>", "!>"))
        if op in ("|=", "!=") and self._happens(0.1):
            return f'{op} ip("{self._one(_IPS)}")'
        texts = {"=": _TEXTS, "~": _LINE_PATTERNS, ">": _CAPTURES}[op[1]]
        found = [f'"{self._one(texts)}"' for _ in range(self._chance.choice((1, 1, 1, 2, 3)))]
        return f"{op} {' or '.join(found)}"

    def _parser(self) -> str:
        return "| " + self._one(
            (
                "json",
                "json",
                "json",
                "logfmt",
                "logfmt",
                "logfmt --strict",
                "logfmt --keep-empty",
                'json status, who="user.name", first="list[0]"',
                'json x="[\\"a.b c\\"]", app',
                'logfmt status, m="method"',
                'logfmt --strict level, t="took"',
                "pattern `<ip> - <method> /<path> <status> took <took>`",
                "pattern `<_>took=<took> <_>`",
                "regexp `(?P<method>GET|POST) /(?P<path>\\S+)`",
                "regexp `took (?P<took>\\S*)`",
                "unpack",
            )
        )

    def _label_filter(self) -> str:
        return f"| {self._test(2)}"

    def _test(self, depth: int) -> str:
        if depth and self._happens(0.3):
            joined = self._one((" and ", " or ", ", ", " "))
            text = f"{self._test(depth - 1)}{joined}{self._test(depth - 1)}"
            return f"({text})" if self._happens(0.4) else text
        kind = self._chance.random()
        if kind < 0.1:
            return self._one(('__error__=""', '__error__!=""', '__error__="JSONParserErr"', '__error__!~".*Parser.*"'))
        if kind < 0.45:
            return self._matcher(self._label())
        if kind < 0.5:
            return f'{self._one(("addr", "ip"))}{self._one(("=", "!="))}ip("{self._one(_IPS)}")'
        name = self._one(("status", "took", "size", "status", "took", "user_id"))
        amount = self._one(("200", "499.5", "0", "-1", "10ms", "1s", "1m", "5KB", "1KiB", "100B"))
        return f"{name} {self._one(('>', '>=', '<', '<=', '==', '!=', '='))} {amount}"

    def _format(self) -> str:
        template = self._one(_TEMPLATES)
        if self._happens(0.4):
            return f'| line_format "{template}"'
        if self._happens(0.4):
            source = self._one(("status", "method", "env", "nothing"))
            return f"| label_format {self._one(('renamed', 'app', 'level'))}={source}"
        return f'| label_format {self._one(("made", "app", "status", "took"))}="{template}"'

    def _drop_keep(self) -> str:
        found = [
            self._label() if self._happens(0.6) else self._matcher(self._label())
            for _ in range(self._chance.choice((1, 2, 3)))
        ]
        if self._happens(0.3):
            found += ["__error__", "__error_details__"]
        return f"| {self._one(('drop', 'keep'))} {', '.join(found)}"

    def rule_selector(self) -> str:
        """Return a log query that a rule can have."""
        makers = (self._line_filter, self._parser, self._label_filter, self._no_errors)
        stages = (self._chance.choice(makers)() for _ in range(self._chance.choice((0, 1, 2, 2, 3))))
        return " ".join((self.selector(), *(stage for stage in stages if stage not in ("| unpack", _DROP_ERRORS))))

    # ---- metrics

    def metric(self, depth: int, *, instant: bool = False) -> str:
        if instant and self._happens(0.1):
            inner = self.vector(depth)
            return self._one((f"sort({inner})", f"sort_desc({inner})", f"approx_topk(2, {inner})"))
        if self._happens(0.03):
            return self._scalar(2)
        return self.vector(depth)

    def vector(self, depth: int) -> str:
        if depth <= 0:
            return self._range()
        makers: dict[Callable[[], str], int] = {
            self._range: 25,
            lambda: self._aggregation(depth): 50,
            lambda: self._vectors(depth): 12,
            lambda: self._vector_and_scalar(depth): 8,
            lambda: f"({self.vector(depth - 1)})": 2,
            lambda: (
                f'label_replace({self.vector(depth - 1)}, "made_{depth}", "$1-x", "{self._one(_GROUPS)}", "(.).*")'
            ): 3,
            lambda: f"vector({self._one(('1', '0', '-2.5'))})": 2,
        }
        return self._chance.choices(list(makers), list(makers.values()))[0]()

    def _grouping(self) -> str:
        if self._happens(0.25):
            return ""
        names = ", ".join(self._chance.sample(_GROUPS, self._chance.choice((0, 1, 1, 2, 3))))
        return f" {self._one(('by', 'by', 'by', 'without'))} ({names})"

    def _aggregation(self, depth: int) -> str:
        if self._happens(0.12):
            count = self._one(("1", "2", "5"))
            return f"{self._one(('topk', 'bottomk'))}{self._grouping()} ({count}, {self.vector(depth - 1)})"
        return f"{self._one(_AGGREGATIONS)}{self._grouping()} ({self.vector(depth - 1)})"

    def _range(self) -> str:
        stages = "".join(self._stage(45) for _ in range(self._chance.choice((0, 1, 1, 2, 2, 3))))
        length = f"[{self._one(_RANGES)}]"
        offset = f" offset {self._one(_OFFSETS)}" if self._happens(0.15) else ""
        if self._happens(0.6):
            return f"{self._one(_LINES)}({self.selector()}{stages}{self._no_errors()} {length}{offset})"
        op = self._one(_VALUES_OVER)
        parser = self._parser() if self._happens(0.8) else ""
        convert = self._one(("{}", "{}", "{}", "duration({})", "bytes({})", "duration_seconds({})"))
        unwrap = f"| unwrap {convert.format(self._one(('took', 'size', 'status', 'user_id')))}"
        after = self._one(("", "| __error__=``", "| __error__=``", "| __error__=``", "| status=`500`"))
        grouping = self._grouping() if op in _GROUPED else ""
        parameter = f"{self._one(('0.5', '0.9', '0', '1', '2'))}, " if op == "quantile_over_time" else ""
        return f"{op}({parameter}{self.selector()} {parser}{stages} {unwrap} {after} {length}{offset}){grouping}"

    def _no_errors(self) -> str:
        return self._one(("", '| __error__=""', _DROP_ERRORS, '| __error__=""'))

    def _vectors(self, depth: int) -> str:
        left, right = self.vector(depth - 1), self.vector(depth - 1)
        op = self._one(("+", "-", "*", "/", "%", "^", "==", "!=", ">", ">=", "<", "<=", "and", "or", "unless"))
        names = ", ".join(self._chance.sample(_GROUPS, self._chance.choice((0, 1, 2))))
        matching = self._one(("", "", f" on ({names})", f" ignoring ({names})"))
        is_set = op in ("and", "or", "unless")
        if matching and not is_set and self._happens(0.4):
            matching += f" {self._one(('group_left', 'group_right'))} ({self._one(('', 'env', 'level'))})"
        boolean = " bool" if op in ("==", "!=", ">", ">=", "<", "<=") and self._happens(0.3) else ""
        return f"({left}) {op}{boolean}{matching} ({right})"

    def _vector_and_scalar(self, depth: int) -> str:
        sides = [f"({self.vector(depth - 1)})", self._scalar(1)]
        self._chance.shuffle(sides)
        op = self._one(("+", "-", "*", "/", "%", "^", "==", "!=", ">", ">=", "<", "<="))
        boolean = " bool" if op in ("==", "!=", ">", ">=", "<", "<=") and self._happens(0.3) else ""
        return f"{sides[0]} {op}{boolean} {sides[1]}"

    def _scalar(self, depth: int) -> str:
        if depth and self._happens(0.4):
            return f"({self._scalar(depth - 1)} {self._one(('+', '-', '*', '/', '%', '^'))} {self._scalar(depth - 1)})"
        return self._one(("0", "1", "2", "0.5", "-1", "100"))
