r"""Centre of attention: the aggregator that the paper's Algorithm 1 prints, in a form that is private.

Algorithm 1 (sample and aggregate, Nissim, Raskhodnikova and Smith [1]_) = disjoint blocks -> one answer
per block -> the answer with the smallest ball around it that holds a majority, plus Gaussian noise in
proportion to a smooth bound of how far that centre can jump.  As a composition::

    clamp rows to a public ball -> radii r_i(t) -> (centre, score S) -> centre + (S / gamma) N(0, I_d)

Shapes: ``Z`` is (m, d), one answer per block; the result is (d,).

Definitions, with public m, q, decay b' > 0 and diameter L; t0 = (m + 1)//2 + 1
    - r_i(t) = distance from z_i to its t-th nearest answer, z_i itself the first; r_i(t) = L for t > m;
    - c(Z) = z_i with the smallest r_i(t0);
    - rho(t) = mean of the q *smallest* among r_1(t), .., r_m(t);
    - S(Z) = 2 max_{k >= 0} e^{-b' k} rho(t0 + k + 1).  The maximum is over k = 0..m - t0, the last term
      being the public 2 L e^{-b' (m - t0)}, after which the terms only fall.

Z and Z' are neighbours where one row differs (index j): one record sits in one block only.  Primes are
for Z'.

Lemma 1 (the centre moves by at most the score): |c - c'| <= min(S(Z), S(Z')), if 2 <= q.
    The ball B(c, min r(t0)) holds t0 answers of Z, so t0 - 1 common ones, and the same for c'.  There are
    m - 1 common answers and 2 (t0 - 1) > m - 1, so the balls meet: |c - c'| <= min_i r_i(t0) + min_i
    r'_i(t0).  For i != j, r'_i(t0) <= r_i(t0 + 1), since a ball with t0 + 1 answers of Z keeps t0 of
    them.  Let a <= b be the two smallest of r_i(t0 + 1).  Then min r(t0) <= a, and min r'(t0) <= b since
    one of the two indices is not j.  The mean of the q >= 2 smallest is at least (a + (q - 1) b)/q >= (a
    + b)/2: |c - c'| <= a + b <= 2 rho(t0 + 1) <= S(Z).  Swap Z and Z' for the other half.

Lemma 2 (smoothness): S(Z) <= e^{b' + log(1 + 1/q)} S(Z'), if q <= t0 - 1.
    Claim: rho(t) <= (1 + 1/q) rho'(t + 1) for every t >= t0 + 1.  Trivial for t >= m, where rho'(t + 1) =
    L.  Let J index the q smallest of r'_i(t + 1).  For i != j, r_i(t) <= r'_i(t + 1), as above.  If j is
    not in J, take J for rho(t).  Else let a be the smallest r'_i(t + 1), at i0.  The t + 1 answers of Z'
    in B(z'_i0, a) all have r'_l(t + 1) <= 2a, and t + 1 > q, so one of them, l, is outside J: use J with
    l in the place of j: q rho(t) <= q rho'(t + 1) - r'_j(t + 1) + 2a <= q rho'(t + 1) + a <= (q + 1)
    rho'(t + 1).  Then S(Z) <= (1 + 1/q) 2 max_k e^{-b' k} rho'(t0 + k + 2) <= (1 + 1/q) e^{b'} S(Z').

With q = ceil(1/b'), as in [1]_, log(1 + 1/q) is about b': the score is 2 b'-smooth, not b'-smooth, and
calibrating with beta = b' is wrong by a factor of two.  The largest radii in the place of the smallest would
not be smooth at all: one outlier owns the largest radius.  Here q = ceil(4/beta) and
b' = beta - log(1 + 1/q), about 3 beta/4, for a total of beta.

Lemma 3 (noise): let beta be the smoothness and gamma^2 <= 2 epsilon, and let H(P || Q) = sup_A P(A) -
e^epsilon Q(A) be the hockey-stick divergence.  The release is (epsilon, delta)-DP if

    (i)  H(N(gamma e1, e^{2 beta} I) || N(0, I)) <= delta, and
    (ii) H(N(0, I) || N(gamma e1, I)) + H(N(0, I) || N(gamma e1, e^{2 beta} I)) <= delta.

    Scale the smaller of the two noise levels to 1.  By Lemmas 1 and 2 the outputs on neighbours are N(0, I)
    and N(mu e1, e^{2b} I), in some order, with 0 <= b <= beta and 0 <= mu <= gamma.

    *In mu.*  1 - H is the integral over x of min(p(x), e^epsilon p'(x - mu e1)).  The integrand is
    log-concave in (x, mu), so the integral is log-concave in mu (Prekopa), and it is even in mu: H grows with
    |mu|, in both orders.  Put mu = gamma.

    *In b, wide first.*  Let p_b be the density of N(gamma e1, e^{2b} I), p' that of N(0, I) and
    A = {p_b >= e^epsilon p'}.  The complement of A is a ball (a half-space for b = 0), and gamma e1 is in it,
    for log(p_b/p') = gamma^2/2 - d b <= epsilon there.  A convex set loses mass as a normal around one of
    its points widens, so P_b(A) <= P_beta(A) and H at b is at most H at beta: (i).

    *In b, narrow first.*  log p_b(x) = -d b - |x - gamma e1|^2 e^{-2b}/2 + const is concave in b, so
    p_b >= min(p_0, p_beta), hence [p' - e^epsilon p_b]_+ <= [p' - e^epsilon p_0]_+ +
    [p' - e^epsilon p_beta]_+, whose integrals are (ii).

The divergences are differences of non-central chi-square probabilities, computed with an error bound that
only ever raises delta (see ``_hockey_stick``).  Against gamma = eps/(5 sqrt(2 log 2/delta)) and
beta = eps/(4 (d + log 2/delta)) of [1]_ this gives, at d = 10, epsilon = 1, delta = 1e-5, 4.4 times less
noise and 1.8 times the smoothness.

References
----------
.. [1] K. Nissim, S. Raskhodnikova, A. Smith, "Smooth sensitivity and sampling in private data analysis",
   STOC 2007; sections 4 and 5 of the full version (2011).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = [
    "CentreParameters",
    "TooFewBlocksError",
    "centre_of_attention",
    "centre_parameters",
    "check_blocks",
]

_FLOOR = 2.0**-30  # the score is at least 2 _FLOOR diameter: keeps rounding small against the noise
_GRID_BITS = -50  # results are multiples of 2**-50 diameters over gamma
_ROUNDING = 1e-9  # bounds every relative rounding error of the score (d, q <= 1e5: below 1e-10)
_SERIES_ERROR = 1e-6  # bounds the relative error of one non-central chi-square probability (seen: 1e-7)
_NORMAL_ERROR = 1e-10  # bounds the relative error of one normal probability (seen: 1e-14)
_SERIES_REST = 1e-38  # bounds the Poisson mass outside the summed window
_MAX_POISSON = 1e5  # beyond, incomplete gamma functions lose digits (seen from 1e6): "not certified"
_MAX_D = 10_000
_LARGEST_BETA = 0.5


class DiscreteNoise(Protocol):
    """What the mechanism asks of a noise source."""

    def discrete_gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw independent discrete Gaussians, scale from 2**20 to 2**55."""


class TooFewBlocksError(ValueError):
    """The number of blocks is too small for the parameters; nothing was computed from the data.

    Attributes
    ----------
    m : int
        Number of blocks that was given.
    smallest_m : int
        Smallest number of blocks that works.
    smallest_n : int or None
        The same in rows, where the rows per block are known.
    largest_d : int
        Largest dimension that works with ``m`` blocks, 0 if none.
    """

    def __init__(self, message: str, *, m: int, smallest_m: int, smallest_n: int | None, largest_d: int):
        super().__init__(message)
        self.m = m
        self.smallest_m = smallest_m
        self.smallest_n = smallest_n
        self.largest_d = largest_d


@dataclass(frozen=True)
class CentreParameters:
    """Public parameters of :func:`centre_of_attention`, made by :func:`centre_parameters`.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee.
    d : int
        Number of coordinates.
    gamma : float
        Noise sd is score / gamma.
    beta : float
        Smoothness of the score: neighbouring scores differ by a factor of at most e^beta.
    q : int
        Number of smallest radii that are averaged.
    decay : float
        Discount b' per step of k; decay + log(1 + 1/q) < beta.
    share : float
        gamma as a fraction of what a fixed noise scale would allow.
    resolution : float
        Smallest spread of the answers, relative to the diameter, that the noise must be able to follow.
    """

    epsilon: float
    delta: float
    d: int
    gamma: float
    beta: float
    q: int
    decay: float
    share: float
    resolution: float

    @property
    def smallest_m(self) -> int:
        """Smallest m with t0 >= q + 1 and e^{-decay (m - t0)} <= resolution."""
        steps = math.ceil(math.log(1 / self.resolution) / self.decay)
        return max(2 * (steps + 1), 2 * self.q - 1)  # m - t0 = m//2 - 1

    def floor(self, m: int) -> float:
        """Noise sd per coordinate, relative to the diameter, that m blocks get at least."""
        return 2 * max(math.exp(-self.decay * (m - _majority(m))), _FLOOR) / self.gamma


def centre_parameters(
    epsilon: float, delta: float, d: int, *, share: float = 2 / 3, resolution: float = 0.01
) -> CentreParameters:
    """Calibrate noise and smoothness of the centre of attention.

    Parameters
    ----------
    epsilon : float
        From 1e-6 to 100.
    delta : float
        From 1e-30 to 0.5.
    d : int
        Number of coordinates, 1 to 10000.
    share : float, default=2/3
        gamma = share * (the gamma of a noise scale that did not depend on data); beta is then the largest
        certified one.  With n rows the radius of a block answer grows like sqrt(m/n) and m like 1/beta,
        so noise goes like 1/(gamma sqrt(beta)); 2/3 is within 3 % of its minimum for d = 1..50 and
        epsilon = 0.5..1.  A larger share means less noise and more blocks.
    resolution : float, default=0.01
        Radius of the block answers, relative to the diameter, down to which noise shrinks with the
        radius.  It decides how many blocks are enough (utility), never privacy.

    Returns
    -------
    CentreParameters
        Certified: conditions (i) and (ii) of Lemma 3 (module docstring) hold at (gamma, beta), rounding
        included.
    """
    for name, value, low, high in (
        ("epsilon", epsilon, 1e-6, 100.0),
        ("delta", delta, 1e-30, 0.5),
        ("share", share, 0.01, 0.99),
        ("resolution", resolution, 1e-9, 0.5),
    ):
        if not low <= value <= high:
            raise ValueError(f"{name}={value!r}: must be a number from {low:g} to {high:g}")
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or not 1 <= d <= _MAX_D:
        raise ValueError(f"d={d!r}: the number of coordinates must be an integer from 1 to {_MAX_D}")
    return _calibrate(float(epsilon), float(delta), int(d), float(share), float(resolution))


def check_blocks(m: int, parameters: CentreParameters, *, rows_per_block: int | None = None, unit: str = "row") -> None:
    """Refuse a number of blocks that cannot work; looks at no data.

    Parameters
    ----------
    m : int
        Number of blocks.
    parameters : CentreParameters
        Calibrated parameters.
    rows_per_block : int, optional
        Lets the message say how many rows would do.
    unit : {"row", "person"}
        What a block is made of, for the message.

    Raises
    ------
    TooFewBlocksError
        If m < ``parameters.smallest_m``.  It names that number and the largest d that works with m.
    """
    need = parameters.smallest_m
    if m >= need:
        return
    rows = None if rows_per_block is None else need * rows_per_block
    best = _largest_d(m, parameters)
    in_rows = "" if rows is None else f", that is n >= {rows} {unit}s at {rows_per_block} per block"
    smaller = f"or use at most d={best} coordinates" if best else "no d works with so few blocks"
    raise TooFewBlocksError(
        f"m={m} blocks are too few for the centre of attention with epsilon={parameters.epsilon:g}, "
        f"delta={parameters.delta:g}, d={parameters.d}: give m >= {need} blocks{in_rows}; {smaller}; or "
        "raise epsilon; the block median works with fewer blocks",
        m=m,
        smallest_m=need,
        smallest_n=rows,
        largest_d=best,
    )


def centre_of_attention(
    Z: ArrayLike,
    diameter: float,
    parameters: CentreParameters,
    noise: DiscreteNoise,
    *,
    anchor: ArrayLike | None = None,
    rows_per_block: int | None = None,
) -> NDArray[np.float64]:
    r"""Return the centre of attention of block answers plus noise.

    Parameters
    ----------
    Z : array-like of shape (m, d)
        Block answers; blocks must not share rows.
    diameter : float
        Public diameter L.  Rows are clamped to the ball of radius L/2 around ``anchor``, so answers that
        were projected onto a set inside that ball (a ball, or a box with its diagonal as the diameter) do
        not move.
    parameters : CentreParameters
        From :func:`centre_parameters`, with the d of Z.
    noise : object
        ``noise.discrete_gaussian(scale, size)`` gives independent discrete Gaussians.
    anchor : array-like of shape (d,), optional
        Public middle of the set, the origin by default.  A block that failed (NaN or inf) counts as the
        anchor.
    rows_per_block : int, optional
        For the message of a refusal only.

    Returns
    -------
    ndarray of shape (d,)
        centre + (S/gamma) N(0, I), on a public grid of 2**-50 L/gamma around the anchor.  It may lie
        outside the set: projecting it back is free.

    Raises
    ------
    TooFewBlocksError
        If m is below ``parameters.smallest_m`` (m is public).

    Notes
    -----
    **Formal guarantee.**  For every pair of arrays Z, Z' that differ in one row (one block;
    hence one record, where blocks are disjoint), whatever the values, the result is (epsilon, delta)-DP;
    the module docstring has the proof.  It needs nothing of the caller but a public diameter and anchor:
    the clamp is done here.

    Rounding: distances come from coordinate differences, with a relative error below 1e-10; the score is
    raised by 1e-9 and the smoothness lowered by as much.  The score has a public floor of 2**-29 L (a
    maximum with a constant stays smooth), against which underflow and the grid are nothing.

    Noise: an exact discrete Gaussian on the grid.  Its scale is at least 2**21 steps on any data, so on Z and on
    Z' it is within a factor e^{+-7e-11} per coordinate of the rounded normal that the proof speaks of; the caller
    sets that aside (`tailguard.algorithms.algorithm1` calibrates to a millionth less of epsilon and delta).

    Nothing but the returned vector may be shown: the centre, its index and the score are private.

    ====================================  ==============================================================
    input                                 what happens
    ====================================  ==============================================================
    row outside the ball (1e308, too)     moved to the surface of the ball, along its direction
    row with NaN or inf                   counts as the anchor
    ties for the centre                   the first index; the proof allows any
    all rows equal                        the score is its public floor, the noise is not zero
    too few rows, wrong shape             ``ValueError`` (shapes and parameters are public)
    ====================================  ==============================================================
    """
    values = np.asarray(Z, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != parameters.d:
        raise ValueError(f"Z has shape {values.shape}: give one row per block and parameters.d={parameters.d} columns")
    if not 1e-100 <= diameter <= 1e100:
        raise ValueError(f"diameter={diameter!r}: must be a public number from 1e-100 to 1e100")
    m, d = values.shape
    check_blocks(m, parameters, rows_per_block=rows_per_block)
    middle = np.zeros(d) if anchor is None else np.asarray(anchor, dtype=np.float64)
    if middle.shape != (d,) or not np.isfinite(middle).all():
        raise ValueError(f"anchor={anchor!r}: give {d} finite public numbers, or None for the origin")
    points = _clamp_rows(values, float(diameter), middle)
    index, score = _centre_and_score(points, float(diameter), parameters.q, parameters.decay)
    return middle + _release(points[index], score, float(diameter), parameters.gamma, noise)


def _clamp_rows(values: NDArray[np.float64], diameter: float, anchor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows relative to the anchor, in the ball of radius diameter/2; each row by itself."""
    finite = np.isfinite(values).all(axis=1, keepdims=True)
    half = np.where(finite, values, anchor) / 2 - anchor / 2  # halves: 1e308 - (-1e308) must not overflow
    largest = np.abs(half).max(axis=1, keepdims=True)
    unit = half / np.where(largest > 0, largest, 1.0)
    length = np.sqrt((unit**2).sum(axis=1, keepdims=True))  # 1 to sqrt(d), or 0
    with np.errstate(over="ignore"):  # an overflow is outside, too
        outside = largest * length > diameter / 4
    surface = unit * (diameter / 2 / np.maximum(length, 1.0))
    return np.where(outside, surface, 2 * np.where(outside, 0.0, half))


def _majority(m: int) -> int:
    """Smallest t0 for which two sets of t0 out of m answers, one answer replaced, must share a common one."""
    return (m + 1) // 2 + 1


def _centre_and_score(points: NDArray[np.float64], diameter: float, q: int, decay: float) -> tuple[int, float]:
    """Return the index of the centre and the score S; both are private.

    Memory is m (m - t0 + 1) floats plus one block of rows of the distance matrix.
    """
    from scipy.spatial.distance import cdist  # a tenth of the time of importing all of tailguard

    m = points.shape[0]
    t0 = _majority(m)
    radii = np.empty((m, m - t0 + 1))  # column s is r(t0 + s)
    rows = max(1, 2**21 // m)
    for start in range(0, m, rows):
        stop = min(start + rows, m)
        distance = cdist(points[start:stop], points)
        distance.sort(axis=1)
        radii[start:stop] = distance[:, t0 - 1 :]
    index = int(np.argmin(radii[:, 0]))
    smallest = np.partition(radii[:, 1:].T, q - 1, axis=1)[:, :q].mean(axis=1)
    rho = np.append(smallest, diameter)  # rho(t0 + k + 1) for k = 0..m - t0; the last is the public one
    discounted = rho * np.exp(-decay * np.arange(m - t0 + 1))
    score = 2 * max(float(discounted.max()), _FLOOR * diameter)
    return index, score * (1 + _ROUNDING)


def _release(
    centre: NDArray[np.float64], score: float, diameter: float, gamma: float, noise: DiscreteNoise
) -> NDArray[np.float64]:
    """Round to the public grid and add a discrete Gaussian of sd score/gamma on it."""
    # The score is between 2**-29 and about 2 diameters, so the noise is between 2**21 and 2**52 steps.
    step = math.ldexp(diameter, _GRID_BITS - math.frexp(gamma)[1])
    units = np.rint(centre / step).astype(np.int64)
    # Rounding moves two centres apart by at most sqrt(d) steps: a public constant, which keeps the score smooth.
    scale = (score / step + math.sqrt(len(units))) / gamma
    return np.asarray((units + noise.discrete_gaussian(scale, len(units))) * step, dtype=np.float64)


@lru_cache(maxsize=256)
def _calibrate(epsilon: float, delta: float, d: int, share: float, resolution: float) -> CentreParameters:
    gamma = share * _largest_gamma(epsilon, delta)
    good = _LARGEST_BETA
    while not _certified(epsilon, delta, d, gamma, good):
        good /= 2
        if good < 1e-8:
            raise ValueError(
                f"epsilon={epsilon:g}, delta={delta:g}, d={d}, share={share:g}: no smoothness could be "
                "certified; give a larger epsilon or a smaller share"
            )
    bad = min(2 * good, _LARGEST_BETA)
    for _ in range(20):
        beta = 0.5 * (good + bad)
        if _certified(epsilon, delta, d, gamma, beta):
            good = beta
        else:
            bad = beta
    q = math.ceil(4 / good)
    decay = good - math.log1p(1 / q) - 2 * _ROUNDING
    return CentreParameters(
        epsilon=epsilon,
        delta=delta,
        d=d,
        gamma=gamma,
        beta=good,
        q=q,
        decay=decay,
        share=share,
        resolution=resolution,
    )


def _largest_d(m: int, parameters: CentreParameters) -> int:
    """Largest d below parameters.d that m blocks allow, by bisection; 0 if none."""

    def works(d: int) -> bool:
        p = parameters
        return _calibrate(p.epsilon, p.delta, d, p.share, p.resolution).smallest_m <= m

    low, high = 0, parameters.d
    while high - low > 1:
        middle = (low + high) // 2
        if works(middle):
            low = middle
        else:
            high = middle
    return low


def _gaussian(epsilon: float, gamma: float) -> float:
    """H(N(0, 1) || N(gamma, 1)) = Phi(gamma/2 - eps/gamma) - e^eps Phi(-gamma/2 - eps/gamma), from above."""
    here = float(special.ndtr(gamma / 2 - epsilon / gamma))
    there = math.exp(epsilon + float(special.log_ndtr(-gamma / 2 - epsilon / gamma)))
    return here * (1 + _NORMAL_ERROR) - there * (1 - _NORMAL_ERROR)


def _largest_gamma(epsilon: float, delta: float) -> float:
    """Largest gamma <= sqrt(2 epsilon) of the Gaussian mechanism with a fixed scale."""
    low, high = 0.0, math.sqrt(2 * epsilon)
    if _gaussian(epsilon, high) <= delta:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _gaussian(epsilon, middle) <= delta:
            low = middle
        else:
            high = middle
    return low


def _certified(epsilon: float, delta: float, d: int, gamma: float, beta: float) -> bool:
    """Conditions (i) and (ii) of Lemma 3."""
    if gamma**2 > 2 * epsilon or _hockey_stick(epsilon, d, gamma, beta, wide_first=True) > delta:
        return False
    narrow = _hockey_stick(epsilon, d, gamma, beta, wide_first=False)
    return _gaussian(epsilon, gamma) + narrow <= delta


def _hockey_stick(epsilon: float, d: int, gamma: float, beta: float, *, wide_first: bool) -> float:
    """Upper bound of H between W = N(gamma e1, e^{2 beta} I) and N = N(0, I), beta > 0.

    With v = e^{2 beta} - 1 and w = 1 + v, log(W/N) >= +-epsilon outside the ball of centre -(gamma/v) e1
    and squared radius R = w (2 (d beta +- epsilon) v + gamma^2)/v^2.  |x - centre|^2 is chi-square with d
    degrees of freedom and non-centrality gamma^2/v^2 under N, and w times one with non-centrality
    gamma^2 w/v^2 under W.
    """
    v = math.expm1(2 * beta)
    w = 1 + v
    sign = 1.0 if wide_first else -1.0
    radius = w * (2 * (d * beta + sign * epsilon) * v + gamma**2) / v**2
    if radius <= 0:  # the ball is empty, and with it the event of the narrow-first order
        return 0.0
    if gamma**2 * w / v**2 > 2 * _MAX_POISSON:
        return 1.0
    under_wide = _chi_square(radius / w, gamma**2 * w / v**2, d, above=wide_first)
    under_narrow = _chi_square(radius, gamma**2 / v**2, d, above=wide_first)
    first, second = (under_wide, under_narrow) if wide_first else (under_narrow, under_wide)
    return first * (1 + _SERIES_ERROR) + _SERIES_REST - math.exp(epsilon) * second * (1 - _SERIES_ERROR)


def _chi_square(x: float, noncentrality: float, d: int, *, above: bool) -> float:
    """P(chi2_d(noncentrality) > x), or < x, as a Poisson mixture of gamma probabilities.

    All terms are positive and each is accurate to better than 1e-6 (1e-10 within 9 sd).  The window of 14 sd + 100
    around the Poisson mean h leaves out less than 2 exp(-t^2 / (2 (h + t/3))) < 1e-38, t = 14 sqrt(h) + 100
    (Bernstein).
    """
    h = noncentrality / 2
    reach = 14 * math.sqrt(h) + 100
    j = np.arange(max(0, math.floor(h - reach)), math.ceil(h + reach) + 1)
    log_weight = special.xlogy(j, h) - h - special.gammaln(j + 1.0)
    tail = special.gammaincc if above else special.gammainc
    return float(np.exp(log_weight) @ tail(d / 2 + j, x / 2))
