"""Check the kinds of an expression: what functions, operators and aggregations take.

Comes in: an expression as it was parsed. Goes out: the same, with `matching` only where two vectors are matched. What
always holds: of several mistakes the one is reported that Prometheus' own check finds first.
"""

from __future__ import annotations

from dataclasses import replace

from lakerunner.model.display import go_quote
from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import matches_empty
from lakerunner.promql.cursor import is_utf8
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.lexer import refusal
from lakerunner.series.aggregations import AGGREGATIONS
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Kind,
    Matching,
    Paren,
    Range,
    Selector,
    Subquery,
    Text,
    Unary,
    bare,
)
from lakerunner.series.function import Function, kind_of

COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
SET_OPERATORS = frozenset(("and", "or", "unless"))
DOCUMENTED = {Kind.VECTOR: "instant vector", Kind.MATRIX: "range vector", Kind.SCALAR: "scalar", Kind.STRING: "string"}
# Arguments that name a label: the function itself refuses invalid names.
_LABEL_ARGUMENTS = frozenset((("label_replace", 1), ("label_join", 1)))
_SCALAR_OR_VECTOR = (Kind.SCALAR, Kind.VECTOR)


def check_kinds(expression: Expression, text: str) -> Expression:
    """Check an expression and return it with `matching` settled. Raise UserError for the first mistake."""
    return _Check(text).check(expression)


def _kind(expression: Expression) -> Kind:
    return kind_of(expression, FUNCTIONS)


class _Check:
    def __init__(self, text: str) -> None:
        self._text = text

    def check(self, expression: Expression) -> Expression:
        match expression:
            case Aggregate():
                return self._aggregate(expression)
            case Binary():
                return self._binary(expression)
            case Call():
                return self._call(expression)
            case Paren(inner):
                return replace(expression, inner=self.check(inner))
            case Unary(_, inner):
                return self._unary(expression)
            case Subquery(inner):
                found = self.check(inner)
                if (kind := _kind(found)) is not Kind.VECTOR:
                    raise self._fail(expression, f"subquery is only allowed on instant vector, got {kind} instead")
                return replace(expression, inner=found)
            case Range(selector):
                self._selector(selector)
            case Selector():
                self._selector(expression)
            case Text(value) if not is_utf8(value):
                raise self._fail(expression, f"string {go_quote(value)} is not UTF-8")
        return expression

    def _fail(self, expression: Expression, message: str) -> UserError:
        return refusal(self._text, expression.span.start, message)

    def _require_kind(self, expression: Expression, wanted: Kind, context: str) -> Expression:
        found = self.check(expression)
        if (kind := _kind(found)) is not wanted:
            message = f"expected type {DOCUMENTED[wanted]} in {context}, got {DOCUMENTED[kind]}"
            raise self._fail(expression, message)
        return found

    def _aggregate(self, node: Aggregate) -> Aggregate:
        inner = self._require_kind(node.inner, Kind.VECTOR, "aggregation expression")
        parameter, wanted = node.parameter, AGGREGATIONS[node.op].parameter
        # A label's name is checked where it is used, not here: it may be a text that is not UTF-8.
        if parameter is not None and wanted and not (wanted is Kind.STRING and isinstance(bare(parameter), Text)):
            parameter = self._require_kind(parameter, wanted, "aggregation parameter")
        return replace(node, inner=inner, parameter=parameter)

    def _unary(self, node: Unary) -> Unary:
        inner = self.check(node.inner)
        if (kind := _kind(inner)) not in _SCALAR_OR_VECTOR:
            name = go_quote(DOCUMENTED[kind])
            message = f"unary expression only allowed on expressions of type scalar or instant vector, got {name}"
            raise self._fail(node, message)
        return replace(node, inner=inner)

    def _selector(self, node: Selector, may_be_empty: bool = False) -> None:
        if node.name:
            for matcher in node.matchers[:-1]:
                if matcher.name == NAME:
                    both = f"{go_quote(node.name)} or {go_quote(matcher.value)}"
                    raise self._fail(node, f"metric name must not be set twice: {both}")
        elif not may_be_empty and all(map(matches_empty, node.matchers)):
            raise self._fail(node, "vector selector must contain at least one non-empty matcher")

    def _binary(self, node: Binary) -> Binary:
        left, right = self.check(node.left), self.check(node.right)
        kinds = _kind(left), _kind(right)
        matching = node.matching or Matching()
        self._refuse_operator(node, kinds, matching)
        for side, kind in zip((left, right), kinds, strict=True):
            if kind not in _SCALAR_OR_VECTOR:
                raise self._fail(side, "binary expression must contain only scalar and instant vector types")
        settled = self._matching(node, kinds, matching)
        if Kind.SCALAR in kinds and node.op in SET_OPERATORS:
            raise self._fail(node, f"set operator {go_quote(node.op)} not allowed in binary scalar expression")
        return replace(node, left=left, right=right, matching=settled)

    def _refuse_operator(self, node: Binary, kinds: tuple[Kind, Kind], matching: Matching) -> None:
        """Refuse what Prometheus reports at the position of the operator instead of the expression's."""
        message = ""
        if node.return_bool and node.op not in COMPARISONS:
            message = "bool modifier can only be used on comparison operators"
        elif node.op in COMPARISONS and not node.return_bool and kinds == (Kind.SCALAR, Kind.SCALAR):
            message = "comparisons between scalars must use BOOL modifier"
        elif matching.on and (twice := [label for label in matching.labels if label in matching.include]):
            message = f"label {go_quote(twice[0])} must not occur in ON and GROUP clause at once"
        if message:
            end = node.left.span.end
            behind = self._text[end:]
            raise refusal(self._text, end + len(behind) - len(behind.lstrip(" \t\n\r")), message)

    def _matching(self, node: Binary, kinds: tuple[Kind, Kind], matching: Matching) -> Matching | None:
        fills = matching.fill_left is not None or matching.fill_right is not None
        if kinds != (Kind.VECTOR, Kind.VECTOR):
            if matching.labels:
                raise self._fail(node, "vector matching only allowed between instant vectors")
            if fills:
                raise self._fail(node, "filling in missing series only allowed between instant vectors")
            return None
        if node.op in SET_OPERATORS:
            if matching.card in ("one-to-many", "many-to-one"):
                raise self._fail(node, f"no grouping allowed for {go_quote(node.op)} operation")
            if fills:
                raise self._fail(node, "filling in missing series not allowed for set operators")
            return replace(matching, card="many-to-many")
        return matching

    def _call(self, node: Call) -> Call:
        function = FUNCTIONS[node.function]
        self._refuse_count(node, function)
        if node.function == "info" and len(node.arguments) > 1:
            self._refuse_info(node)
        arguments = [
            self._argument(node, place, argument, function.arguments[min(place, len(function.arguments) - 1)])
            for place, argument in enumerate(node.arguments)
        ]
        return replace(node, arguments=tuple(arguments))

    def _argument(self, node: Call, place: int, argument: Expression, wanted: Kind) -> Expression:
        if node.function == "info" and place == 1:
            return argument  # label matchers in the form of a selector, checked by _refuse_info
        if (node.function, place) in _LABEL_ARGUMENTS and isinstance(bare(argument), Text):
            return argument
        return self._require_kind(argument, wanted, f"call to function {go_quote(node.function)}")

    def _refuse_count(self, node: Call, function: Function) -> None:
        given, optional = len(node.arguments), function.optional
        most = len(function.arguments)
        least = most - abs(optional)
        message = ""
        if optional == 0:
            message = f"expected {most}" if given != most else ""
        elif given < least:
            message = f"expected at least {least}"
        elif optional > 0 and given > most:
            message = f"expected at most {most}"
        if message:
            raise self._fail(node, f"{message} argument(s) in call to {go_quote(node.function)}, got {given}")

    def _refuse_info(self, node: Call) -> None:
        selector = node.arguments[1]
        if (kind := _kind(selector)) is not Kind.VECTOR:
            message = f'expected type instant vector in call to function "info", got {DOCUMENTED[kind]}'
            raise self._fail(node, message)
        if not isinstance(selector, Selector):
            raise self._fail(selector, "expected label selectors only")
        if selector.name:
            raise self._fail(selector, "expected label selectors only, got vector selector instead")
        self._selector(selector, may_be_empty=True)
