"""Functions of templates on texts: case, trimming, cutting, padding, encodings and regular expressions.

What always holds: positions and lengths count bytes, as in Go, except where a function counts characters in Go too
(alignLeft, alignRight).
"""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from lakerunner.model.display import go_quote
from lakerunner.model.templates.builtin_functions import query_escape
from lakerunner.model.templates.go_patterns import count_matches, replace_matches
from lakerunner.model.templates.go_values import decode_text, encode_text
from lakerunner.model.templates.limits import check_length
from lakerunner.model.templates.signatures import ANY, INT, STRING, TemplateFunction

# What Go's unicode.IsSpace accepts; Python would strip the separators 0x1c to 0x1f too.
_BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)
_LONE = re.compile("[\ud800-\udfff]")
_UNKNOWN = "\ufffd"
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")

# ---- case: Go maps character by character, while Python lets one become several, and looks at its neighbours


def _lower_sign(sign: str) -> str:
    low = sign.lower()
    return low if len(low) == 1 else "i" if sign == "\u0130" else sign


def _upper_sign(sign: str) -> str:
    for form in (sign.upper(), sign.title()):
        if len(form) == 1:
            return form
    return sign


def lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join(map(_lower_sign, _LONE.sub(_UNKNOWN, text)))


def upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(map(_upper_sign, _LONE.sub(_UNKNOWN, text)))


def _title_sign(sign: str) -> str:
    form = sign.title()
    return form if len(form) == 1 else sign


def title(text: str) -> str:
    """Capitalize the first letter of each word; the others stay as they are."""
    parts, before = [], " "
    for sign in text if text.isascii() else _LONE.sub(_UNKNOWN, text):
        parts.append(_title_sign(sign) if _separates(before) else sign)
        before = sign
    return "".join(parts)


def _separates(sign: str) -> bool:
    if sign.isascii():
        return not (sign.isalnum() or sign == "_")
    return not (sign.isalpha() or sign.isdecimal()) and sign in _BLANKS


# ---- cutting and padding


def truncate(count: int, text: str) -> str:
    """Keep the first bytes, or the last ones for a negative count."""
    data = encode_text(text)
    if count < 0 and len(data) + count > 0:
        return decode_text(data[count:])
    return decode_text(data[:count]) if 0 <= count < len(data) else text


def substring(start: int, end: int, text: str) -> str:
    """Return the bytes from start to end; a negative end stands for the end of the text."""
    data = encode_text(text)
    if start < 0:
        if end < 0:
            raise ValueError(f"runtime error: slice bounds out of range [:{end}]")
        if end > len(data):
            raise ValueError(f"runtime error: slice bounds out of range [:{end}] with length {len(data)}")
        return decode_text(data[:end])
    if end < 0 or end > len(data):
        end = len(data)
    if start > end:
        raise ValueError(f"runtime error: slice bounds out of range [{start}:{end}]")
    return decode_text(data[start:end])


def replace_all(old: str, new: str, text: str) -> str:
    return replace(text, old, new, -1)


def replace(text: str, old: str, new: str, count: int) -> str:
    """Replace the first `count` occurrences, all of them for a negative count."""
    found = text.count(old) if count < 0 else min(text.count(old), count)
    check_length(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def repeat(count: int, text: str) -> str:
    if count < 0:
        raise ValueError("strings: negative Repeat count")
    check_length(count * len(text))
    return text * count


def indent(spaces: int, text: str) -> str:
    pad = repeat(spaces, " ")
    return pad + replace(text, "\n", f"\n{pad}", -1)


def align_left(count: int, text: str) -> str:
    if count < 0:
        return text
    check_length(count)
    return text.ljust(count) if count >= len(text) else _LONE.sub(_UNKNOWN, text[:count])


def align_right(count: int, text: str) -> str:
    if count < 0:
        return text
    check_length(count)
    return text.rjust(count) if count >= len(text) else _LONE.sub(_UNKNOWN, text[len(text) - count :])


# ---- encodings


def encode_base64(text: str) -> str:
    return base64.b64encode(encode_text(text)).decode()


def decode_base64(text: str) -> str:
    """Return the decoded text, or what is wrong with it: the template shows that in its place."""
    data = encode_text(text).replace(b"\r", b"").replace(b"\n", b"")
    if not _BASE64.fullmatch(data):
        return f"illegal base64 data at input byte {_bad_base64_byte(encode_text(text))}"
    return decode_text(base64.b64decode(data))


def _bad_base64_byte(data: bytes) -> int:
    """Return where Go's decoder stops: at the first byte that cannot stand there."""
    count = 0
    for place, byte in enumerate(data):
        if byte in b"\r\n":
            continue
        if byte == ord("="):
            return _bad_padding(data, place, count)
        if not (chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "+/")):
            return place
        count += 1
    return len(data) - count % 4 if count % 4 else len(data)


def _bad_padding(data: bytes, place: int, count: int) -> int:
    if count % 4 < 2:
        return place
    rest = data[place + 1 :]
    signs = [(at, byte) for at, byte in enumerate(rest, place + 1) if byte not in b"\r\n"]
    if count % 4 == 2:
        if not signs:
            return len(data)
        if signs[0][1] != ord("="):
            return signs[0][0] - 1
        signs = signs[1:]
    return signs[0][0] if signs else len(data)


def query_unescape(text: str) -> str:
    found = _BAD_ESCAPE.search(text)
    if found:
        data = encode_text(text[found.start() :])[:3]
        raise ValueError(f"invalid URL escape {go_quote(decode_text(data))}")
    return decode_text(unquote_to_bytes(encode_text(text.replace("+", " "))))


def default(standard: Any, *given: Any) -> Any:
    """Return the value, or the standard one where it is missing or zero."""
    if given and (given[0] or not isinstance(given[0], str | bool | int | float | complex | list | dict | None)):
        return given[0]
    return standard


_T, _TT, _TTT = (STRING,), (STRING, STRING), (STRING, STRING, STRING)
TEXT_FUNCTIONS: dict[str, TemplateFunction] = {
    "ToLower": TemplateFunction(lower, _T),
    "ToUpper": TemplateFunction(upper, _T),
    "lower": TemplateFunction(lower, _T),
    "upper": TemplateFunction(upper, _T),
    "title": TemplateFunction(title, _T),
    "Replace": TemplateFunction(replace, (*_TTT, INT)),
    "replace": TemplateFunction(replace_all, _TTT),
    "Trim": TemplateFunction(lambda text, signs: text.strip(signs), _TT),
    "TrimLeft": TemplateFunction(lambda text, signs: text.lstrip(signs), _TT),
    "TrimRight": TemplateFunction(lambda text, signs: text.rstrip(signs), _TT),
    "TrimPrefix": TemplateFunction(lambda text, prefix: text.removeprefix(prefix), _TT),
    "TrimSuffix": TemplateFunction(lambda text, suffix: text.removesuffix(suffix), _TT),
    "TrimSpace": TemplateFunction(lambda text: text.strip(_BLANKS), _T),
    "trim": TemplateFunction(lambda text: text.strip(_BLANKS), _T),
    "trimAll": TemplateFunction(lambda signs, text: text.strip(signs), _TT),
    "trimPrefix": TemplateFunction(lambda prefix, text: text.removeprefix(prefix), _TT),
    "trimSuffix": TemplateFunction(lambda suffix, text: text.removesuffix(suffix), _TT),
    "trunc": TemplateFunction(truncate, (INT, STRING)),
    "substr": TemplateFunction(substring, (INT, INT, STRING)),
    "contains": TemplateFunction(lambda part, text: part in text, _TT),
    "hasPrefix": TemplateFunction(lambda prefix, text: text.startswith(prefix), _TT),
    "hasSuffix": TemplateFunction(lambda suffix, text: text.endswith(suffix), _TT),
    "indent": TemplateFunction(indent, (INT, STRING)),
    "nindent": TemplateFunction(lambda spaces, text: "\n" + indent(spaces, text), (INT, STRING)),
    "repeat": TemplateFunction(repeat, (INT, STRING)),
    "alignLeft": TemplateFunction(align_left, (INT, STRING)),
    "alignRight": TemplateFunction(align_right, (INT, STRING)),
    "b64enc": TemplateFunction(encode_base64, _T),
    "b64dec": TemplateFunction(decode_base64, _T),
    "urlencode": TemplateFunction(query_escape, _T),
    "urldecode": TemplateFunction(query_unescape, _T),
    "regexReplaceAll": TemplateFunction(replace_matches, _TTT),
    "regexReplaceAllLiteral": TemplateFunction(
        lambda pattern, text, new: replace_matches(pattern, text, new, is_literal=True), _TTT
    ),
    "count": TemplateFunction(count_matches, _TT),
    "default": TemplateFunction(default, (ANY,), ANY),
}
