"""Read the hostile inputs: text files of statements, raw HTTP requests, pushes and PromQL queries.

Comes in: the files beside this module. Goes out: frozen values with the text to send and what to expect of it.
README.md describes the notation: directives in leading comments, `{{name}}` for facts of the running lake,
`%%{"text" * N}%%` for a text that is too long to be written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPECTATIONS = ("any", "refused", "413", "late", "rows")
ENGINES = ("duckdb", "spark", "both")
_REPEATED = re.compile(r'%%\{("(?:[^"\\]|\\.)*") \* (\d+)(?: by ("(?:[^"\\]|\\.)*"))?\}%%')
_FACT = re.compile(r"\{\{([a-z_]+)\}\}")
_DIRECTIVE = re.compile(r"(?:--|#) *(expect|engine|parameters|body|never|door|type|packed|header|as|eol): *(.*)")
_STATEMENT_END = re.compile(r"\n[ \t]*(?:\n|;[ \t]*(?:\n|$))")


@dataclass(frozen=True)
class Statement:
    """One SQL statement; `engine` is empty where no line names one."""

    place: str
    text: str
    expect: str = "any"
    engine: str = ""
    parameters: Any = None
    body: Mapping[str, Any] = field(default_factory=dict)
    never: tuple[str, ...] = ()

    def runs_on(self, engine: str, *, whole: bool) -> bool:
        """Whether it is for this engine; Spark runs a statement that no line gives to it only with the whole list."""
        if not self.engine:
            return engine == "duckdb" or whole
        return self.engine in (engine, "both")

    def request(self, engine: str, facts: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON body of POST /api/v1/sql."""
        made: dict[str, Any] = {"query": filled(self.text, facts), "engine": engine, **self.body}
        if self.parameters is not None:
            made["parameters"] = json.loads(filled(json.dumps(self.parameters), facts))
        return made


@dataclass(frozen=True)
class RawRequest:
    """Bytes for a socket. `expect`: status codes, "refused" (any 4xx), "closed" (no answer) or "any"."""

    place: str
    text: str
    expect: tuple[str, ...] = ("any",)
    line_end: str = "\r\n"

    def data(self, facts: Mapping[str, str]) -> bytes:
        """Return what goes over the wire: the head's lines end with `line_end`, the body is as it stands.

        `Content-Length: auto` becomes the length of the body.
        """
        head, _, text = filled(self.text, facts).partition("\n\n")
        body = _bytes(text.removesuffix("\n"))
        head = head.replace("Content-Length: auto", f"Content-Length: {len(body)}")
        return _bytes(self.line_end.join(head.split("\n")) + 2 * self.line_end) + body


@dataclass(frozen=True)
class Push:
    """A body for a push door. `written`: text, hex or base64; `packed`: how the runner packs it before sending.

    `text` is written out from `short` when it is sent: all of them are megabytes that every collection would make.
    """

    place: str
    door: str
    short: str
    expect: tuple[str, ...] = ("any",)
    type: str = "application/json"
    written: str = "text"
    packed: str = "none"
    headers: tuple[tuple[str, str], ...] = ()

    @cached_property
    def text(self) -> str:
        return expanded(self.short)


@dataclass(frozen=True)
class PromqlQuery:
    """Parameters of a request to Prometheus' API, `path` below /prometheus/api/v1."""

    place: str
    path: str
    parameters: Mapping[str, str]
    expect: tuple[str, ...] = ("any",)


def statements() -> dict[str, list[Statement]]:
    """Return the statements of every file by the file's name, and those of the table of refusals."""
    found = {path.stem: list(_statements(path)) for path in sorted((HERE / "statements").glob("*.sql"))}
    return found | {"refused": _refused(HERE.parent / "lakeql" / "refused.txt")}


def _refused(path: Path) -> list[Statement]:
    """Read the table that tests/lakeql/test_lakeql_refused.py holds to the word: here only the answer's kind counts."""
    lines = path.read_text().splitlines()[::2]
    return [
        Statement(f"{path.name}:{2 * number + 1}", text, parameters=json.loads(text.partition(" -- ")[2] or "null"))
        for number, text in enumerate(lines)
    ]


def raw_requests() -> dict[str, list[RawRequest]]:
    return {path.stem: list(_raw_requests(path)) for path in sorted((HERE / "requests").glob("*.http"))}


def pushes() -> dict[str, list[Push]]:
    return {path.stem: list(_pushes(path)) for path in sorted((HERE / "pushes").glob("*.push"))}


def promql_queries() -> list[PromqlQuery]:
    """Read promql.txt: a line is a query, after `# path?name=value&...` lines that hold until the next one."""
    path, given, found = "query", {"time": "1704067260"}, []
    expect: tuple[str, ...] = ("any",)
    for number, line in enumerate((HERE / "promql.txt").read_text().splitlines(), 1):
        directives, rest = _directives(line)
        if directives:
            expect = tuple(directives["expect"].replace(",", " ").split())
        elif rest.startswith("# at "):
            path, _, query = rest.removeprefix("# at ").partition("?")
            given = dict(part.partition("=")[::2] for part in query.split("&") if part)
        elif rest.strip() and not rest.startswith("#"):
            found.append(PromqlQuery(f"promql.txt:{number}", path, {**given, "query": expanded(rest)}, expect))
    return found


def expanded(text: str) -> str:
    """Write out `%%{"text" * N}%%` and `%%{"text" * N by "separator"}%%`; {n} counts from 1, {p} from 0."""

    def repeat(match: re.Match[str]) -> str:
        part, separator = json.loads(match[1]), json.loads(match[3]) if match[3] else ""
        if "{n}" not in part and "{p}" not in part:
            return str(separator).join([part] * int(match[2]))
        return str(separator).join(
            part.replace("{n}", str(number)).replace("{p}", str(number - 1)) for number in range(1, int(match[2]) + 1)
        )

    return _REPEATED.sub(repeat, text)


def filled(text: str, facts: Mapping[str, str]) -> str:
    """Put facts of the running lake in the place of their names; an unknown name is a mistake in the file."""
    return _FACT.sub(lambda match: facts[match[1]], text)


def _statements(path: Path) -> Iterator[Statement]:
    """A block of comments alone sets what holds for the statements after it."""
    usual = Statement("", "")
    for line, block in _blocks(path.read_text(encoding="utf-8")):
        directives, text = _directives(block)
        made = replace(usual, **_statement_fields(directives, usual))
        if not re.sub(r"(?m)^--.*$", "", text).strip():
            usual = made
            continue
        yield replace(made, place=f"{path.name}:{line}", text=expanded(text))


def _statement_fields(directives: Mapping[str, str], usual: Statement) -> dict[str, Any]:
    found: dict[str, Any] = {name: directives[name] for name in ("expect", "engine") if name in directives}
    assert found.get("expect", "any") in EXPECTATIONS, found
    assert found.get("engine", "both") in ENGINES, found
    if "parameters" in directives:
        found["parameters"] = json.loads(expanded(directives["parameters"]))
    if "body" in directives:
        found["body"] = json.loads(directives["body"])
    if "never" in directives:
        found["never"] = (*usual.never, directives["never"])
    return found


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks between blank lines or lines with a semicolon alone, with the line that each begins at."""
    start = 0
    for end in [*(match.span() for match in _STATEMENT_END.finditer(text)), (len(text), len(text))]:
        block = text[start : end[0]].strip("\n")
        if block.strip(" \t;"):
            yield text.count("\n", 0, start) + 1, block
        start = end[1]


def _raw_requests(path: Path) -> Iterator[RawRequest]:
    for line, directives, text in _parts(path):
        yield RawRequest(
            f"{path.name}:{line}",
            expanded(text),
            tuple(directives.get("expect", "any").replace(",", " ").split()),
            {"lf": "\n", "crlf": "\r\n"}[directives.get("eol", "crlf")],
        )


def _pushes(path: Path) -> Iterator[Push]:
    for line, directives, text in _parts(path):
        yield Push(
            f"{path.name}:{line}",
            directives["door"],
            text.removeprefix("\n"),
            tuple(directives.get("expect", "any").replace(",", " ").split()),
            directives.get("type", "application/json"),
            directives.get("as", "text"),
            directives.get("packed", "none"),
            tuple(tuple(one.split(": ", 1)) for one in directives.get("header", "").split("; ") if one),  # type: ignore[misc]
        )


def _parts(path: Path) -> Iterator[tuple[int, dict[str, str], str]]:
    """Yield what stands between lines of `###`, with its directives."""
    line = 1
    for part in re.split(r"(?m)^###.*\n", path.read_text(encoding="utf-8")):
        directives, text = _directives(part)
        if text.strip():
            yield line, directives, text.removesuffix("\n")
        line += part.count("\n") + 1


def _directives(block: str) -> tuple[dict[str, str], str]:
    """Split directives from the text below them. Comments among them stay in SQL, and go elsewhere."""
    lines, found, kept = block.split("\n"), dict[str, str](), list[str]()
    for number, line in enumerate(lines):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match:
            found[match[1]] = match[2].strip()
        elif line.startswith("--"):
            kept.append(line)
        elif not line.startswith("# ") or line.startswith("# at "):
            return found, "\n".join([*kept, *lines[number:]])
    return found, "\n".join(kept)


def _bytes(text: str) -> bytes:
    r"""Encode as UTF-8, with `\xNN` for any byte."""
    parts = re.split(r"\\x([0-9a-fA-F]{2})", text)
    return b"".join(bytes.fromhex(part) if n % 2 else part.encode() for n, part in enumerate(parts))
