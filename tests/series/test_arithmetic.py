"""Functions of numbers give the bits that Prometheus gives. Its answers stand here as it wrote them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from lakerunner.series.math import arithmetic, circular, exponential
from lakerunner.series.math.arithmetic import maximum, minimum, power

nan, inf = math.nan, math.inf
ONE = {
    "exp": {
        1.234: 3.43494186080076,
        -3.7: 0.024723526470339388,
        709.3: 1.1093689696227817e308,
        709.5: inf,
        -744.2: 5e-324,
        0.1: 1.1051709180756477,
    },
    "log": {
        1.234: 0.21026092548319605,
        1e-05: -11.512925464970229,
        7e300: 692.721438047269,
        5e-324: -709.0895657128241,
        0.1: -2.3025850929940455,
    },
    "log2": {3.3: 1.722466024471091, 8.0: 3.0, 1e-07: -23.253496664211536, 0.1: -3.321928094887362},
    "log10": {3.3: 0.5185139398778875, 1000.0: 3.0, 2.0: 0.3010299956639812, 1e-07: -7.0},
    "sin": {
        0.1: 0.09983341664682815,
        1.1: 0.8912073600614354,
        2.9: 0.2392493292139824,
        -4.4: 0.951602073889516,
        1000000.1: -0.2547258270603761,
        1000000000.0: 0.5458434494486994,
        1e22: -0.8522008497671889,
        -1.7e308: 0.5952560848632077,
    },
    "cos": {
        0.1: 0.9950041652780257,
        1.1: 0.4535961214255773,
        2.9: -0.9709581651495905,
        -4.4: -0.30733286997841935,
        1000000.1: 0.9670133158485499,
        1000000000.0: 0.8378871813639024,
        1e22: 0.5232147853951389,
    },
    "tan": {
        0.1: 0.10033467208545055,
        1.1: 1.9647596572486523,
        2.9: -0.24640539397196634,
        -4.4: -3.096323780649746,
        1000000.1: -0.26341501495959785,
        1e22: -1.6287782256068992,
    },
    "asin": {0.1: 0.1001674211615598, 0.65: 0.7075844367253555, 0.9: 1.1197695149986342, -0.99: -1.4292568534704693},
    "acos": {0.1: 1.4706289056333368, 0.65: 0.863211890069541, 0.9: 0.45102681179626236, -0.99: 3.0000531802653656},
    "atan": {
        0.1: 0.09966865249116204,
        0.9: 0.7328151017865066,
        7.7: 1.4416490366668766,
        -1000000000.0: -1.5707963257948965,
    },
    "sinh": {0.3: 0.3045202934471426, -3.3: -13.537877876628322, 33.3: 144869263331830.25},
    "cosh": {0.3: 1.0453385141288605, -3.3: 13.574761044029561, 33.3: 144869263331830.25},
    "tanh": {0.3: 0.2913126124515909, -3.3: -0.9972829600991421, 0.7: 0.6043677771171635, 50.0: 1.0},
    "asinh": {1e-09: 1e-09, 0.7: 0.6526665660823557, -30.0: -4.09462222433053, 10000000000.0: 23.7189981105004},
    "acosh": {1.3: 0.7564329108569596, 30.0: 4.0940666686320855, 10000000000.0: 23.7189981105004},
    "atanh": {1e-09: 1e-09, 0.3: 0.30951960420311175, -0.9: -1.4722194895832204},
}
TWO = {
    "power": {
        (2.0, 0.5): 1.4142135623730951,
        (10.0, -3.3): 0.0005011872336272724,
        (1.1, 17.0): 5.054470284992943,
        (-3.0, 5.0): -243.0,
        (-8.0, 0.3333333333333333): nan,
        (7.7, 2.75): 274.06242375513875,
        (1e-300, 1.3): 0.0,
    },
    "modulo": {(7.5, 2.0): 1.5, (-7.5, 2.0): -1.5, (1e300, 7.1): 0.45100503371973133, (5.0, 0.0): nan},
    "atan2": {
        (1.0, 2.0): 0.4636476090008061,
        (-1.0, -2.0): -2.677945044588987,
        (0.0, -1.0): 3.141592653589793,
        (3.0, -0.1): 1.6041173226731438,
    },
}


def bits(values: npt.ArrayLike) -> list[int]:
    """NaN is NaN, however it is written."""
    array = np.array(values, np.float64)
    return np.where(np.isnan(array), nan, array).view(np.uint64).tolist()


@pytest.mark.parametrize("name", ONE)
def test_a_function_of_one_number_has_the_bits_of_prometheus(name: str) -> None:
    found = getattr(arithmetic, name)(np.array(list(ONE[name])))
    assert bits(found) == bits(list(ONE[name].values()))


@pytest.mark.parametrize("name", TWO)
def test_an_operation_of_two_numbers_has_the_bits_of_prometheus(name: str) -> None:
    left, right = np.array(list(TWO[name])).T
    assert bits(getattr(arithmetic, name)(left, right)) == bits(list(TWO[name].values()))


def test_functions_of_what_is_no_number() -> None:
    odd = np.array([nan, inf, -inf, 0.0, -0.0])
    assert bits(arithmetic.exp(odd)) == bits([nan, inf, 0, 1, 1])
    assert bits(arithmetic.log(odd)) == bits([nan, inf, nan, -inf, -inf])
    assert bits(arithmetic.sin(odd)) == bits([nan, nan, nan, 0.0, -0.0])
    assert bits(arithmetic.sinh(odd)) == bits([nan, inf, -inf, 0.0, -0.0])
    assert bits(arithmetic.tanh(odd)) == bits([nan, 1, -1, 0.0, -0.0])
    assert bits(arithmetic.atanh(np.array([1.0, -1.0, 1.1]))) == bits([inf, -inf, nan])


def test_powers_of_zero_and_infinity() -> None:
    cases = {
        (nan, 0.0): 1, (1.0, nan): 1, (nan, 1.0): nan, (-0.0, -3.0): -inf, (-0.0, -2.0): inf, (-0.0, 3.0): -0.0,
        (0.0, inf): 0, (-1.0, inf): 1, (-inf, 3.0): -inf, (-inf, -3.0): -0.0, (-inf, 2.0): inf, (inf, -1.5): 0,
        (0.5, -inf): inf, (-2.0, 1e300): inf, (-2.0, 0.5): nan, (2.0, 1024.0): inf, (2.0, -1074.0): 5e-324,
    }  # fmt: skip
    left, right = np.array(list(cases)).T
    assert bits(power(left, right)) == bits(list(cases.values()))


def test_operations_broadcast() -> None:
    assert power(np.array([[2.0], [3.0]]), np.array([1.0, 2.0])).tolist() == [[2, 4], [3, 9]]


def test_maximum_and_minimum_know_signs_of_zero_and_what_beats_nan() -> None:
    left, right = np.array([0.0, -0.0, -0.0, nan, nan, nan, 1.0]), np.array([-0.0, 0.0, -0.0, inf, -inf, 1.0, 2.0])
    assert bits(maximum(left, right)) == bits([0.0, 0.0, -0.0, inf, nan, nan, 2.0])
    assert bits(minimum(left, right)) == bits([-0.0, -0.0, -0.0, nan, -inf, nan, 1.0])


def test_a_kernel_is_itself_whether_it_is_called_alone_or_over_an_array() -> None:
    for _ in range(2):
        assert exponential.log2(8.0) == 3.0
        assert arithmetic.log2(np.array([8.0])).tolist() == [3.0]
        assert exponential.power(2.0, 10.0) == 1024.0
        assert circular.atan2(0.0, -1.0) == math.pi
