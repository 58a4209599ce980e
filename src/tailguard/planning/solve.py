"""The reverse: which epsilon, or how many rows, an error needs.

The predicted error falls with both, so the answer is the end of a bisection. It may not exist: with an infinite budget
there is still the sampling error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tailguard._checks import positive
from tailguard.planning.formula import Plan, Situation, plan

_EPSILONS = (1e-3, 50.0)
_ROWS = (10, 10**12)


@dataclass(frozen=True)
class Need:
    """What a wanted error needs.

    Parameters
    ----------
    value : float or None
        The epsilon or the number of rows; None if none of those looked at is enough.
    reason : str
        Why not, in words.
    plan : Plan or None
        What to expect there.
    """

    value: float | None
    reason: str = ""
    plan: Plan | None = None


def needed_epsilon(situation: Situation, error: float) -> Need:
    """Return the least epsilon, to two digits, with at most that error.

    Parameters
    ----------
    situation : Situation
        Its epsilon is not looked at.
    error : float
        In the unit of the plan.
    """
    error = positive("error", error)
    low, high = _EPSILONS
    at = _search(
        lambda log: plan(replace(situation, epsilon=math.exp(log))).error <= error, math.log(low), math.log(high)
    )
    if at is None:
        free = plan(replace(situation, epsilon=high)).without_privacy
        why = f"even epsilon = {high:g} leaves {plan(replace(situation, epsilon=high)).error:.3g}"
        return Need(None, why + (f", of which sampling alone is {free:.2g}: more rows" if free > 0.5 * error else ""))
    value = _two_digits_up(math.exp(at))
    return Need(value, plan=plan(replace(situation, epsilon=value)))


def needed_rows(situation: Situation, error: float) -> Need:
    """Return the least number of rows, to two digits, with at most that error.

    Parameters
    ----------
    situation : Situation
        Its number of rows is not looked at; without a ``delta`` that of each number of rows is.
    error : float
        In the unit of the plan.
    """
    error = positive("error", error)
    low, high = _ROWS

    def enough(log: float) -> bool:
        return plan(replace(situation, rows=round(math.exp(log)))).error <= error

    at = _search(enough, math.log(low), math.log(high))
    if at is None:
        return Need(None, f"even {high:.0e} rows leave {plan(replace(situation, rows=high)).error:.2g}")
    value = int(_two_digits_up(math.exp(at)))
    return Need(value, plan=plan(replace(situation, rows=value)))


def _search(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return about the least place that is enough, None if the highest is not."""
    if not enough(high):
        return None
    if enough(low):
        return low
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _two_digits_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")
