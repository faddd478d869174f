"""Queries read by us and by a real Prometheus: the same tree, the same text over several lines, the same mistake at the
same place; and regular expressions that match the same values."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from conformance.peer import OURS, prometheus
from conformance.run import scripts
from lakerunner.model.errors import UserError
from lakerunner.model.regex import compile_capturing
from lakerunner.promql.document import document
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import pretty_text

pytestmark = pytest.mark.slow
_EVAL = re.compile(r"\s*eval(?:_\w+)?\s+(?:instant at \S+|range from \S+ to \S+ step \S+)\s+(.*)")
_TOKEN = re.compile(r'\s+|"[^"]*"|[\w.:]+|[=!<>]=?~?|.')
_pieces = re.compile(r"\S+").findall
_INSERTED = _pieces(
    "offset @ [ ] ( ) { } : , + - * / % ^ step() range() min_of( max_of( start() end start anchored smoothed 5m 1 0 -1"
    " foo sum by without (a) on ignoring group_left fill(1) fill_right(-3) bool == != < </ and or topk( rate( foo[5m]"
    " {a='b'} {'x'} 'str' NaN 0x1f 08 # info( time() =~ ! 1e 5.m a:b"
)
# Where we say otherwise, and why: docs/formats/promql.md.
_NO_JSON = "unsupported value"
_NOT_UTF8 = "is not UTF-8"
_PATTERNS = _pieces(
    "a b k é \u017f 1 _ - . ^ $ | ( ) (?: (?i) (?i: (?-s:. (?m: (?P<n> [ab] [^ab] [a-z] [^a-z] [[:alpha:]] [[:^digit:]]"
    r" [\d_] [\W] [-a] []a] \d \D \w \W \s \b \B \A \z \Z \. \x41 \x{e9} \101 \1 \Qa.b\E * + ? *? +? {2} {1,2} {,2} {"
    r" } \C (?= (?<= (?U: i"
)
_VALUES = ["a", "b", "k", "K", "\u212a", "s", "\u017f", "é", "É", "1", "_", " ", "-", ".", "A", "\n", "\u0130", "{", ""]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        prometheus(tmp_path_factory.mktemp("prometheus") / "work") as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=60) as client,
    ):
        yield client


def _script_queries() -> list[str]:
    paths = [path for path in scripts((), "promql") if path.name not in OURS]
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return [found[1].strip() for line in lines if (found := _EVAL.match(line))]


def _odd_queries() -> list[str]:
    return (Path(__file__).parent / "odd_queries.txt").read_text().split("\n")


def _broken_queries(count: int) -> Iterator[str]:
    """Queries with something missing, added or doubled."""
    chance = random.Random(6)
    whole = _script_queries() + _odd_queries()
    while count:
        tokens = _TOKEN.findall(chance.choice(whole))
        if len(tokens) > 60:
            continue
        for _ in range(chance.randint(1, 2)):
            at, other = chance.randrange(len(tokens) + 1), chance.randrange(len(tokens) + 1)
            change = chance.choice(("missing", "added", "doubled"))
            if change == "missing":
                del tokens[at : at + 1]
            else:
                piece = tokens[min(at, other) : max(at, other)][:8]
                tokens[at:at] = [chance.choice(_INSERTED)] if change == "added" else piece
        yield "".join(tokens)
        count -= 1


def _difference(client: httpx.Client, query: str) -> str | None:
    answer = client.post("/parse_query", data={"query": query})
    if _NO_JSON in answer.text:
        return None
    theirs = answer.json()
    try:
        ours = parse(query)
    except UserError as error:
        if _NOT_UTF8 in error.message:
            return None
        said = theirs.get("error", "nothing").removeprefix('invalid parameter "query": ')
        place, told = _told(error, query), str(said)
        if "error parsing regexp" in told:  # the reason in our own words
            place, told = (text.partition("error parsing regexp")[0] for text in (place, told))
        return None if place == told else f"{query!r}\n  ours:   {place}\n  theirs: {said}"
    if theirs["status"] != "success":
        return f"{query!r}: {theirs['error']}"
    if (found := json.loads(json.dumps(document(ours)))) != theirs["data"]:
        return f"{query!r}\n  ours:   {found}\n  theirs: {theirs['data']}"
    pretty = client.post("/format_query", data={"query": query}).json()["data"]
    return None if pretty == pretty_text(ours) else f"{query!r}\n{pretty_text(ours)}\n{pretty}"


def _told(error: UserError, query: str) -> str:
    """As Prometheus writes it, which counts columns in bytes."""
    if error.position is None:
        return f"unknown position: {error.message}"
    before = query.split("\n")[error.position.line - 1][: error.position.column - 1]
    return f"{error.position.line}:{len(before.encode()) + 1}: {error.message}"


def test_queries(client: httpx.Client) -> None:
    queries = dict.fromkeys([*_script_queries(), *_odd_queries(), *_broken_queries(3000)])
    found = [difference for query in queries if (difference := _difference(client, query))]
    assert len(queries) > 4000
    assert not found, "\n".join(found)


def test_regular_expressions(client: httpx.Client) -> None:
    """Through label_replace, which tells of the whole match and of its first group."""
    chance = random.Random(6)
    matched = 0
    for _ in range(3000):
        pattern = "".join(chance.choice(_PATTERNS) for _ in range(chance.randint(1, 4)))
        value = "".join(chance.choice(_VALUES) for _ in range(chance.randint(0, 2)))
        theirs = _replaced(client, pattern, value)
        ours = _matched(pattern, value)
        assert ours in (theirs, "excused"), (pattern, value, theirs)
        matched += bool(ours)
    assert matched > 100


def _matched(pattern: str, value: str) -> str | None:
    """None: refused."""
    try:
        found = compile_capturing(pattern).groups(value)
    except UserError as error:  # Go has several groups of one name
        return "excused" if "invalid named capture" in error.message else None
    return "" if found is None else f"<{found[1] if len(found) > 1 else ''}|{found[0]}>"


def _replaced(client: httpx.Client, pattern: str, value: str) -> str | None:
    """None: refused."""
    source, regex = (json.dumps(text, ensure_ascii=False) for text in (value, pattern))
    query = f'label_replace(label_replace(vector(1), "x", {source}, "", ""), "r", "<$1|$0>", "x", {regex})'
    answer = client.post("/query", data={"query": query, "time": "0"}).json()
    return answer["data"]["result"][0]["metric"].get("r", "") if answer["status"] == "success" else None
