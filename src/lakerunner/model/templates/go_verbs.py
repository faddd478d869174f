"""One value by one verb of Go's Printf: `%v %d %x %q %5.2f` and the like, with their flags.

Comes in: a value, a verb and its flags. Goes out: text. A verb that does not fit the value is shown as Go shows it:
`%!d(string=x)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from lakerunner.model.display import go_quote, go_quote_character
from lakerunner.model.templates.go_values import (
    INTEGERS,
    MAPS,
    NIL,
    STRINGERS,
    TYPE_NAMES,
    Uint8,
    encode_text,
    float_text,
    sorted_items,
)

_MAX_RUNE = 0x10FFFF
_UNKNOWN = "\ufffd"
_BASES = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "x": "0x", "X": "0X"}
_MANTISSA_BITS = 52


@dataclass(slots=True)
class Flags:
    """`is_go`: `%#v`, a value as Go's source has it."""

    sharp: bool = False
    zero: bool = False
    plus: bool = False
    minus: bool = False
    space: bool = False
    width: int | None = None
    precision: int | None = None
    is_go: bool = False

    @classmethod
    def from_text(cls, text: str) -> Flags:
        return cls("#" in text, "0" in text, "+" in text, "-" in text, " " in text)

    def pad(self, text: str) -> str:
        missing = (self.width or 0) - len(text)
        if missing <= 0:
            return text
        if self.minus:
            return text + " " * missing
        return ("0" if self.zero else " ") * missing + text


def format_value(value: Any, verb: str, flags: Flags) -> str:
    """Write a value as `%` with the flags and the verb does."""
    if verb == "T":
        return flags.pad(NIL if value is None else TYPE_NAMES[type(value)])
    if verb == "v":
        flags = replace(flags, is_go=flags.sharp, sharp=False, plus=False)
    return _member(value, verb, flags)


def _member(value: Any, verb: str, flags: Flags) -> str:
    kind = type(value)
    if value is None:
        return flags.pad(NIL) if verb == "v" else f"%!{verb}({NIL})"
    text: str | None
    if kind is str:
        text = _text(value, verb, flags)
    elif kind in STRINGERS and verb in "vsxXq" and not flags.is_go:
        text = _text(str(value), verb, flags)
    elif kind in INTEGERS:
        text = _integer(value, verb, flags)
    elif kind is float:
        text = _float(value, verb, flags)
    elif kind in MAPS or kind is list:
        return _collection(value, verb, flags)
    elif kind is bool:
        text = flags.pad("true" if value else "false") if verb in "tv" else None
    else:
        text = _complex(value, verb, flags) if kind is complex else flags.pad(str(value))
    return _bad(value, verb, flags) if text is None else text


def _bad(value: Any, verb: str, flags: Flags) -> str:
    return f"%!{verb}({TYPE_NAMES[type(value)]}={_member(value, 'v', flags)})"


def _collection(value: Any, verb: str, flags: Flags) -> str:
    def shown(member: Any) -> str:
        if flags.is_go and member is None:
            return "interface {}(nil)"
        return NIL if member is None else _member(member, verb, flags)

    if flags.is_go:
        name = TYPE_NAMES[type(value)]
        if type(value) is list:
            return f"{name}{{{', '.join(map(shown, value))}}}"
        return f"{name}{{{', '.join(f'{shown(key)}:{shown(one)}' for key, one in sorted_items(value))}}}"
    if type(value) is list:
        return "[" + " ".join(map(shown, value)) + "]"
    return "map[" + " ".join(f"{shown(key)}:{shown(one)}" for key, one in sorted_items(value)) + "]"


# ---- strings


def _text(text: str, verb: str, flags: Flags) -> str | None:
    if verb in "xX":
        return _hexadecimal_text(text, verb, flags)
    if verb not in "svq":
        return None
    if flags.precision is not None and (verb != "v" or not flags.is_go):
        text = text[: flags.precision]
    if verb == "q" or (verb == "v" and flags.is_go):
        if flags.sharp and _can_backquote(text):
            return flags.pad(f"`{text}`")
        return flags.pad(_ascii(go_quote(text)) if flags.plus else go_quote(text))
    return flags.pad(text)


def _can_backquote(text: str) -> bool:
    return all(sign == "\t" or (sign >= " " and sign not in "`\x7f\ufeff" and sign.isprintable()) for sign in text)


def _ascii(quoted: str) -> str:
    return "".join(
        sign if sign.isascii() else f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
        for sign in quoted
    )


def _hexadecimal_text(text: str, verb: str, flags: Flags) -> str:
    data = encode_text(text)[: flags.precision]
    if not data:
        return flags.pad("")
    prefix = f"0{verb}" if flags.sharp else ""
    shown = " ".join(f"{prefix}{byte:02x}" for byte in data) if flags.space else prefix + data.hex()
    return flags.pad(shown.upper() if verb == "X" else shown)


# ---- integers


def _integer(value: int, verb: str, flags: Flags) -> str | None:
    if verb in "cqU":
        return _rune(value, verb, flags)
    if verb not in _BASES:
        return None
    if flags.is_go and type(value) is Uint8:
        return flags.pad(f"{int(value):#x}")
    digits = format(abs(int(value)), _BASES[verb])
    has_sign = value < 0 or flags.plus or flags.space
    least = 0
    if flags.precision is not None:
        least = flags.precision
        if not least and not value:
            return " " * (flags.width or 0)
    elif flags.zero and not flags.minus and flags.width is not None:
        least = flags.width - has_sign
    digits = digits.rjust(least, "0")
    if flags.sharp:
        digits = "0" + digits if _BASES[verb] == "o" and digits[0] != "0" else _PREFIXES.get(verb, "") + digits
    if verb == "O":
        digits = "0o" + digits
    sign = "-" if value < 0 else "+" if flags.plus else " " if flags.space else ""
    return replace(flags, zero=False).pad(sign + digits)


def _rune(value: int, verb: str, flags: Flags) -> str:
    if verb == "U":
        size = int(value) % (1 << 64)
        text = "U+" + format(size, "X").rjust(max(4, flags.precision or 0), "0")
        if flags.sharp and size <= _MAX_RUNE and chr(size).isprintable():
            text += f" '{chr(size)}'"
        return replace(flags, zero=False).pad(text)
    is_rune = 0 <= value <= _MAX_RUNE and not 0xD800 <= value < 0xE000
    sign = chr(value) if is_rune else _UNKNOWN
    if verb == "c":
        return flags.pad(sign)
    return flags.pad(_ascii(go_quote_character(sign)) if flags.plus else go_quote_character(sign))


# ---- doubles


def _float(value: float, verb: str, flags: Flags) -> str | None:
    digits = _float_digits(value, verb, flags)
    if not digits:
        return None
    negative = digits[0] == "-"
    digits = digits.lstrip("+-")
    sign = "-" if negative else "+" if flags.plus else " " if flags.space else ""
    if not math.isfinite(value):
        shown = "+" if digits == "Inf" and not sign else sign
        return replace(flags, zero=False).pad(shown + digits)
    if flags.sharp and verb != "b":
        digits = _with_point(digits, verb, flags)
    width = flags.width or 0
    if flags.zero and not flags.minus and sign:
        return sign + digits.rjust(width - 1, "0")
    return flags.pad(sign + digits)


def _float_digits(value: float, verb: str, flags: Flags) -> str:
    if not math.isfinite(value):
        return float_text(value) if verb in "vgGeEfFxXb" else ""
    precision = flags.precision
    if verb in "vgG":
        text = float_text(value) if precision is None else format(value, f".{precision}g")
    elif verb in "eEfF":
        text = format(value, f".{6 if precision is None else precision}{verb.lower()}")
    elif verb in "xX":
        text = _hexadecimal_float(value, precision)
    elif verb == "b":
        mantissa, exponent = math.frexp(value)
        text = f"{int(mantissa * (1 << 53))}p{exponent - 53:+d}"
    else:
        return ""
    return text.upper() if verb in "GEX" else text


def _hexadecimal_float(value: float, precision: int | None) -> str:
    sign = "-" if math.copysign(1, value) < 0 else ""
    mantissa, exponent = math.frexp(abs(value))
    bits, exponent = int(mantissa * (1 << _MANTISSA_BITS + 1)), exponent - 1 if value else 0
    if precision is not None and precision * 4 < _MANTISSA_BITS:
        dropped = _MANTISSA_BITS - precision * 4
        bits = round(bits / (1 << dropped)) << dropped  # both round half to even
        if bits >> _MANTISSA_BITS > 1:
            bits, exponent = bits >> 1, exponent + 1
    digits = f"{bits & (1 << _MANTISSA_BITS) - 1:013x}"
    digits = digits.rstrip("0") if precision is None else digits.ljust(precision, "0")[:precision]
    power = f"{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    return f"{sign}0x{bits >> _MANTISSA_BITS}{'.' if digits else ''}{digits}p{power}"


def _with_point(digits: str, verb: str, flags: Flags) -> str:
    """Add the decimal point and the zeros that `#` keeps."""
    place = next((place for place, sign in enumerate(digits) if sign in "eEpP" and verb not in "xX"), len(digits))
    number, tail = digits[:place], digits[place:]
    count = 0
    if verb in "vgG":
        count = 6 if flags.precision is None else flags.precision
        significant = number.replace(".", "").lstrip("0")
        count -= len(significant) or 1
    return number + ("" if "." in number else ".") + "0" * max(count, 0) + tail


def _complex(value: complex, verb: str, flags: Flags) -> str | None:
    real = _float(value.real, verb, flags)
    imaginary = _float(value.imag, verb, replace(flags, plus=True))
    return None if real is None else f"({real}{imaginary}i)"
