r"""What the noisy histograms of stage A say about a column; post-processing of released counts.

A histogram of binary exponents has a **top**, the highest bin that is not noise: all that was seen is within ``2^top``.
Two questions decide what that means for rows that were not seen:

* is the end *sharp* or *soft*? A column that is nothing but zeros and one bin has a sharp end (0/1 columns, codes); a
  bin that falls, or one after it that is not clearly empty, is the beginning of a tail;
* how fast does the tail fall? Between the median of the sizes and the top the mass beyond a size t falls like
  ``t^-power``: by 2 for normal columns, 1.5 to 2 for Student's t with three degrees of freedom, about 1 for payments.
  Below some 1.5 a few rows make most of the variance, and what holds for the bulk need not hold for them.

A histogram of equal bins near a centre says where most rows are, if they are close together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tailguard.default.rows import NEAR, TOPS

Array = NDArray[np.float64]

_COARSE = (TOPS <= -80) | (TOPS > 80)
# A public prior over exponents, heavy-tailed about 1: it only decides which of several noisy modes is believed.
_LOG_PRIOR = -2.0 * np.log1p(np.maximum(np.abs(TOPS) - 3.0, 0.0) / 4.0)
_LOG_PRIOR -= np.log(np.sum(np.exp(_LOG_PRIOR)))

FALSE_ALARM = 1e-5  # probability that noise alone is taken for a mode
SIGNIFICANT, SURELY = 3.5, 4.5  # standard deviations from which a bin counts, and from which one alone does
SOFT_END = 0.05  # an end is sharp if the next bin is below this fraction of the last,
HESITATION = 2.0  # by so many standard deviations: a tail that is taken for an end is lost
FALLING = 2.0  # standard deviations by which the last bin is below the one before it: a tail, whose end is soft
ALONE, MISSING = 8.0, 4.0  # standard deviations of a bin beside which there are only zeros, and of what they may lack
HIDDEN = 0.5  # of the rows in significant bins: more than these in others, and the histogram has missed the column
UNSEEN = 2.0  # standard deviations of mass that may be beyond the top unseen
SURE = 2.0  # standard deviations that are taken off a fraction of rows
STEEPEST = 4.0  # power of a tail from which it makes no difference
MOST = 0.75  # of the rows: where these are is where a column is,
CLEAR = 0.45  # if no window has more in it by noise alone
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Reading(NamedTuple):
    """What a noisy histogram of exponents says."""

    top: float  # exponent of the bound, NaN: nothing seen
    square: float  # mean square over 4**top
    soft: bool
    seen: bool
    coarse: bool
    mass: float = 0.0  # fraction of rows in significant bins
    near: float = 0.0  # of these, in the four octaves about the top
    power: float = STEEPEST  # of the tail
    hidden: bool = False  # many rows that are not zero are in no significant bin
    alone: bool = False  # zeros and the bin of the top are all there is: 0/1 columns, +-1, codes
    bins: tuple[Array, Array, float] | None = None  # exponents of their bounds, fractions of rows, and their noise

    def outside(self, low: float, high: float) -> float:
        """Fraction of rows that surely are in no bin with a size from ``low`` to ``high``; zeros are in none."""
        if self.bins is None:
            return 0.0
        tops, fractions, sd = self.bins
        below = np.append(-np.inf, tops[:-1])
        inside = (2.0**tops >= low) & (2.0**below < high)
        return float(1.0 - np.sum(fractions[inside]) - SURE * sd * math.sqrt(np.count_nonzero(inside)))


NOTHING = Reading(0.0, 0.0, soft=False, seen=False, coarse=False)
LOST = Reading(math.nan, 0.0, soft=True, seen=False, coarse=False)


def read_first(counts: Array, sd: float) -> Reading:
    """The most credible mode, and from there upwards over significant bins, stricter the wider the gap."""
    h = counts[1:]
    windows = [np.convolve(h, np.ones(k), "same") / math.sqrt(k) for k in (1, 3, 5)]
    z = np.max(windows, axis=0) / sd
    mode = int(np.argmax(np.where(z > 0, z * z / 2.0, 0.0) + _LOG_PRIOR))
    if z[mode] <= 0 or 3.0 * ndtr(-z[mode]) > FALSE_ALARM * math.exp(_LOG_PRIOR[mode]):
        return NOTHING
    near = range(max(mode - 12, 0), min(mode + 2, len(h) - 1) + 1)
    significant = [k for k in near if h[k] > SIGNIFICANT * sd]
    if not significant:
        significant = [max(range(max(mode - 2, 0), min(mode + 3, len(h))), key=lambda k: h[k])]
    significant = _upwards(h[:-1], sd, significant)
    return _reading(counts, sd, significant, TOPS, first=True, coarse=bool(_COARSE[significant[-1]]))


def read_later(counts: Array, below: float, sd: float) -> Reading:
    """The highest bin below the known bound that is surely no noise, and upwards from there."""
    h = counts[1:]
    surely = np.flatnonzero(h > SURELY * sd)
    if not len(surely):
        return LOST
    significant = _upwards(h, sd, [k for k in range(int(surely[-1]) + 1) if h[k] > SIGNIFICANT * sd])
    return _reading(counts, sd, significant, np.arange(below - len(h) + 1.0, below + 1.0))


def _upwards(h: Array, sd: float, significant: list[int]) -> list[int]:
    k = significant[-1] + 1
    while k <= min(significant[-1] + 6, len(h) - 1):
        if h[k] > (SIGNIFICANT + 0.5 * (k - significant[-1] - 1)) * sd:
            significant = [*significant, k]
        k += 1
    return significant


def _reading(
    counts: Array, sd: float, significant: list[int], tops: Array, first: bool = False, coarse: bool = False
) -> Reading:
    zeros, h, last = float(counts[0]), np.append(counts[1:], [0.0, 0.0]), significant[-1]
    top = float(np.clip(tops[last], -990.0, 990.0))
    falling = last > 0 and h[last - 1] > h[last] + FALLING * sd
    soft = bool(falling or h[last + 1] + HESITATION * sd >= SOFT_END * h[last])
    # A first look at zeros and one bin: at 1 these are 0/1 columns, however rare; elsewhere the bin must be large.
    alone = first and (top == 0.0 or h[last] > ALONE * sd)
    alone = bool(alone and zeros + h[last] > 1.0 - MISSING * sd)
    soft = soft and not alone
    # 7/12 is the mean of x^2 over (1/2, 1]: what a row of the top bin adds to the mean square.
    square = sum(max(float(h[k]), 0.0) * 4.0 ** (tops[k] - tops[last]) for k in significant)
    mass = float(sum(h[k] for k in significant))
    return Reading(
        top,
        max(square, SIGNIFICANT * sd) * 7.0 / 12.0,
        soft,
        seen=True,
        coarse=coarse,
        mass=mass,
        near=float(np.sum(h[max(last - 2, 0) : last + 2])),
        power=_power(h, sd, significant, tops),
        hidden=bool(1.0 - zeros - mass > HIDDEN * mass),
        alone=alone,
        bins=(np.clip(tops, -990.0, 990.0), counts[1:], sd),
    )


def _power(h: Array, sd: float, significant: list[int], tops: Array) -> float:
    """Power of the tail between the median of the sizes and the top; noise makes it look heavier, not lighter."""
    last = significant[-1]
    beyond = max(float(h[last + 1] + h[last + 2]), 0.0)
    half = (float(sum(h[k] for k in significant)) + beyond) / 2.0
    left = max(half - beyond, 0.0)
    for k in reversed(significant):
        if h[k] >= left:
            break
        left -= float(h[k])
    median = tops[k] - left / float(h[k])
    fall = math.log2(max(half / max(beyond, UNSEEN * sd), 1.0))
    return float(min(STEEPEST, fall / max(tops[last] - median, 0.5)))


class Place(NamedTuple):
    """Where most rows are, in bins from the centre."""

    offset: float
    width: int  # 0: nowhere in particular
    apart: bool  # they are in more than two bins: finer ones would say little more about where


def read_near(counts: Array, sd: float) -> Place:
    """The narrowest window of equal bins with most of the rows, and their mean in it and half as far on either side."""
    h = counts[1:]
    upto = np.concatenate([[0.0], np.cumsum(h)])
    widths = [width for width in _WIDTHS if _largest_noise(sd, width) <= CLEAR]
    for width in widths:
        inside = upto[width:] - upto[:-width]
        start = int(np.argmax(inside))
        if inside[start] > MOST:
            break
    else:
        return Place(0.0, 0, apart=2 in widths)
    about = range(max(start - (width + 1) // 2, 0), min(start + width + (width + 1) // 2, NEAR))
    mass = float(np.sum(h[about]))
    mean = float(np.sum(h[about] * (np.array(about) + 0.5))) / mass if mass > MOST / 2.0 else start + width / 2.0
    return Place(min(max(mean, start), start + width) - NEAR / 2.0, width, apart=width > 2)


def _largest_noise(sd: float, width: int) -> float:
    """About what the luckiest of the windows of so many bins has in it by noise alone."""
    return sd * math.sqrt(width * (2.0 * math.log(NEAR / width) + 1.0))
