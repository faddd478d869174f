"""DuckDB's SQL as sqlglot reads and writes it, made faithful: what goes in comes out, calls untouched.

sqlglot translates between dialects and therefore knows hundreds of functions, rewrites some of them and forgets
how they were spelled. Here nothing is translated: every call that has ordinary syntax stays a name with arguments,
so the list of allowed functions can be checked by name and DuckDB gets the call the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp, generator
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

# Calls with words between their arguments that sqlglot reads and writes well: CAST(x AS t), TRIM(BOTH a FROM b).
_CALLS_WITH_SYNTAX = ("CAST", "TRY_CAST", "SUBSTRING", "TRIM")


class _Parser(DuckDBParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: DuckDBParser.FUNCTION_PARSERS[name] for name in _CALLS_WITH_SYNTAX},
        "EXTRACT": lambda self: self._parse_extract_call(),
        "POSITION": lambda self: self._parse_position_call(),
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "ANY": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["ANY"],
        "CASE": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["CASE"],
        "MAP": lambda self: self._parse_map(),
    }
    # sqlglot takes list(x)[1] and array[1] for literals and forgets what was indexed; a literal is written [1].
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}
    # A path stays the text it is: DuckDB reads 'a.b' as one key, '$.a.b' as two.
    JSON_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        TokenType.ARROW: lambda _, this, path: exp.JSONExtract(this=this, expression=path),
        TokenType.DARROW: lambda _, this, path: exp.JSONExtractScalar(this=this, expression=path),
    }

    def expression(self, instance: Any, token: Token | None = None, comments: list[str] | None = None) -> Any:
        """Give a node without parts, like CURRENT_DATE, its position too."""
        node = super().expression(instance, token, comments)
        if token is None and self._prev and not any(node.iter_expressions()):
            node.update_positions(self._prev)
        return node

    def _warn_unsupported(self) -> None:
        """Refuse what cannot be parsed; sqlglot would log it and pass it on as a command."""
        self.raise_error("Unexpected token")

    def _parse_extract_call(self) -> Any:
        """Parse EXTRACT(part FROM x) as date_part('part', x), for any part."""
        name: Token = self._tokens[self._index - 2]
        part = self._parse_string() or self._parse_var(any_token=True)
        if not self._match(TokenType.FROM):
            self.raise_error("Expecting FROM")
        arguments = [exp.Literal.string(part.name if part else ""), self._parse_bitwise()]
        return self.expression(exp.Anonymous(this="date_part", expressions=arguments), token=name)

    def _parse_position_call(self) -> Any:
        """Parse POSITION(a IN b) as strpos(b, a); position(b, a) is the same, with its arguments in DuckDB's order."""
        name: Token = self._tokens[self._index - 2]
        first = self._parse_bitwise()
        if self._match(TokenType.IN):
            arguments = [self._parse_bitwise(), first]
        else:
            self._match(TokenType.COMMA)
            arguments = [first, self._parse_bitwise()]
        return self.expression(exp.Anonymous(this="strpos", expressions=arguments), token=name)

    def _parse_map(self) -> Any:
        """Parse MAP {'k': v} to its own node; map(keys, values) is a call like any other."""
        if self._match(TokenType.L_BRACE, advance=False):
            return self.expression(exp.ToMap(this=self._parse_bracket()))
        name: Token = self._prev
        arguments = self._parse_wrapped_csv(self._parse_assignment)
        return self.expression(exp.Anonymous(this=name.text, expressions=arguments), token=name)


class _Generator(DuckDBGenerator):
    MULTI_ARG_DISTINCT = True
    SUPPORTS_WINDOW_EXCLUDE = True

    def not_sql(self, expression: exp.Not) -> str:
        """Write x IS NOT NULL as it was written; sqlglot has only NOT x IS NULL."""
        inner = expression.this
        if isinstance(inner, exp.Is):
            return f"{self.sql(inner, 'this')} IS NOT {self.sql(inner, 'expression')}"
        return super().not_sql(expression)

    def ignorenulls_sql(self, expression: exp.IgnoreNulls) -> str:
        return generator.Generator.ignorenulls_sql(self, expression)

    def withingroup_sql(self, expression: exp.WithinGroup) -> str:
        return generator.Generator.withingroup_sql(self, expression)


class _Tokenizer(DuckDB.Tokenizer):
    # In DuckDB `list` is a function and may name a column; the type is written INTEGER[].
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        word: kind for word, kind in DuckDB.Tokenizer.KEYWORDS.items() if word != "LIST"
    }


class LakeQL(DuckDB):
    """DuckDB's dialect, except that an index in brackets is kept as it is: sqlglot would convert it to 0-based and
    back."""

    INDEX_OFFSET = 0
    Tokenizer = _Tokenizer
    Parser = _Parser
    Generator = _Generator


DIALECT = LakeQL()


def to_sql(node: exp.Expr, *, identify: bool = True) -> str:
    """Return the SQL of a tree or of a part of it. `identify`: quote every name, so that none is taken for a
    keyword."""
    return node.sql(
        DIALECT, identify=identify, normalize_functions=False, comments=False, unsupported_level=ErrorLevel.RAISE
    )
