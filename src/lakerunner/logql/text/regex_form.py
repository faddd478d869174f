"""Tell whether Loki turns a regular expression of a label filter into plain comparisons.

Comes in: a pattern that compiles. Goes out: a yes or no, which decides how the canonical text quotes it. What always
holds: literals, `.*` around one literal, and alternatives of them are simple. Go's parser joins alternatives that begin
alike, and single characters to a class, and Loki does not simplify classes: `foo1|foo2` is not simple. Patterns with
groups inside others are taken as not simple.
"""

from __future__ import annotations

import re
from itertools import groupby, pairwise, takewhile

_LITERAL = r"(?:[^\\.+*?()|\[\]{}^$]|\\[^\w\s])"
_ALTERNATIVE = re.compile(rf"(?:\.\*)?{_LITERAL}+(?:\.\*)?|\.[*+]|")
_ONLY_LITERAL = re.compile(rf"{_LITERAL}*")
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)")
_FOLD = "(?i)"


def is_simple_regex(pattern: str) -> bool:
    """Return whether the pattern is compared without a regular expression."""
    body = pattern.removeprefix(_FOLD)
    while group := _GROUP.fullmatch(body):
        body = group[1]
    alternatives = re.split(r"(?<!\\)\|", body)
    if not all(_ALTERNATIVE.fullmatch(one) for one in alternatives):
        return False
    if len(alternatives) == 1:
        return True
    if not all(_ONLY_LITERAL.fullmatch(one) for one in alternatives):
        return not any(len(one) == 1 for one in alternatives)
    return not _has_class([re.sub(r"\\(.)", r"\1", one) for one in alternatives])


def _has_class(literals: list[str]) -> bool:
    """Return whether Go makes a class of characters of some of the alternatives."""
    lengths = []
    for _, run in groupby(literals, key=lambda literal: literal[:1]):
        alike = list(run)
        if len(alike) > 1 and alike[0]:
            shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*alike, strict=False)))
            if _has_class([literal[shared:] for literal in alike]):
                return True
        lengths.append(len(alike[0]) if len(alike) == 1 else 0)
    return any(left == right == 1 for left, right in pairwise(lengths))
