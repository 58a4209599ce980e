"""An empirical lower bound on epsilon from outputs of a mechanism on two neighbouring tables."""

import math

import numpy as np
from scipy import stats


def epsilon_lower_bound(one, other, delta=0.0):
    """99 % Clopper-Pearson lower bound on epsilon at delta; the first half of the outputs picks the event."""
    half = len(one) // 2
    best = (-math.inf, None)
    for cut in np.quantile(np.concatenate((one[:half], other[:half])), np.linspace(0.001, 0.999, 400)):
        for a, b, side in ((one, other, 1), (other, one, 1), (one, other, -1), (other, one, -1)):
            p, q = np.mean(side * a[:half] > side * cut), np.mean(side * b[:half] > side * cut)
            gain = math.log((max(p - delta, 0) + 1e-3) / (q + 1e-3))
            if p > 0.02 and gain > best[0]:
                best = (gain, (a[half:], b[half:], side, cut))
    a, b, side, cut = best[1]
    n = len(a)
    hits, misses = int(np.sum(side * a > side * cut)), int(np.sum(side * b > side * cut))
    low = stats.beta.ppf(0.005, hits, n - hits + 1) if hits else 0.0
    high = stats.beta.ppf(0.995, misses + 1, n - misses)
    return math.log(max(low - delta, 1e-300) / high)
