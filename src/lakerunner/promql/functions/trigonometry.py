"""Angles, in radians unless the name says otherwise."""

from __future__ import annotations

import math

import numpy as np

from lakerunner.promql.functions.arguments import SCALAR
from lakerunner.promql.functions.elementwise import elementwise
from lakerunner.series.function import Called, Function
from lakerunner.series.math import arithmetic
from lakerunner.series.values import Scalar


def _pi(called: Called) -> Scalar:
    return Scalar(np.full(len(called.steps), math.pi))


TRIGONOMETRY = (
    elementwise("sin", arithmetic.sin),
    elementwise("cos", arithmetic.cos),
    elementwise("tan", arithmetic.tan),
    elementwise("asin", arithmetic.asin),
    elementwise("acos", arithmetic.acos),
    elementwise("atan", arithmetic.atan),
    elementwise("sinh", arithmetic.sinh),
    elementwise("cosh", arithmetic.cosh),
    elementwise("tanh", arithmetic.tanh),
    elementwise("asinh", arithmetic.asinh),
    elementwise("acosh", arithmetic.acosh),
    elementwise("atanh", arithmetic.atanh),
    elementwise("deg", lambda values: values * 180 / math.pi),
    elementwise("rad", lambda values: values * math.pi / 180),
    Function("pi", (), SCALAR, _pi, per_series=False),
)
