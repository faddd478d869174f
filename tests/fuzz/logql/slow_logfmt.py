"""logfmt, one character after the other, for tests: a pair that is wrong is passed over, or ends the reading."""

from __future__ import annotations

from collections.abc import Iterator

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "'": "'", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class BadPair(Exception):
    """A pair cannot be read; `end` is where the next one may begin."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


def read_pairs(line: str, *, stop_at_fault: bool = False, raise_fault: bool = False) -> Iterator[tuple[str, str]]:
    at = 0
    while True:
        while at < len(line) and line[at] <= " ":
            at += 1
        if at == len(line):
            return
        try:
            key, value, at = _pair(line, at)
        except BadPair as bad:
            if raise_fault:
                raise
            if stop_at_fault:
                return
            at = bad.end
            continue
        yield key, value


def _word(line: str, at: int) -> str:
    end = at
    while end < len(line) and line[end] > " " and line[end] not in '="':
        end += 1
    return line[at:end]


def _rest(line: str, at: int) -> int:
    while at < len(line) and line[at] > " ":
        at += 1
    return at


def _pair(line: str, at: int) -> tuple[str, str, int]:
    key = _word(line, at)
    at += len(key)
    sign = line[at : at + 1]
    if sign == '"' or (sign == "=" and not key) or "\ufffd" in key:
        raise BadPair(_rest(line, at))
    if sign != "=":
        return key, "", at
    at += 1
    if line[at : at + 1] == '"':
        value, at = _quoted(line, at + 1)
        return key, value, at
    value = _word(line, at)
    at += len(value)
    if line[at : at + 1] in ("=", '"') and at < len(line):
        raise BadPair(_rest(line, at))
    return key, value, at


def _quoted(line: str, at: int) -> tuple[str, int]:
    found: list[str] = []
    wrong = False
    while at < len(line):
        sign = line[at]
        if sign == '"':
            if wrong:
                raise BadPair(at + 1)
            return "".join(found), at + 1
        if sign != "\\":
            found.append(sign)
            at += 1
            continue
        escape = line[at + 1 : at + 2]
        if escape == "u":
            digits = line[at + 2 : at + 6]
            try:
                found.append(chr(int(digits, 16)))
            except ValueError:
                wrong = True
                at += 2
                continue
            at += 6
            continue
        wrong = wrong or escape not in _ESCAPES
        found.append(_ESCAPES.get(escape, ""))
        at += 2
    raise BadPair(len(line))
