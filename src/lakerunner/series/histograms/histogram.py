"""A native histogram as a sample of a series: buckets with float counts, and their bounds; and its text.

What always holds: indexes of buckets ascend; a bucket of count zero may be listed or not and means the same. Bucket i
of schema s ends at 2^(i / 2^s). The bounds equal those of Go's client library to the last bit, which are not always the
nearest float to that power: they come from a table of the powers from 1/2 to 1, of which schema 8 uses all and every
lower schema every second, fourth, ... one.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lakerunner.series.arrays import Floats, Objects, filled
from lakerunner.series.numerals import json_number, number_text

FINEST_SCHEMA = 8

_TABLE = """
0.5 0.5013556375251013 0.5027149505564014 0.5040779490592088 0.5054446430258502 0.5068150424757447
0.5081891574554764 0.509566998038869 0.5109485743270583 0.5123338964485679 0.5137229745593818 0.5151158188430205
0.5165124395106142 0.5179128468009786 0.5193170509806894 0.520725062344158 0.5221368912137069 0.5235525479396449
0.5249720429003435 0.526395386502313 0.5278225891802786 0.5292536613972564 0.5306886136446309 0.5321274564422321
0.5335702003384117 0.5350168559101208 0.5364674337629877 0.5379219445313954 0.5393803988785598 0.5408428074966075
0.5423091811066545 0.5437795304588847 0.5452538663326288 0.5467321995364429 0.5482145409081883 0.549700901315111
0.5511912916539204 0.5526857228508706 0.5541842058618393 0.5556867516724088 0.5571933712979462 0.5587040757836845
0.5602188762048033 0.5617377836665098 0.5632608093041209 0.564787964283144 0.5663192597993595 0.5678547070789026
0.5693943173783458 0.5709381019847808 0.572486072215902 0.5740382394200894 0.5755946149764913 0.5771552102951081
0.5787200368168754 0.5802891060137493 0.5818624293887887 0.5834400184762408 0.585021884841625 0.5866080400818185
0.5881984958251406 0.5897932637314379 0.5913923554921704 0.5929957828304968 0.5946035575013605 0.5962156912915756
0.5978321960199137 0.5994530835371903 0.6010783657263515 0.6027080545025619 0.6043421618132907 0.6059806996384005
0.6076236799902344 0.6092711149137041 0.6109230164863786 0.6125793968185725 0.6142402680534349 0.6159056423670379
0.6175755319684665 0.6192499490999082 0.620928906036742 0.622612415087629 0.6243004885946023 0.6259931389331581
0.6276903785123455 0.6293922197748583 0.6310986751971253 0.6328097572894031 0.6345254785958666 0.6362458516947014
0.637970889198196 0.6397006037528346 0.6414350080393891 0.6431741147730128 0.6449179367033329 0.6466664866145447
0.6484197773255048 0.6501778216898253 0.6519406325959679 0.6537082229673385 0.6554806057623822 0.6572577939746774
0.659039800633032 0.6608266388015788 0.6626183215798706 0.6644148621029772 0.6662162735415805 0.6680225691020727
0.6698337620266515 0.6716498655934177 0.6734708931164728 0.6752968579460171 0.6771277734684463 0.6789636531064505
0.6808045103191123 0.6826503586020058 0.6845012114872953 0.6863570825438342 0.688217985377265 0.690083933630119
0.6919549409819159 0.6938310211492645 0.6957121878859629 0.6975984549830999 0.6994898362691555 0.7013863456101023
0.7032879969095076 0.7051948041086352 0.7071067811865475 0.7090239421602076 0.7109463010845827 0.7128738720527471
0.7148066691959849 0.7167447066838943 0.718687998724491 0.7206365595643126 0.7225904034885232 0.7245495448210174
0.7265139979245261 0.7284837772007218 0.7304588970903234 0.7324393720732029 0.7344252166684908 0.7364164454346837
0.7384130729697496 0.7404151139112358 0.7424225829363761 0.7444354947621984 0.7464538641456323 0.7484777058836176
0.7505070348132126 0.7525418658117031 0.7545822137967112 0.7566280937263048 0.7586795205991071 0.7607365094544071
0.762799075372269 0.7648672334736434 0.7669409989204777 0.7690203869158282 0.7711054127039704 0.7731960915705107
0.7752924388424999 0.7773944698885442 0.7795022001189185 0.7816156449856788 0.7837348199827764 0.7858597406461707
0.7879904225539431 0.7901268813264122 0.7922691326262467 0.7944171921585818 0.7965710756711334 0.7987307989543135
0.8008963778413465 0.8030678282083853 0.805245165974627 0.8074284071024302 0.8096175675974316 0.8118126635086642
0.8140137109286738 0.8162207259936375 0.8184337248834821 0.820652723822003 0.8228777390769823 0.8251087869603088
0.8273458838280969 0.8295890460808079 0.8318382901633681 0.8340936325652911 0.8363550898207981 0.8386226785089391
0.8408964152537144 0.8431763167241966 0.8454623996346523 0.8477546807446661 0.8500531768592616 0.8523579048290255
0.8546688815502312 0.8569861239649629 0.8593096490612387 0.8616394738731368 0.8639756154809185 0.8663180910111553
0.8686669176368529 0.871022112577578 0.8733836930995842 0.8757516765159389 0.8781260801866495 0.8805069215187917
0.8828942179666361 0.8852879870317771 0.8876882462632604 0.890095013257712 0.8925083056594671 0.8949281411607002
0.8973545375015533 0.8997875124702672 0.9022270839033115 0.9046732696855155 0.9071260877501991 0.909585556079304
0.9120516927035263 0.9145245157024483 0.9170040432046711 0.9194902933879467 0.9219832844793128 0.9244830347552253
0.9269895625416926 0.92950288621441 0.9320230241988943 0.9345499949706191 0.9370838170551498 0.93962450902828
0.9421720895161669 0.9447265771954693 0.9472879907934827 0.9498563490882775 0.9524316709088368 0.9550139751351947
0.9576032806985735 0.9601996065815236 0.9628029718180622 0.9654133954938133 0.9680308967461471 0.9706554947643201
0.9732872087896164 0.9759260581154889 0.9785720620876999 0.9812252401044634 0.9838856116165875 0.9865531961276168
0.9892280131939752 0.9919100824251095 0.9945994234836328 0.9972960560854698
"""
_HALF_TO_ONE = tuple(float(text) for text in _TABLE.split())


@lru_cache(maxsize=65536)
def exponential_bound(index: int, schema: int) -> float:
    """Return the upper bound of bucket `index`. The last bucket of finite values ends at the greatest float instead of
    2^1024; the one after it holds the infinite values."""
    if schema < 0:
        fraction, exponent = 0.5, (index << -schema) + 1
    else:
        fraction = _HALF_TO_ONE[(index & ((1 << schema) - 1)) << (FINEST_SCHEMA - schema)]
        exponent = (index >> schema) + 1
    if exponent > 1024:
        return sys.float_info.max if fraction == 0.5 and exponent == 1025 else math.inf
    return math.ldexp(fraction, exponent)


HISTOGRAM_POINTS = 64  # a histogram takes the memory of this many samples of 16 bytes, plus its buckets
CUSTOM_BUCKETS = -53  # the schema of histograms whose bounds are listed in `custom_values`


class ResetHint(IntEnum):
    """Whether the counter was reset since the sample before. Numbered as in remote write. A gauge histogram may
    decrease."""

    UNKNOWN = 0
    RESET = 1
    NOT_RESET = 2
    GAUGE = 3


@dataclass(frozen=True, eq=False)
class BucketCounts:
    """Counts by bucket. In schema s, bucket i holds the values of (2^((i - 1) / 2^s), 2^(i / 2^s)]; custom bucket i
    those of (custom_values[i - 1], custom_values[i]], unbounded at both ends."""

    indexes: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    counts: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.indexes)

    def compacted(self) -> BucketCounts:
        """Drop the buckets of count zero."""
        filled = self.counts != 0
        return self if filled.all() else BucketCounts(self.indexes[filled], self.counts[filled])


@dataclass(frozen=True, eq=False)
class Histogram:
    schema: int
    count: float
    sum: float
    zero_threshold: float = 0.0
    zero_count: float = 0.0
    positive: BucketCounts = field(default_factory=BucketCounts)
    negative: BucketCounts = field(default_factory=BucketCounts)
    custom_values: tuple[float, ...] = ()
    reset_hint: ResetHint = ResetHint.UNKNOWN

    @property
    def is_custom(self) -> bool:
        return self.schema == CUSTOM_BUCKETS


class Bucket(NamedTuple):
    lower: float
    upper: float
    observations: float
    lower_inclusive: bool = False
    upper_inclusive: bool = True


def bound(histogram: Histogram, index: int) -> float:
    """Return the upper bound of a bucket, for absolute values."""
    if not histogram.is_custom:
        return exponential_bound(index, histogram.schema)
    if index < 0:
        return -math.inf
    return histogram.custom_values[index] if index < len(histogram.custom_values) else math.inf


def positive_buckets(histogram: Histogram) -> Iterator[Bucket]:
    """Yield the positive buckets ascending; of custom buckets all, whatever their sign."""
    custom = histogram.is_custom
    for index, count in zip(histogram.positive.indexes.tolist(), histogram.positive.counts.tolist(), strict=True):
        lower, upper = bound(histogram, index - 1), bound(histogram, index)
        yield Bucket(lower, upper, count, lower_inclusive=custom and index == 0, upper_inclusive=custom or upper > 0)


def negative_buckets(histogram: Histogram) -> Iterator[Bucket]:
    """Yield the negative buckets descending, away from zero."""
    for index, count in zip(histogram.negative.indexes.tolist(), histogram.negative.counts.tolist(), strict=True):
        lower, upper = -bound(histogram, index), -bound(histogram, index - 1)
        yield Bucket(lower, upper, count, lower_inclusive=lower < 0, upper_inclusive=False)


def zero_bucket(histogram: Histogram) -> Bucket:
    threshold = histogram.zero_threshold
    return Bucket(-threshold, threshold, histogram.zero_count, lower_inclusive=True)


def all_buckets(histogram: Histogram) -> list[Bucket]:
    """Yield all buckets ascending. A bucket that the zero bucket overlaps begins where that ends."""
    threshold = histogram.zero_threshold
    below = [
        bucket._replace(upper=-threshold) if -threshold < bucket.upper < 0 else bucket
        for bucket in negative_buckets(histogram)
    ]
    zero = [zero_bucket(histogram)] if histogram.zero_count > 0 else []
    above = [
        bucket._replace(lower=threshold) if 0 < bucket.lower < threshold else bucket
        for bucket in positive_buckets(histogram)
    ]
    return below[::-1] + zero + above


def points_of(histograms: Objects | None) -> int:
    """Return how many samples take as much memory: 64 and one for each bucket of a histogram."""
    if histograms is None:
        return 0
    some = histograms[filled(histograms)]
    return len(some) * HISTOGRAM_POINTS + sum(len(one.positive) + len(one.negative) for one in some)


def equal(left: Histogram, right: Histogram) -> bool:
    """Return whether both are equal to the bit (NaN equals itself); the reset hint is ignored."""
    return (
        left.schema == right.schema
        and left.custom_values == right.custom_values
        and left.zero_threshold == right.zero_threshold
        and _bits(left.count, left.sum, left.zero_count) == _bits(right.count, right.sum, right.zero_count)
        and _same(left.positive, right.positive)
        and _same(left.negative, right.negative)
    )


def _bits(*values: float) -> bytes:
    return struct.pack(f"{len(values)}d", *values)


def _same(left: BucketCounts, right: BucketCounts) -> bool:
    left, right = left.compacted(), right.compacted()
    return np.array_equal(left.indexes, right.indexes) and left.counts.tobytes() == right.counts.tobytes()


# ---- as text


def histogram_text(histogram: Histogram) -> str:
    """Write for people: {count:5, sum:18.4, [-0.001,0.001]:2, (0.5,1]:3}"""
    buckets = list(negative_buckets(histogram))[::-1]
    if not histogram.is_custom:
        buckets.append(zero_bucket(histogram))
    buckets += positive_buckets(histogram)
    texts = [_bucket_text(bucket) for bucket in buckets if bucket.observations != 0]
    inside = [f"count:{number_text(histogram.count)}", f"sum:{number_text(histogram.sum)}", *texts]
    return f"{{{', '.join(inside)}}}"


def _bucket_text(bucket: Bucket) -> str:
    opening, closing = "[" if bucket.lower_inclusive else "(", "]" if bucket.upper_inclusive else ")"
    bounds = f"{number_text(bucket.lower)},{number_text(bucket.upper)}"
    return f"{opening}{bounds}{closing}:{number_text(bucket.observations)}"


def json_buckets(histogram: Histogram) -> list[tuple[int, str, str, str]]:
    """Return the filled buckets, ascending: which bounds are inclusive (0: the upper, 1: the lower, 2: none, 3: both),
    the lower bound, the upper bound, the count."""
    rules = {(False, True): 0, (True, False): 1, (False, False): 2, (True, True): 3}
    return [
        (
            rules[bucket.lower_inclusive, bucket.upper_inclusive],
            _bound_text(bucket.lower),
            _bound_text(bucket.upper),
            json_number(bucket.observations),
        )
        for bucket in all_buckets(histogram)
        if bucket.observations != 0
    ]


def _bound_text(bound: float) -> str:
    """Write a bound, cached since few bounds recur. Zero is not cached: 0 and -0 are the same key."""
    return _cached_bound_text(bound) if bound else json_number(bound)


@lru_cache(maxsize=65536)
def _cached_bound_text(bound: float) -> str:
    return json_number(bound)
