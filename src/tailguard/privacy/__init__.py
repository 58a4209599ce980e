"""Privacy: the promise, what was released, what that costs, and the noise that pays for it.

Read in this order: :mod:`.events` (what was released), :mod:`.accounting` (its price, over
:mod:`.gaussian`, :mod:`.concentrated`, :mod:`.subsampled` and :mod:`.selection`), :mod:`.budget` (the
promise), :mod:`.calibration` and :mod:`.account` (noise levels that keep it), :mod:`.noise` (the
noise itself), :mod:`.report` (what the user is told).
"""

from tailguard.privacy.account import Account, PureAccount
from tailguard.privacy.accounting import (
    GRID_PRICE,
    epsilon_of,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    poisson_gaussian_epsilon,
    total_rho,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from tailguard.privacy.budget import Budget, OverBudgetError, check_delta, default_delta
from tailguard.privacy.calibration import gaussian_mu, poisson_noise_multiplier, selection_mu, total_mu
from tailguard.privacy.events import (
    ApproximateDP,
    Event,
    Gaussian,
    NotPrivate,
    PoissonGaussian,
    Relation,
    Selection,
    UnknownEventError,
    ZeroConcentrated,
)
from tailguard.privacy.noise import (
    MAX_GRID_SCALE,
    MIN_GRID_SCALE,
    NoiseSource,
    SeededNoise,
    SystemNoise,
    exact_rate,
    noise_source,
)
from tailguard.privacy.report import PrivacyReport

__all__ = [
    "GRID_PRICE",
    "MAX_GRID_SCALE",
    "MIN_GRID_SCALE",
    "Account",
    "ApproximateDP",
    "Budget",
    "Event",
    "Gaussian",
    "NoiseSource",
    "NotPrivate",
    "OverBudgetError",
    "PoissonGaussian",
    "PrivacyReport",
    "PureAccount",
    "Relation",
    "SeededNoise",
    "Selection",
    "SystemNoise",
    "UnknownEventError",
    "ZeroConcentrated",
    "check_delta",
    "default_delta",
    "epsilon_of",
    "exact_rate",
    "gaussian_mu",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "noise_source",
    "poisson_gaussian_epsilon",
    "poisson_noise_multiplier",
    "selection_mu",
    "total_mu",
    "total_rho",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
