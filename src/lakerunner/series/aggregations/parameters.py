"""The parameters of aggregations: which are refused, which are noted, and how their numbers are written."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.series.aggregations.aggregation import Parameter
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.expression import NOWHERE, Aggregate, Span, bare
from lakerunner.series.notes import Misfit, Notes
from lakerunner.series.values import Scalar

_LEAST, _MOST = -9223372036854775808.0, 9223372036854774784.0  # no k is beyond these


def checked_count(parameter: Parameter) -> Ints | None:
    """The k of topk, bottomk and limitk at each step; None: it is nowhere as much as one."""
    values = _numbers(parameter)
    if values.max() < 1:
        return None
    if np.isnan(values).any():
        raise UserError("Parameter value is NaN")
    if values.min() <= _LEAST:
        raise UserError(f"Scalar value {general_text(float(values.min()))} underflows int64")
    if values.max() >= _MOST:
        raise UserError(f"Scalar value {general_text(float(values.max()))} overflows int64")
    return values.astype(np.int64)


def checked_ratio(node: Aggregate, parameter: Parameter, notes: Notes) -> Floats | None:
    """Of limit_ratio at each step, between -1 and 1; None: it is zero everywhere."""
    values = _numbers(parameter)
    if not values.any():
        return None
    if np.isnan(values).any():
        raise UserError("Ratio value is NaN")
    for odd, limit in ((values.max(), 1.0), (values.min(), -1.0)):
        if abs(odd) > 1 and np.sign(odd) == limit:
            notes.report(Misfit.RATIO_CAPPED, _place(node), got=general_text(float(odd)), limit=f"{limit:g}")
    return np.clip(values, -1.0, 1.0)


def checked_quantile(node: Aggregate, parameter: Parameter, notes: Notes) -> Floats:
    """NaN, and the greatest and the least where they are out of bounds, are noted."""
    values = _numbers(parameter)
    most = math.inf if np.isposinf(values).any() else float(values.max())  # NaN hides all others
    least = -math.inf if np.isneginf(values).any() else float(values.min())
    odd = [math.nan] if np.isnan(values).any() else []
    odd += [most] if most > 1 else []
    odd += [least] if least < 0 else []
    for one in odd:
        notes.report(Misfit.QUANTILE_OUTSIDE, _place(node), got=general_text(one))
    return values


def _numbers(parameter: Parameter) -> Floats:
    if not isinstance(parameter, Scalar):
        raise TypeError(f"a parameter that is {parameter}")
    return parameter.values


def _place(node: Aggregate) -> Span:
    return NOWHERE if node.parameter is None else bare(node.parameter).span


def plain_text(value: float) -> str:
    """All digits that tell it from its neighbours, without an exponent."""
    odd = _odd(value)
    if odd:
        return odd
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def general_text(value: float) -> str:
    """The same digits, with an exponent below -4 and above 5."""
    odd = _odd(value)
    if odd:
        return odd
    exponent = 0 if value == 0 else Decimal(repr(value)).adjusted()
    if -4 <= exponent < 6:
        return plain_text(value)
    digits = "".join(map(str, Decimal(repr(value)).normalize().as_tuple().digits))
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' if value < 0 else ''}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _odd(value: float) -> str:
    if value != value:
        return "NaN"
    return {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(value, "")
