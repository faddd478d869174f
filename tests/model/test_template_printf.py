"""Go's Printf: verbs, flags, arguments by number, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from lakerunner.model.templates.go_time import GoTime
from lakerunner.model.templates.go_values import Int64, JsonMap, Month, Uint8
from lakerunner.model.templates.printf import sprintf


@pytest.mark.parametrize(
    ("text", "values", "output"),
    [
        ("plain %% text", (), "plain % text"),
        # strings
        ("%s|%v|%5s|%-5s|%.2s|%05s", ("abc",) * 6, "abc|abc|  abc|abc  |ab|00abc"),
        ("%q|%+q|%#q|%x|%X|% x|%#x|%# x", ("é",) * 8, '"é"|"\\u00e9"|`é`|c3a9|C3A9|c3 a9|0xc3a9|0xc3 0xa9'),
        ("%q %x", ("a\udcffb", "\udcff"), '"a\\xffb" ff'),
        ("%4x|%.1x|%x", ("a", "ab", ""), "  61|61|"),
        # integers
        ("%d|%v|%5d|%-5d|%05d|%+d|% d", (42,) * 7, "42|42|   42|42   |00042|+42| 42"),
        ("%x|%X|%#x|%o|%#o|%O|%b|%#b", (42,) * 8, "2a|2A|0x2a|52|052|0o52|101010|0b101010"),
        ("%.3d|%5.3d|%.0d|%06d", (-5, 5, 0, -42), "-005|  005||-00042"),
        ("%c|%q|%U|%#U|%3c|%+q", (65, 65, 0x263A, 0x263A, 65, 0xE9), "A|'A'|U+263A|U+263A '☺'|  A|'\\u00e9'"),
        ("%c", (0x110000,), "\ufffd"),
        ("%v %d %#v", (Int64(-1), Uint8(7), Uint8(7)), "-1 7 0x7"),
        # doubles
        ("%v %v %v %v %v", (1e20, 1e-5, 0.0001, 123456.0, 1234567.5), "1e+20 1e-05 0.0001 123456 1.2345675e+06"),
        (
            "%f|%.2f|%8.3f|%-8.2f|%08.2f|%+.1f|% .1f",
            (3.14159,) * 7,
            "3.141590|3.14|   3.142|3.14    |00003.14|+3.1| 3.1",
        ),
        (
            "%e|%E|%g|%G|%.3g|%.10g",
            (1234567.0,) * 6,
            "1.234567e+06|1.234567E+06|1.234567e+06|1.234567E+06|1.23e+06|1234567",
        ),
        ("%x|%X|%.2x|%b", (1.5, 1.5, 1.999, 1.0), "0x1.8p+00|0X1.8P+00|0x1.00p+01|4503599627370496p-52"),
        ("%#g|%#.3g|%#f|%08.1f", (1.0, 2.5, 3.0, -1.25), "1.00000|2.50|3.000000|-00001.2"),
        ("%v|%5.1f|%+f|%05f", (float("nan"), float("inf"), float("inf"), float("-inf")), "NaN| +Inf|+Inf| -Inf"),
        ("%.1f", (1 + 2j,), "(1.0+2.0i)"),
        # others
        ("%t|%v|%7t", (True, False, True), "true|false|   true"),
        ("%v|%s|%d|%T|%6v", (None,) * 5, "<nil>|%!s(<nil>)|%!d(<nil>)|<nil>| <nil>"),
        ("%T %T %T %T %T", ("", 1, Int64(1), 1.5, True), "string int int64 float64 bool"),
        (
            "%v %d",
            ([1.5, "x", None], JsonMap(b=1.0, a="s")),
            "[1.5 x <nil>] map[%!d(string=a):%!d(string=s) %!d(string=b):%!d(float64=1)]",
        ),
        (
            "%#v %#v",
            ([1.5, "x", None], {"b": "c"}),
            '[]interface {}{1.5, "x", interface {}(nil)} map[string]string{"b":"c"}',
        ),
        ("%#v %#v %#v %+v", ("s", 1, 1.0, "s"), '"s" 1 1 s'),
        ("%s|%d|%q|%10v|%T", (Month(5),) * 5, 'May|5|"May"|       May|time.Month'),
        ("%s %T", (GoTime.from_ns(0), GoTime.from_ns(0)), "1970-01-01 00:00:00 +0000 UTC time.Time"),
        # arguments by number, widths from arguments
        ("%[2]s %[1]s", ("a", "b"), "b a"),
        ("%[1]d %d %[1]d", (1, 2), "1 2 1"),
        ("%*d|%-*d|%*d|%.*f", (4, 1, 4, 1, -4, 1, 2, 3.14159), "   1|1   |1   |3.14"),
        ("%[2]*[1]d|%[3]*.[2]*[1]f", (5.5, 2, 8), "%!d(float64=5.5)|    5.50"),
        # what does not fit
        ("%d %s", ("x", 1), "%!d(string=x) %!s(int=1)"),
        ("%5.2f", ("word",), "%!f(string=   wo)"),
        ("%d", (), "%!d(MISSING)"),
        ("%d", (1, "x", None), "1%!(EXTRA string=x, <nil>)"),
        ("%", (), "%!(NOVERB)"),
        ("%z %-", (1,), "%!z(int=1) %!(NOVERB)"),
        ("%[3]d %[x]d %[1]2d %[1", (1,), "%!d(BADINDEX) %!d(BADINDEX) %!d(BADINDEX) %!(NOVERB)"),
        ("%*d", ("x", 1), "%!(BADWIDTH)1"),
        ("%.*d", (-1, 1), "%!(BADPREC)1"),
        ("%99999999d", (1,), "%!(NOVERB)%!(EXTRA int=1)"),
    ],
)
def test_sprintf(text: str, values: tuple[Any, ...], output: str) -> None:
    assert sprintf(text, *values) == output
