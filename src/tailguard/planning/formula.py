r"""The error to expect of a default fit, from public numbers alone.

With K = 2 (d + 1)/(n mu), the noise of one gradient that had the whole budget over its signal, the variance of what is
estimated has three parts, and what is estimated is shrunk by it towards nothing fitted, which costs D:

    V = a · sampling  +  b · privacy  +  D (c K² + e (100/(n mu))³ + f t)          error = D V/(D + V) + level

==========  ==============================  ===================  ======================  =========================
model       error                           D, nothing fitted    sampling                privacy
==========  ==============================  ===================  ======================  =========================
ridge,      E(prediction - best line)²      R²                   (1 - R²) d/n            (1 - R²) K²
huber       over Var y: the R² that is
            lost
logistic    log-loss beyond the truth's     that of a constant   d/(2n)                  E p(1 - p) (K/E min(p,
                                                                                         1 - p))²/2
mean        (mean - true mean)² over Var y  1                    1/n                     (1/(n mu))^g
==========  ==============================  ===================  ======================  =========================

* *sampling*: what a fit without noise has; a is near 1, less where the default's bounded scores beat least squares.
* *privacy*: a row's score is at most R c with R about ``sqrt(d + 1)`` and the clip c a multiple of the residual's sd,
  so d slopes get a noise of variance ``d (2 R c/(n mu))²``, of the order of ``(1 - R²) K²``.
* *unresolved*: scales, correlations and curvature are noisy as well, and spoil the line in proportion to itself; with
  few rows, whatever their columns, scales are sometimes off by a factor. Logistic steps stop short of the solution
  where the classes are uneven and far apart, t = D (1 - 2 rate)².
* *level*: the private mean of the residuals, ``a0 (1 - R²)/n + b0 (1 - R²) (1/(n mu))^g`` for a line. A mean that is
  clipped as far out as its noise allows errs by a power g between 2 (light tails) and 1 (two moments).

Lines with small budgets have constants of their own. Above the ratio K at which the default fits no slopes (constants
of its files) the error is D + level; below some n mu not even the scale of the target is found. The constants are
medians over seeds of simulated fits (`benchmarks/planning.py --calibrate`), kept in ``constants.json``;
docs/planning.md says how far off they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

import numpy as np

from tailguard._checks import count, one_of, positive, probability, within
from tailguard.privacy import default_delta, gdp_mu
from tailguard.privacy.roots import root_of

Model = Literal["ridge", "huber", "logistic", "mean"]
Tails = Literal["light", "heavy"]
MODELS: tuple[Model, ...] = get_args(Model)

ERRORS = {
    "ridge": "part of the target's variance that is lost against the best line: by how much R² falls",
    "huber": "part of the target's variance that is lost against the best line: by how much R² falls",
    "logistic": "log-loss beyond that of the true probabilities, in nats",
    "mean": "squared error of the mean over the column's variance",
}


@dataclass(frozen=True)
class Situation:
    """What is planned for; everything is public or assumed.

    Parameters
    ----------
    rows : int
        n.
    features : int
        d; 0 for a mean.
    epsilon : float
    delta : float, optional
        Default ``min(1e-6, n**-1.5)``.
    model : {"ridge", "huber", "logistic", "mean"}
        `PrivateRidge`, `PrivateHuberRegressor`, `PrivateLogisticRegression`, or `private_mean` of one column.
    r2 : float
        Assumed for a line: the part of the target's variance that the best line explains.
    log_odds_sd : float
        Assumed for logistic: the spread of the true log-odds; 1 is a weak signal, 3 a strong one.
    positive_rate : float
        Assumed for logistic: the share of the rarer class.
    tails : {"light", "heavy"}
        Assumed for a line or a mean: noise like a normal's, or like a log-normal's.
    """

    rows: int
    features: int
    epsilon: float
    delta: float | None = None
    model: Model = "ridge"
    r2: float = 0.5
    log_odds_sd: float = 1.5
    positive_rate: float = 0.5
    tails: Tails = "heavy"

    def __post_init__(self) -> None:
        count("rows", self.rows, least=2)
        one_of("model", self.model, MODELS)
        one_of("tails", self.tails, get_args(Tails))
        count("features", self.features, least=0 if self.model == "mean" else 1)
        within("epsilon", positive("epsilon", self.epsilon), 1e-9, 1e9)
        if self.delta is not None:
            probability("delta", self.delta)
        within("r2", self.r2, 0.0, 1.0, open_low=True, open_high=True)
        within("log_odds_sd", self.log_odds_sd, 0.0, 10.0, open_low=True)
        within("positive_rate", self.positive_rate, 0.0, 1.0, open_low=True, open_high=True)

    @property
    def at_delta(self) -> float:
        """The delta in use."""
        return default_delta(self.rows) if self.delta is None else self.delta

    @property
    def mu(self) -> float:
        """What the whole budget amounts to as Gaussian noise."""
        return gdp_mu(self.epsilon, self.at_delta)

    @property
    def ratio(self) -> float:
        """K, noise over signal of one gradient that had the whole budget."""
        return 2.0 * (self.features + 1) / (self.rows * self.mu)


@dataclass(frozen=True)
class Plan:
    """What to expect.

    Parameters
    ----------
    situation : Situation
        What it is planned for.
    mu : float
        The budget as Gaussian noise; its inverse is the noise of a single count.
    ratio : float
        K, noise over signal of one gradient that had the whole budget.
    largest_ratio : float
        From which on no slopes are fitted.
    regime : {"close", "noisy", "level only", "nothing"}
        Close to the fit without noise; slopes shrunk by their noise; slopes zero; not even a scale is found.
    steps : int
        Gradient steps of the default.
    step_noise : float
        Standard deviation of the noise of a typical step, in each coordinate, over the largest score of a row.
    error : float
        To expect: half of all fits do better.
    often : float
        Nine fits in ten do better.
    sampling, privacy, unresolved, level : float
        Parts of the error: before shrinkage, and of the level.
    without_privacy : float
        Error of the fit without noise.
    nothing_fitted : float
        Error of a constant.
    """

    situation: Situation
    mu: float
    ratio: float
    largest_ratio: float
    regime: Literal["close", "noisy", "level only", "nothing"]
    steps: int
    step_noise: float
    error: float
    often: float
    sampling: float
    privacy: float
    unresolved: float
    level: float
    without_privacy: float
    nothing_fitted: float

    @property
    def rows_for_slopes(self) -> int:
        """Rows from which on slopes are fitted, at this epsilon and number of features."""
        return _rows_for_slopes(self.situation, self.largest_ratio)

    def to_dict(self) -> dict[str, Any]:
        """Return plain, JSON-ready data."""
        facts = asdict(self) | {"error_is": ERRORS[self.situation.model], "rows_for_slopes": self.rows_for_slopes}
        facts["situation"]["delta"] = self.situation.at_delta
        facts["largest_ratio"] = self.largest_ratio if math.isfinite(self.largest_ratio) else None
        return facts


def plan(situation: Situation) -> Plan:
    """Predict the error of a default fit.

    Parameters
    ----------
    situation : Situation
        Numbers of rows and features, the budget, and what is assumed of the data.

    Returns
    -------
    Plan
        No data is touched.

    Examples
    --------
    >>> from tailguard.planning import Situation, plan
    >>> plan(Situation(rows=30_000, features=20, epsilon=1.0)).regime
    'close'
    """
    known = all_constants()
    constants = known[key_of(situation.model, situation.tails, small_fit(situation))]
    return predict(situation, constants, known[key_of(situation.model, situation.tails)])


def predict(situation: Situation, constants: Mapping[str, float], free: Mapping[str, float] | None = None) -> Plan:
    """Predict with given constants: for `plan`, and for their calibration.

    ``free`` are those of the fit without noise, which has no budget to be small: one set for a model and its tails.
    """
    s, k, without = situation, constants, constants if free is None else free
    n, mu, ratio = s.rows, s.mu, s.ratio
    largest, steps = _default_facts(s)
    nothing, sampling, privacy, size = _scales(s)
    tilt = nothing * (1.0 - 2.0 * s.positive_rate) ** 2 if s.model == "logistic" else 0.0
    unresolved = nothing * (k["c"] * ratio**2 + k["e"] * (100.0 / (n * mu)) ** 3 + k["f"] * tilt)
    V = {"sampling": k["a"] * sampling, "privacy": k["b"] * privacy, "unresolved": unresolved}
    level = size * (k["a0"] / n + k["b0"] * (n * mu) ** -k["g"])
    no_noise = _shrunk(nothing, without["a"] * sampling) + size * without["a0"] / n
    if n * mu < k["lost"]:
        regime, error = "nothing", 1.0 if s.model != "logistic" else nothing + level
    elif s.model == "mean":
        regime, error = ("close" if level < 4.0 * no_noise else "noisy"), min(1.0, level)
    elif ratio > largest:
        regime, error = "level only", nothing + level
    else:
        total = sum(V.values())
        error = _shrunk(nothing, total) + level
        regime = "close" if error < 4.0 * no_noise or error < 0.05 * nothing else "noisy"
    return Plan(
        situation=s,
        mu=mu,
        ratio=ratio,
        largest_ratio=largest,
        regime=regime,  # type: ignore[arg-type]
        steps=steps,
        step_noise=2.0 * math.sqrt(max(1, steps)) / (n * mu),
        error=error,
        often=error * k["often"],
        **V,
        level=level,
        without_privacy=no_noise,
        nothing_fitted=nothing,
    )


def _shrunk(nothing: float, variance: float) -> float:
    return nothing * variance / (nothing + variance)


def _scales(s: Situation) -> tuple[float, float, float, float]:
    """Return D, the scale of sampling, of privacy, and of the level's error."""
    n, d = s.rows, s.features
    if s.model == "mean":
        return 1.0, 0.0, 0.0, 1.0
    if s.model == "logistic":
        constant, spread, smaller = logistic_moments(s.log_odds_sd, s.positive_rate)
        return constant, d / (2.0 * n), 0.5 * spread * (s.ratio / smaller) ** 2, 0.5 * spread / smaller**2
    rest = 1.0 - s.r2
    return s.r2, rest * d / n, rest * s.ratio**2, rest


@cache
def logistic_moments(sd: float, rate: float) -> tuple[float, float, float]:
    """Return the excess log-loss of a constant, E p(1 - p) and E min(p, 1 - p), for normal log-odds."""
    points, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()

    def average(values: Any) -> float:
        return float(weights @ values)

    z = log_odds_level(sd, rate) + sd * points
    p = 1.0 / (1.0 + np.exp(-z))
    entropy = average(np.logaddexp(0.0, z) - p * z)
    constant = -rate * math.log(rate) - (1.0 - rate) * math.log(1.0 - rate) - entropy
    return max(constant, 1e-12), average(p * (1.0 - p)), average(np.minimum(p, 1.0 - p))


@cache
def log_odds_level(sd: float, rate: float) -> float:
    """Return the mean of normal log-odds whose average probability is ``rate``."""
    points, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    return root_of(
        lambda m: float(weights @ (1.0 / (1.0 + np.exp(-(m + sd * points))))) - rate, -60.0, 60.0, xtol=2e-12
    )


def _default_facts(s: Situation) -> tuple[float, int]:
    """Return the ratio from which the default fits no slopes, and the number of its steps, from its own constants."""
    if s.model == "mean":
        return math.inf, 0
    if s.model == "logistic":
        from tailguard.default import logistic

        return logistic.TOO_NOISY, logistic.step_count(s.ratio)
    from tailguard.default import choice, linear, small

    # Up to a ratio, and from some n mu on.
    largest = min(choice.HIGH, 2.0 * (s.features + 1) / choice.LEAST)
    many = choice.kind_at(s.rows * s.mu, s.ratio) == "full"
    return largest, sum(linear.STEPS) if many else small.step_count(s.ratio)


def _rows_for_slopes(s: Situation, largest: float) -> int:
    """Return the least n with K at most ``largest``."""
    if s.model == "mean":
        return 0
    low, high = 1, 2
    while high < 2**60 and replace(s, rows=high).ratio > largest:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if replace(s, rows=max(2, middle)).ratio > largest else (low, middle)
    return high


@cache
def all_constants() -> dict[str, dict[str, float]]:
    """Return the calibrated constants, by model and tails."""
    text = resources.files("tailguard.planning").joinpath("constants.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, float]] = json.loads(text)["constants"]
    return found


def key_of(model: str, tails: str, small: bool = False) -> str:
    """Return the name of a set of constants; a small fit is the same for both kinds of lines."""
    if model == "logistic":
        return "logistic"
    return f"small fit, {tails}" if small else f"{model}, {tails}"


def small_fit(s: Situation) -> bool:
    """Whether the default makes its fit for small budgets, which has constants of its own."""
    from tailguard.default.choice import kind_at

    return s.model in ("ridge", "huber") and kind_at(s.rows * s.mu, s.ratio) == "small"
