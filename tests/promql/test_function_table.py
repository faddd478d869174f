"""The table of functions has every function of Prometheus 3.15, as it may be called there, and what is our own."""

from __future__ import annotations

import pytest

from lakerunner.promql.functions import FUNCTIONS
from lakerunner.series.expression import Kind

# Name, kinds of the arguments (v vector, s scalar, m matrix, t string), kind of the result, how many of the last
# arguments may be missing (-1: of the last there may be any number); ! is for experimental.
SIGNATURES = """
abs (v) v 0
absent (v) v 0
absent_over_time (m) v 0
acos (v) v 0
acosh (v) v 0
asin (v) v 0
asinh (v) v 0
atan (v) v 0
atanh (v) v 0
avg_over_time (m) v 0
ceil (v) v 0
changes (m) v 0
clamp (vss) v 0
clamp_max (vs) v 0
clamp_min (vs) v 0
cos (v) v 0
cosh (v) v 0
count_over_time (m) v 0
day_of_month (v) v 1
day_of_week (v) v 1
day_of_year (v) v 1
days_in_month (v) v 1
deg (v) v 0
delta (m) v 0
deriv (m) v 0
double_exponential_smoothing (mss) v 0 !
end () s 0 !
exp (v) v 0
first_over_time (m) v 0
floor (v) v 0
histogram_avg (v) v 0
histogram_count (v) v 0
histogram_fraction (ssv) v 0
histogram_quantile (sv) v 0
histogram_quantiles (vtssssssssss) v 9 !
histogram_stddev (v) v 0
histogram_stdvar (v) v 0
histogram_sum (v) v 0
hour (v) v 1
idelta (m) v 0
increase (m) v 0
info (vv) v 1 !
irate (m) v 0
label_join (vttt) v -1
label_replace (vtttt) v 0
last_over_time (m) v 0
ln (v) v 0
log10 (v) v 0
log2 (v) v 0
mad_over_time (m) v 0 !
max_of (ss) s 0 !
max_over_time (m) v 0
min_of (ss) s 0 !
min_over_time (m) v 0
minute (v) v 1
month (v) v 1
pi () s 0
predict_linear (ms) v 0
present_over_time (m) v 0
quantile_over_time (sm) v 0
rad (v) v 0
range () s 0 !
rate (m) v 0
resets (m) v 0
round (vs) v 1
scalar (v) s 0
sgn (v) v 0
sin (v) v 0
sinh (v) v 0
sort (v) v 0
sort_by_label (vt) v -1 !
sort_by_label_desc (vt) v -1 !
sort_desc (v) v 0
sqrt (v) v 0
start () s 0 !
start_timestamp (v) v 0 !
stddev_over_time (m) v 0
stdvar_over_time (m) v 0
step () s 0 !
sum_over_time (m) v 0
tan (v) v 0
tanh (v) v 0
time () s 0
timestamp (v) v 0
ts_of_first_over_time (m) v 0 !
ts_of_last_over_time (m) v 0 !
ts_of_max_over_time (m) v 0 !
ts_of_min_over_time (m) v 0 !
vector (s) v 0
year (v) v 1
"""
KINDS = {"v": Kind.VECTOR, "s": Kind.SCALAR, "m": Kind.MATRIX, "t": Kind.STRING}
LINES = SIGNATURES.strip().splitlines()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_a_function_is_called_as_in_prometheus(line: str) -> None:
    name, arguments, returns, optional, *mark = line.split()
    function = FUNCTIONS[name]
    assert function.name == name
    assert function.arguments == tuple(KINDS[one] for one in arguments.strip("()"))
    assert function.returns == KINDS[returns]
    assert function.optional == int(optional)
    assert function.experimental == (mark == ["!"])


OURS = """
sketch_over_time (m) v 0
"""


@pytest.mark.parametrize("line", OURS.strip().splitlines(), ids=lambda line: line.split()[0])
def test_a_function_of_our_own_is_called_as_documented(line: str) -> None:
    test_a_function_is_called_as_in_prometheus(line)


def test_there_is_no_other_function() -> None:
    assert set(FUNCTIONS) == {line.split()[0] for line in [*LINES, *OURS.strip().splitlines()]}
