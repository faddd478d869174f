"""`q` of a request for tags: the selector in what the Grafana plugin writes, and the refusal of all else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.api.native.lookup import MAX_DEPTH, MAX_MATCHERS, read_selector
from lakerunner.model.errors import Position, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher, Operator

UP = Matcher(NAME, "=", "up")
READ = {
    "up": (UP,),
    "{}": (),
    "up{}": (UP,),
    'up{job="a"}': (UP, Matcher("job", "=", "a")),
    '{ a = "b" , c=~"d|e", f!="", g!~`h\\d`, }': (
        Matcher("a", "=", "b"),
        Matcher("c", "=~", "d|e"),
        Matcher("f", "!=", ""),
        Matcher("g", "!~", "h\\d"),
    ),
    '{__name__="k8s.cpu"}': (Matcher(NAME, "=", "k8s.cpu"),),
    '{"k8s.cpu", "k8s.pod"="p"}': (Matcher(NAME, "=", "k8s.cpu"), Matcher("k8s.pod", "=", "p")),
    "sum(up)": (UP,),
    "max by (a,\"b.c\") (rate(up{x='1'}[5m]))": (UP, Matcher("x", "=", "1")),
    "sum(count_over_time({a=`b`}[1h30m])) without (c)": (Matcher("a", "=", "b"),),
    "topk(5, up)": (UP,),
    "quantile(0.95, up)": (UP,),
    '{a="\\"\\\\\\n\\u00e9\\x41{"}': (Matcher("a", "=", '"\\\né' + "A{"),),
    '{a="it\'s -- */ ; drop"}': (Matcher("a", "=", "it's -- */ ; drop"),),
    "{a=\"\\'\", b='\\\"'}": (Matcher("a", "=", "'"), Matcher("b", "=", '"')),
    '{a="\\xc3\\xa9\\303\\274"}': (Matcher("a", "=", "éü"),),  # bytes, as in Go
    '{a="\ufffd"}': (Matcher("a", "=", "\ufffd"),),
    'k8s.cpu{:odd.name="1"}': (Matcher(NAME, "=", "k8s.cpu"), Matcher(":odd.name", "=", "1")),
    'count by (end, offset) (up{a="b"}[1h30m])  # all': (UP, Matcher("a", "=", "b")),
}


@pytest.mark.parametrize("text", READ)
def test_a_selector(text: str) -> None:
    assert read_selector(text, "PromQL") == READ[text]


REFUSED = {
    '{a="b"} |= "x"': 9,
    '{a="b"} | json': 9,
    "up + down": 4,
    "up offset 5m": 4,
    "up > 5": 4,
    "up[5m:1m]": 3,
    "5": 1,
    "": 1,
    "{": 2,
    "{a}": 3,
    "{a=b}": 4,
    '{a>"b"}': 3,
    '{a="b" c="d"}': 8,
    '{a="b}': 4,
    "sum(": 5,
    "sum(up": 7,
    'label_replace(up, "a", "b")': 17,
    '{a="\\q"}': 4,
    '{a="\\ud800"}': 4,
    '{a="b"}}': 8,
    '{a="\\xff"}': 4,
}
WORDS = {
    '{a="b"} |= "x"': "unexpected character: '|'",
    "up offset 5m": "unexpected <offset>",
    "{a=b}": 'unexpected identifier "b" in label matching, expected string',
    '{a>"b"}': "unexpected character inside braces: '>'",
    '{a="b}': "unterminated quoted string",
    "up[5m:1m]": "between brackets is more than a window such as [5m]",
}


@pytest.mark.parametrize("text", WORDS)
def test_a_refusal_has_the_words_of_promql(text: str) -> None:
    with pytest.raises(UserError) as refused:
        read_selector(text, "LogQL")
    allowed = 'LogQL is not available yet: q may be one selector as `{service_name="cart"}`; parse error: '
    assert refused.value.message == allowed + WORDS[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_more_than_a_selector_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UserError, match=r"^LogQL is not available yet: q may be one selector") as refused:
        read_selector(text, "LogQL")
    assert refused.value.position == Position(1, REFUSED[text])


def test_the_place_counts_lines() -> None:
    with pytest.raises(UserError) as refused:
        read_selector('{a="b",\n  c}', "LogQL")
    assert refused.value.position == Position(2, 4)


def test_limits() -> None:
    assert read_selector("f(" * (MAX_DEPTH - 1) + "up" + ")" * (MAX_DEPTH - 1), "PromQL") == (UP,)
    with pytest.raises(UserError, match=f"more than {MAX_DEPTH} deep"):
        read_selector("f(" * MAX_DEPTH + "up" + ")" * MAX_DEPTH, "PromQL")
    assert len(read_selector("{" + 'a="b",' * MAX_MATCHERS + "}", "PromQL")) == MAX_MATCHERS
    with pytest.raises(UserError, match=f"more than {MAX_MATCHERS} matchers"):
        read_selector("{" + 'a="b",' * (MAX_MATCHERS + 1) + "}", "PromQL")


@given(st.text(), st.text(), st.sampled_from(["=", "!=", "=~", "!~"]))
def test_any_text_comes_back_from_its_quotes(label: str, value: str, operator: Operator) -> None:
    def quoted(text: str) -> str:
        escaped = "".join(f"\\U{ord(c):08x}" if c in '"\\\n' or ord(c) < 32 else c for c in text)
        return f'"{escaped}"'

    text = f"{{{quoted(label)}{operator}{quoted(value)}}}"
    assert read_selector(text, "PromQL") == (Matcher(label, operator, value),)


@given(st.text(alphabet="{}()[],=~!\"'`\\ab1. \n|"))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(UserError):
        assert isinstance(read_selector(text, "PromQL"), tuple)
