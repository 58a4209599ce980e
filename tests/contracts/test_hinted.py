"""Every query of a fit with public hints keeps its sensitivity, whether the hints are true or not.

The harness is that of ``test_queries.py``: every sum is taken on a table and on a neighbour, and compared with what the
noise covers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_queries import EXTREME, FITS, ROUNDING, Checked, Twin, checked, table  # noqa: F401

import tailguard as tg
from tailguard import default, losses
from tailguard.default import DefaultOptions, fit_columns, fit_default, hinted, small
from tailguard.engines.memory import InMemory
from tailguard.mean import MeanTable
from tailguard.means.queries import Queries
from tailguard.privacy import Account, Budget, SeededNoise

NAMES = ("a", "b", "c")
HINTS = {
    "ranges": tg.Hints(ranges={"a": (-5, 5), "b": (900, 1100), "c": (0, 1)}, target_range=(-9, 9)),
    "categories": tg.Hints(categories=dict.fromkeys(NAMES, (0, 1))),
    "moment": tg.Hints(moment=1.0, target_range=(0, 1e300 ** (1 / 3))),
    "exchangeable": tg.Hints(exchangeable=True),
    "two groups": tg.Hints(exchangeable=[["a", "b"], ["c"]], ranges={"a": (-1, 1)}),
    "everything": tg.Hints(ranges={"a": (0, 9)}, categories={"b": (-1, 1)}, moment={"c": 4.0}, target_range=(0, 1)),
    "tiny": tg.Hints(ranges=dict.fromkeys(NAMES, (7.0, 7.0 + 1e-9)), target_range=(1e6, 1e6 + 1e-3)),
    "huge": tg.Hints(moment=1e200, target_range=(-1e100, 1e100)),
    "far too small": tg.Hints(moment=1e-200),
}
EPSILON = 5.0  # with 120 rows and 3 columns: the ratio at which a hinted linear fit is small


def rows_that_are_replaced():
    for k, Twin.row in enumerate(EXTREME):
        for kind in ("normal", "shifted", "awkward"):
            yield k, *table(kind, 120, 3, k)


@pytest.mark.parametrize(
    ("name", "hints", "intercept"),
    [("mean", hints, True) for hints in HINTS]
    + [(name, hints, True) for name in FITS if name != "mean" for hints in ("ranges", "exchangeable", "tiny")]
    + [("Poisson", hints, False) for hints in ("ranges", "moment", "exchangeable")],
)
def test_every_query_of_a_hinted_fit_keeps_its_sensitivity(checked, name, hints, intercept):  # noqa: F811
    loss, target = FITS[name]
    public = {"fit_intercept": intercept, "hints": HINTS[hints], "names": NAMES, "threads": 1}
    for k, X, y in rows_that_are_replaced():
        fit_default(loss, X, target(y), DefaultOptions(EPSILON, 1e-6, random_state=k, **public))
    if name in ("mean", "bulk", "Poisson"):
        assert {"correlations", "clip", "steps"} | ({"level"} if intercept else set()) <= Checked.seen
        assert "curvature" not in Checked.seen, "the fit for small budgets was not taken"


@pytest.mark.parametrize("hints", HINTS)
def test_every_query_of_a_hinted_mean_keeps_its_sensitivity(checked, hints):  # noqa: F811
    for k, X, _ in rows_that_are_replaced():
        table = MeanTable.of(X, Budget(mu=1.2), None, False, 1)
        default.default_mean(table, SeededNoise(k), hints=HINTS[hints], names=NAMES)
    assert Checked.seen


@pytest.mark.parametrize("hints", [None, *HINTS])
@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_every_query_of_a_scaler_keeps_its_sensitivity(checked, hints, epsilon):  # noqa: F811
    given = {} if hints is None else {"hints": HINTS[hints], "names": NAMES}
    for k, X, _ in rows_that_are_replaced():
        columns, report = fit_columns(X, epsilon, 1e-6, random_state=k, **given)
        assert report.epsilon <= epsilon
        assert np.all(columns.lower <= columns.upper)
        assert np.all(columns.scale > 0.0)
    assert "closer look" in Checked.seen


@pytest.mark.parametrize("wrong", ["counts", "mean", "score"])
def test_the_check_of_hinted_queries_can_fail(checked, monkeypatch, wrong):  # noqa: F811
    """Power: two counts a value, a mean that is a sum, or a clip that is 1.5 times too long are noticed."""
    if wrong == "counts":
        plain = hinted.PooledCounts.__call__
        monkeypatch.setattr(hinted.PooledCounts, "__call__", lambda self, X, y: 2 * plain(self, X, y))
    elif wrong == "mean":
        plain_mean = hinted.PooledMean.__call__
        monkeypatch.setattr(hinted.PooledMean, "__call__", lambda self, X, y: 3 * plain_mean(self, X, y))
    else:
        plain_score = small.JointScore.__call__
        monkeypatch.setattr(small.JointScore, "__call__", lambda self, X, y: 1.5 * plain_score(self, X, y))
    with pytest.raises(AssertionError):  # noqa: PT012
        for k, X, y in rows_that_are_replaced():
            options = DefaultOptions(EPSILON, 1e-6, random_state=k, threads=1, hints=HINTS["exchangeable"], names=NAMES)
            fit_default(losses.Squared(), X, y, options)


def test_pooled_counts_reach_their_sensitivity_and_do_not_exceed_it():
    """All k values of a row move from one bin to another: exactly sqrt(2) k, for which the noise is drawn."""
    X, k = np.zeros((50, 3)), 3
    other = X.copy()
    other[0] = 1e9
    values = hinted.PooledValues((0, 1, 2), (-np.inf,) * k, (np.inf,) * k, (0.0,) * k, (1.0,) * k)
    counts = hinted.PooledCounts(values)
    change = counts(X, X[:, 0]) - counts(other, X[:, 0])
    assert np.linalg.norm(change) == pytest.approx(math.sqrt(2.0) * k)


def test_hinted_looks_stay_inside_their_shares():
    """Whatever is seen: nothing, everything, columns far away that are looked at again."""
    for kind in ("normal", "shifted", "binary", "awkward", "lognormal"):
        for hints in HINTS.values():
            X, y = table(kind, 200, 3, 0)
            queries = Queries(InMemory(X, y), Account(Budget(mu=0.5)), SeededNoise(1))
            with np.errstate(all="ignore"):
                hinted.locate_known(queries, hints.known(3, NAMES), centred=True)
            most = sum(hinted.LOOKS) * (hinted.HISTOGRAM[1] + hinted.MEAN[1]) + hinted.F_FEW
            assert 1.0 - queries.account.left <= most * ROUNDING
