"""DuckDB's SQL as sqlglot reads and writes it, made faithful: what goes in comes out, calls untouched.

sqlglot translates between dialects and therefore knows hundreds of functions, rewrites some of them and forgets
how they were spelled. Here nothing is translated: every call that has ordinary syntax stays a name with arguments,
so the list of allowed functions can be checked by name and DuckDB gets the call the user wrote.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp, generator
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import Token, TokenType

# Calls with words between their arguments: CAST(x AS t), EXTRACT(p FROM t), POSITION(a IN b) and so on.
_CALLS_WITH_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")


class _Parser(DuckDBParser):
    FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012  sqlglot declares it so
    FUNCTION_PARSERS = {name: DuckDBParser.FUNCTION_PARSERS[name] for name in _CALLS_WITH_SYNTAX}
    NO_PAREN_FUNCTION_PARSERS = {
        "ANY": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["ANY"],
        "CASE": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["CASE"],
        "MAP": lambda self: self._parse_map(),
    }
    # A path stays the text it is: DuckDB reads 'a.b' as one key, '$.a.b' as two.
    JSON_OPERATORS = {
        TokenType.ARROW: lambda self, this, path: exp.JSONExtract(this=this, expression=path),
        TokenType.DARROW: lambda self, this, path: exp.JSONExtractScalar(this=this, expression=path),
    }

    def _parse_map(self) -> Any:
        """MAP {'k': v} has its own node; map(keys, values) is a call like any other."""
        if self._match(TokenType.L_BRACE, advance=False):
            return self.expression(exp.ToMap(this=self._parse_bracket()))
        name: Token = self._prev
        arguments = self._parse_wrapped_csv(self._parse_assignment)
        return self.expression(exp.Anonymous(this=name.text, expressions=arguments), token=name)


class _Generator(DuckDBGenerator):
    def ignorenulls_sql(self, expression: exp.IgnoreNulls) -> str:
        return generator.Generator.ignorenulls_sql(self, expression)

    def withingroup_sql(self, expression: exp.WithinGroup) -> str:
        return generator.Generator.withingroup_sql(self, expression)


class LakeQL(DuckDB):
    """An index in brackets stays the index it is: sqlglot would count it from 0 in between."""

    INDEX_OFFSET = 0
    Parser = _Parser
    Generator = _Generator


DIALECT = LakeQL()
