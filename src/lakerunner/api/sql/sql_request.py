"""What a request to /api/v1/sql asks: its JSON body and `?format=`, checked. Nothing that is not understood passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from lakerunner.api.formats.choose import FORMATS, format_accepted, format_named
from lakerunner.api.formats.format import Format
from lakerunner.model.errors import UserError

ENGINES = ("duckdb", "spark")
_FIELDS = ("query", "parameters", "partial", "engine", "format")
_QUERY_STRING = ("format",)


@dataclass(frozen=True)
class Asked:
    """`parameters` by name; those of a list are called 1, 2, ..."""

    text: str
    parameters: Mapping[str, Any]
    partial: bool
    engine: str
    format: Format

    @classmethod
    def of(cls, body: Mapping[str, Any], query_string: Mapping[str, str], accept: str) -> Asked:
        """UserError for what is not understood, HTTPException 406 for an Accept that cannot be served."""
        _refuse_unknown(body, _FIELDS, "the body")
        _refuse_unknown(query_string, _QUERY_STRING, "the query string")
        text = body.get("query")
        if not isinstance(text, str):
            raise UserError('the body must be {"query": "select ...", ...}: `query` is not a text')
        chosen = _format(body.get("format"), query_string.get("format"), accept)
        return cls(text, _parameters(body.get("parameters")), _partial(body, chosen), _engine(body), chosen)


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(known)}"
            raise UserError(f"{where} has an unknown field {name!r}: {hint}")


def _format(in_body: Any, in_query_string: str | None, accept: str) -> Format:
    if not isinstance(in_body, str | None):
        raise UserError(f"`format` must be one of {', '.join(FORMATS)}")
    named = {name for name in (in_body, in_query_string) if name is not None}
    if not named:
        return format_accepted(accept)
    if len(named) > 1:
        raise UserError(f"the body names format {in_body!r}, the query string {in_query_string!r}: name only one")
    (name,) = named
    return format_named(name)


def _parameters(given: Any) -> Mapping[str, Any]:
    match given:
        case None:
            return {}
        case dict():
            return given
        case list():
            return {str(number): value for number, value in enumerate(given, 1)}
    raise UserError("`parameters` must be an object of names and values, or a list of the values of $1, $2, ...")


def _partial(body: Mapping[str, Any], chosen: Format) -> bool:
    given = body.get("partial")
    if given is not None and not isinstance(given, bool):
        raise UserError("`partial` must be true or false")
    if given and chosen.partial is None:
        able = " or ".join(name for name, one in FORMATS.items() if one.partial is not None)
        raise UserError(f"{chosen.name} cannot list missing data: request partial answers as {able}")
    return bool(chosen.partial) if given is None else given


def _engine(body: Mapping[str, Any]) -> str:
    given = body.get("engine", ENGINES[0])
    if given not in ENGINES:
        raise UserError(f"unknown engine {given!r}: use one of {', '.join(ENGINES)}")
    return str(given)
