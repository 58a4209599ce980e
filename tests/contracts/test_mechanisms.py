"""What point after point of the contracts adds up to: means under every sampler, relation and precision.

A row is *there* or contributes nothing (add-remove; the number of rows is public), or it is another row (replace-one).
In both cases the exact value under the noise moves by no more than the sensitivity that the noise was scaled by, and it
is the same value for any order of the rows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import AWKWARD, TRUNCATIONS, truncation_at

from tailguard import constraints as C
from tailguard.engines.memory import InMemory
from tailguard.engines.vectors import RowValues
from tailguard.kernels.smooth_sensitivity import private_trimmed_mean_inputs
from tailguard.means.block_median import block_median
from tailguard.means.gaussian import GaussianMean
from tailguard.privacy import SeededNoise, exact_rate
from tailguard.sampling import FullBatch, PoissonSample

N, D = 5, 3
VALUES = st.sampled_from(AWKWARD) | st.floats() | st.floats(-3.0, 3.0)
ROW = st.lists(VALUES, min_size=D, max_size=D)
TABLE = st.lists(ROW, min_size=N, max_size=N)
PRECISION = st.sampled_from([np.float32, np.float64])
SAMPLERS = {
    "replace-one": FullBatch(),
    "add-remove": FullBatch("add-remove"),
    "Poisson": PoissonSample(0.5),
    "Poisson, replace-one": PoissonSample(0.5, "replace-one"),
}
every_truncation = pytest.mark.parametrize("name", TRUNCATIONS)
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def as_type(values, dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(values, dtype=np.float64).astype(dtype)


@every_truncation
@every_sampler
@settings(max_examples=40)
@given(table=TABLE, row=ROW, at=st.integers(0, N - 1), dtype=PRECISION, seed=st.integers(0, 99))
def test_a_mean_moves_by_at_most_its_sensitivity_on_both_relations(name, sampler, table, row, at, dtype, seed):
    """The sample is drawn before the data is looked at, so that it is the same for neighbours."""
    X = as_type(table, dtype)
    other, without = X.copy(), X.copy()
    other[at], without[at] = as_type(row, dtype), 0.0
    mean = GaussianMean(truncation_at(name, 1.5), 0.0)

    def exact(X):
        return mean.release(InMemory(X, threads=1), RowValues(), sampler, SeededNoise(seed))

    def allowed(relation):
        return mean.sensitivity(N, D, relation, sampler.divisor(N)) * (1.0 + 1e-12)

    assert np.linalg.norm(exact(X) - exact(other)) <= allowed("replace-one")
    assert np.linalg.norm(exact(X) - exact(without)) <= allowed("add-remove")
    # What a Poisson sample is priced by is the smaller of the two; two steps of it make a replacement.
    assert allowed("replace-one") == pytest.approx(2.0 * allowed("add-remove"))


@every_truncation
@settings(max_examples=40)
@given(table=TABLE, order=st.permutations(range(N)), dtype=PRECISION)
def test_a_mean_has_the_same_bits_in_any_order_of_the_rows(name, table, order, dtype):
    X = as_type(table, dtype)
    mean = GaussianMean(truncation_at(name, 1.5), 1.0)
    one, other = (
        mean.release(InMemory(rows, threads=1), RowValues(), FullBatch(), SeededNoise(0)) for rows in (X, X[order])
    )
    assert one.tobytes() == other.tobytes()


@settings(max_examples=150)
@given(
    column=st.lists(VALUES, min_size=7, max_size=7),
    value=VALUES,
    at=st.integers(0, 6),
    order=st.permutations(range(7)),
    trim=st.integers(0, 3),
    t=st.floats(1e-3, 2.0),
    dtype=PRECISION,
)
def test_a_trimmed_mean_is_dominated_by_a_smooth_bound(column, value, at, order, trim, t, dtype):
    """|f - f'| <= min(S, S') and S <= e^t S' (and the room for rounding that its certificate leaves, 2^-40)."""
    one = as_type(column, dtype).astype(np.float64)
    other = one.copy()
    other[at] = as_type(value, dtype)
    (f, s), (g, r) = (private_trimmed_mean_inputs(x, trim, t, -1.0, 1.5) for x in (one, other))
    assert -1.0 <= f <= 1.5
    assert abs(f - g) <= min(s, r)
    assert abs(math.log(s / r)) <= t + 2.0**-40
    assert private_trimmed_mean_inputs(one[order], trim, t, -1.0, 1.5) == (f, s)


@settings(max_examples=60)
@given(
    answers=st.lists(VALUES, min_size=6, max_size=6),
    order=st.permutations(range(6)),
    dtype=PRECISION,
    seed=st.integers(0, 99),
)
def test_a_median_of_blocks_is_in_its_range_and_does_not_know_the_order(answers, order, dtype, seed):
    Z = as_type(answers, dtype)[:, None]
    one, other = (block_median(rows, -2.0, 3.0, 0.7, SeededNoise(seed)) for rows in (Z, Z[order]))
    assert -2.0 <= one[0] <= 3.0
    assert one.tobytes() == other.tobytes()


# Samplers.


@settings(max_examples=80)
@given(n=st.integers(1, 400), rate=st.floats(1e-6, 1.0), seed=st.integers(0, 2**32))
def test_a_sample_is_of_the_rows_and_its_divisor_of_their_number(n, rate, seed):
    sampler = PoissonSample(exact_rate(rate))
    rows = sampler.rows(n, SeededNoise(seed))
    assert rows.dtype == np.int64
    assert np.all(np.diff(rows) > 0)
    assert not len(rows) or 0 <= rows[0] <= rows[-1] < n
    assert sampler.divisor(n) == sampler.rate * n > 0.0
    assert abs(sampler.rate - rate) <= 2.0**-32


# Constraints.

SETS = (C.Unconstrained(), C.L2Ball(2.0), C.L2Ball(0.7, 4.0), C.Box(-1.0, 2.0), C.Simplex(), C.Simplex(7.5))
POINT = st.lists(st.floats(-1e6, 1e6), min_size=D, max_size=D).map(np.array)
FINITE = [value for value in AWKWARD if math.isfinite(value)]


@pytest.mark.parametrize("constraint", SETS, ids=repr)
@settings(max_examples=40)
@given(one=POINT, other=POINT)
def test_a_projection_never_moves_two_points_apart(constraint, one, other):
    apart = np.linalg.norm(constraint.project(one) - constraint.project(other))
    rounding = 1e-14 * max(1.0, float(np.max(np.abs([one, other]))))
    assert apart <= np.linalg.norm(one - other) + rounding


@pytest.mark.parametrize("constraint", SETS[1:], ids=repr)
@settings(max_examples=40)
@given(w=st.lists(st.sampled_from(FINITE) | st.floats(-1e308, 1e308), min_size=D, max_size=D))
def test_answers_of_blocks_as_large_as_floats_are_end_inside_the_set(constraint, w):
    """A block may answer anything that is finite; where squares overflow the point is not nearest, but it is in W."""
    with np.errstate(all="ignore"):
        point = constraint.project(np.array(w))
    assert np.all(np.isfinite(point))
    lo, hi = constraint.bounds(D)
    assert np.all((point >= lo - 1e-12) & (point <= hi + 1e-12))
    again = constraint.project(point)
    np.testing.assert_allclose(again, point, atol=1e-9)
