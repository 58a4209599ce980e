"""Audits of everything that is shipped, at small size: below its claim, and the same with too little noise is caught.

``make audit`` runs the same subjects and defects in full. Lower bounds that must stay below a claim are taken at a
confidence of 99.99 %, so that one seed in 10,000 fails at most; those that must exceed it, at the 99 % of the tool.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

import tailguard as tg
from defects import DEFECTS, with_noise
from tailguard.auditing import CASES, NEIGHBOURS, audit_one_run
from tailguard.privacy import SeededNoise
from tailguard.privacy.arsinh_normal import arsinh_parameters, exact_normals, release, release_grid

SURE = 0.9999
GAUSSIAN = [name for name in CASES if name.startswith(("gaussian", "poisson"))]
# Whole fits, of milliseconds each: a few runs here, thousands in the full audit.
MEANS = ("private_mean", "private_mean-few", "private_mean-columns")
FITS = [name for name in CASES if name.startswith("Private") or name in MEANS]
SLOW = [name for name, case in CASES.items() if case.runs < 100_000 and name not in FITS]
QUICK = [name for name in CASES if name not in FITS + SLOW]


def hardest(case):
    """The pair made for the subject if there is one, else the largest change of a bounded sum: no scan."""
    pairs = {pair.name: pair for pair in case.pairs()}
    made = [pair for name, pair in pairs.items() if name not in NEIGHBOURS]
    return made[0] if made else pairs["sparse canary" if case.relation == "add-remove" else "opposite outliers"]


def audited(case, runs, confidence=0.99, seed=0):
    return tg.audit(case, pair=hardest(case), runs=runs, confidence=confidence, seed=seed, workers=1)


def built_for(case, factor):
    """The same subject, built for a claim that is so many times larger than the one it is audited against."""
    return replace(case, make=lambda epsilon, delta: case.make(factor * epsilon, delta))


@pytest.mark.parametrize("name", QUICK)
def test_mechanisms_keep_their_claim(name):
    assert not audited(CASES[name], 600, SURE).refuted


@pytest.mark.parametrize("name", [name for name in QUICK if name not in GAUSSIAN])
def test_mechanisms_built_for_a_larger_claim_are_caught(name):
    assert audited(built_for(CASES[name], 50.0), 600).refuted


@pytest.mark.parametrize("name", GAUSSIAN)
def test_means_with_a_quarter_of_their_noise_are_caught(name):
    assert audited(with_noise(name, 0.25), 600).refuted


@pytest.mark.parametrize("name", SLOW)
def test_algorithms_keep_their_claim(name):
    assert not audited(CASES[name], 120, SURE).refuted


# The centre takes fewer blocks for a larger claim, and then they hold several rows; "centre" has its power half above.
@pytest.mark.parametrize("name", [name for name in SLOW if name != "algorithm1-center"])
def test_algorithms_built_for_a_larger_claim_are_caught(name):
    assert audited(built_for(CASES[name], 50.0), 120).refuted


@pytest.mark.parametrize("name", FITS)
def test_fits_without_parameters_keep_their_claim(name):
    """80 fits can refute a claim of 1, but only where the tables are told apart nearly always."""
    assert not audited(CASES[name], 80, 0.999).refuted


def mean_with_one_seed(X, rng):
    return tg.private_mean(X, 1.0, 0.05, allow_large_delta=True, random_state=0).value


def model_with_one_seed(X, y, rng):
    model = tg.PrivateLogisticRegression(1.0, 0.05, classes=(0, 1), allow_large_delta=True, random_state=0)
    return model.fit(X, y).coef_


@pytest.mark.parametrize(
    ("function", "name"), [(mean_with_one_seed, "private_mean"), (model_with_one_seed, "PrivateLogisticRegression")]
)
def test_fits_whose_noise_is_always_the_same_are_caught(function, name):
    case = CASES[name]
    assert tg.audit(function, case.epsilon, case.delta, pair=hardest(case), runs=80, workers=1).refuted


def test_the_median_is_audited_to_within_two_fifths_of_its_claim():
    assert 0.6 < audited(CASES["block-median"], 30_000, SURE).lower < 1.0


# Enough runs that the defect is caught with any seed.
RUNS = {
    "noise x 0.7": 6000,
    "off by one in d with an intercept": 6000,
    "shuffle priced as Poisson": 2000,
    "realised batch size as divisor": 1500,
}


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defects_are_caught(name):
    assert tg.audit(DEFECTS[name], runs=RUNS.get(name, 400), workers=1).refuted


def test_one_run_keeps_the_claim_and_catches_a_sixth_of_the_noise():
    """At (1, 1e-6): the p-value of the first half is at most 1e-4; the second holds by a wide margin."""
    honest = audit_one_run("gaussian-l2-add-remove", 1.0, 1e-6, confidence=SURE)
    broken = audit_one_run(with_noise("gaussian-l2-add-remove", 0.15), 1.0, 1e-6)
    assert (honest.refuted, broken.refuted) == (False, True)
    assert not audit_one_run("clipped_gd", 1.0, 1e-6, canaries=200, confidence=SURE).refuted


def test_an_output_at_a_large_noise_scale_does_not_tell_the_scale():
    """Where S is 2^40 times its floor, few outputs can be written as those of a normal of 50 bits.

    If all could, "this output belongs to f(D) and S(D)" would be an event of probability 1 under D and small under D'.
    """
    m, width = 100, 2e9
    parameters = arsinh_parameters(1.0, m, 1800, width, 1e-6)
    grid = release_grid(parameters, m, width)
    assert width / (parameters.s * grid) > 2.0**50, "the scale must be one that floats cannot fill"

    def told(normal):
        nearest = Decimal(int((normal * 2**50).to_integral_value())) / 2**50
        return release(0.0, width, parameters, normal, grid) == release(0.0, width, parameters, nearest, grid)

    fine = exact_normals(SeededNoise(0), 500)
    coarse = [Decimal(k) / 2**50 for k in SeededNoise(1).discrete_gaussian(2.0**50, 500).tolist()]
    assert np.mean([told(y) for y in fine]) < 0.5
    assert all(told(y) for y in coarse)
