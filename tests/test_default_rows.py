"""What the rows of the default add: compiled passes against their definitions in NumPy, on hostile rows."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from default_rows import COUNTS as OF_COUNTS
from default_rows import GRID, STRETCHED, TARGET, D, counts, design, table, vectors
from tailguard import kernels
from tailguard.default import rows as r
from tailguard.default.columns import Columns
from tailguard.default.score_table import ScoreTable
from tailguard.default.small import JointScore
from tailguard.default.whitening import Design
from tailguard.engines.memory import InMemory
from tailguard.kernels import codes
from tailguard.kernels.apart import Apart
from tailguard.kernels.default_sums.tile import FLUSH
from tailguard.kernels.reading import TILE
from tailguard.means.queries import Queries, Together
from tailguard.privacy import Account, Budget, SeededNoise
from tailguard.truncation import Grid, L2Clip

VECTORS, COUNTS = vectors(), counts()
N = 200  # three tiles and a part of one


def defined(rows: r.Vectors, X, y, grid: Grid) -> np.ndarray:
    """The sum by the definition, every row clipped and rounded by itself."""
    with np.errstate(all="ignore"):
        v = rows(X, y)
        norm = np.linalg.norm(v, axis=1)
        v = v * np.minimum(1.0, grid.truncation.largest / np.maximum(norm, 1e-300))[:, None]
    return np.rint(v / grid.unit)


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("share", [1.0, 0.3], ids=["bounded by design", "clipped"])
def test_a_pass_adds_what_its_definition_says(name, share):
    """To one unit in every row and coordinate: the order of additions inside a row is not the same."""
    rows, bound = VECTORS[name]
    X, y = table(N, 0)
    grid = Grid.of(L2Clip(bound * share), N)
    expected = defined(rows, X, y, grid)
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() > 2**20  # power: there is something to be wrong about
    for i in range(N):
        found = rows.clipped(grid)(X[i : i + 1], y[i : i + 1])
        np.testing.assert_allclose(found, expected[i], rtol=0.0, atol=1.0, err_msg=str(i))


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_bounded_by_design(name):
    rows, bound = VECTORS[name]
    X, y = table(2000, 1)
    with np.errstate(all="ignore"):
        size = np.linalg.norm(rows(X, y), axis=1)
    assert np.all(size <= bound * (1.0 + 1e-9))


@pytest.mark.parametrize("name", VECTORS)
def test_no_row_adds_more_than_the_bound(name):
    """Whatever the definition returns: the clip is where integers are added."""
    rows, bound = VECTORS[name]
    X, y = table(300, 2)
    grid = Grid.of(L2Clip(0.1 * bound), 300)
    for i in range(300):
        units = rows.clipped(grid)(X[i : i + 1], y[i : i + 1])
        assert np.linalg.norm(units) <= grid.sensitivity(len(units), "add-remove")


@pytest.mark.parametrize("rotated", [np.inf, 1.0], ids=["no number", "ordinary"])
def test_a_vector_with_an_entry_that_is_no_number_adds_nothing(rotated):
    """Its norm is no number either: the entries beside it, each within the bound, must not be added as they are."""
    columns = Columns(np.zeros(D), np.full(D, 99.0), np.zeros(D), np.ones(D), np.ones(D, bool))
    rotation = np.array([[rotated, 0.0, 0.0], [-rotated, 0.0, 0.0], [0.0, 1.0, 1.0]])
    one = Design(columns, np.zeros(D), rotation, np.eye(D), True, 1.5, 1.0)
    X, y, theta = np.array([[10.0, 10.0, 1.4]]), np.ones(1), np.zeros(D + 1)  # a is (1, inf - inf, 1.4, 1.4)
    grid = Grid.of(L2Clip(1.5), 1)
    for total in (
        r.LogisticScore(one, theta).clipped(grid),
        r.MultinomialScore(one, np.zeros((3, D + 1))).clipped(grid),
        r.Score(one, theta, TARGET, r.Clip(1.0)).clipped(grid),
        r.DesignRows(one).gram(1.5, 19),
    ):
        assert total(X, y).any() == (rotated == 1.0)
    added = ScoreTable(one, theta, TARGET, GRID, 1)(X, y)
    assert added[:, -1].sum() == 1
    assert added[:, :-1].any() == (rotated == 1.0)


# ---------------------------------------------------------------- several classes


def probabilities():
    """Certain, nearly certain, even and random probabilities of four classes."""
    rng = np.random.default_rng(4)
    rows = [np.eye(4), np.full((1, 4), 0.25), [[0.5, 0.5, 0.0, 0.0]], [[1.0 - 3e-16, 1e-16, 1e-16, 1e-300]]]
    return np.vstack([*rows, rng.dirichlet(np.full(4, 0.1), 200), rng.dirichlet(np.full(4, 3.0), 200)])


def test_scores_of_several_classes_have_mean_zero_and_the_largest_has_length_one():
    p = probabilities()
    t, m = r.class_weights(p)
    scores = t[:, :, None] * (m[:, None, :] - np.eye(4))  # of each label
    np.testing.assert_allclose(np.einsum("ik,ikj->ij", p, scores), 0.0, atol=1e-12)
    lengths = np.linalg.norm(scores, axis=2)
    np.testing.assert_allclose(lengths.max(axis=1), 1.0, rtol=1e-12)
    assert np.all(np.isfinite(scores))
    # Likely labels are nearer to what the noise is made for than those of the plain score, p - e_y over its largest.
    likely = np.arange(len(p)), p.argmax(axis=1)
    plain = np.linalg.norm(p[:, None, :] - np.eye(4), axis=2)
    assert np.all(lengths[likely] >= (plain / plain.max(axis=1, keepdims=True))[likely] - 1e-12)


def test_of_two_classes_there_is_one_score():
    z = np.linspace(-30.0, 30.0, 61)
    p = 1.0 / (1.0 + np.exp(-z))
    t, m = r.class_weights(np.column_stack([1.0 - p, p]))
    for label in (0, 1):
        score = t[:, label] * (m[:, 1] - label) * math.sqrt(2.0)  # along the diagonal of the simplex
        np.testing.assert_allclose(score, r.bounded_score(z, np.full(61, float(label))), atol=1e-9)


def test_a_label_of_none_of_the_classes_has_no_score():
    score = r.MultinomialScore(design(), np.zeros((3, D + 1)))
    X = np.random.default_rng(5).standard_normal((4, D))
    for label in (np.nan, -1.0, 3.0, 0.5):
        assert not np.any(score(X, np.full(4, label)))
        assert not np.any(score.clipped(Grid.of(L2Clip(1.5), 4))(X, np.full(4, label)))


@pytest.mark.parametrize("bits", [30, 40])
def test_a_row_of_a_table_that_would_be_too_long_is_counted_only(bits):
    """Whatever units the kernel is asked for: its sums have room for 2^30 a row."""
    score = ScoreTable(design(), np.full(D + 1, 0.3), TARGET, GRID, N)
    X, y = table(N, 12)
    at = score.theta, 0.0, codes.RESIDUAL, 0.0, TARGET.numbers, GRID
    per_size, per_clip = 2.0**bits / 1.5, 2.0**bits / 1.5 / np.append(GRID, np.inf)
    longest = 0.0
    for i in range(N):
        total = np.zeros(score.shape, np.int64)
        rows = X[i : i + 1], y[i : i + 1]
        kernels.default_sums.score_table(*rows, *score.design.numbers, *at, per_clip, per_size, total)
        assert total[:, -1].sum() == 1
        halves = total[:, :-1].sum(axis=0).reshape(2, D + 1)
        longest = max(longest, np.linalg.norm(halves, axis=1).max())
    assert longest <= 2.0**30 + math.sqrt(D + 1) / 2.0 + 1.0
    assert longest > 2.0**29 or bits > 30


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_their_definition(name):
    X, y = table(2000, 3)
    found, expected = COUNTS[name](X, y), COUNTS[name].definition(X, y)
    np.testing.assert_array_equal(found, expected)
    assert np.count_nonzero(expected) > 1
    assert np.all(found.sum(axis=-1) == 2000)  # one count for every row and histogram


def test_every_power_of_two_and_its_neighbours_are_in_their_bins():
    a = 2.0 ** np.arange(-1074, 1024)
    X = np.concatenate([a, np.nextafter(a, 0.0), np.nextafter(a, np.inf), -a])[:, None]
    for tops in (None, (0.0,), (-990.0,), (990.0,)):
        counted = r.ColumnCounts("features", (0,), (0.0,), tops)
        np.testing.assert_array_equal(counted(X, X[:, 0]), counted.definition(X, X[:, 0]))


def every_sum() -> dict:
    grids = {name: rows.clipped(Grid.of(L2Clip(bound), N)) for name, (rows, bound) in VECTORS.items()}
    more = {
        "gram": r.DesignRows(design()).gram(2.0, 19),
        "table": ScoreTable(design(), np.full(D + 1, 0.3), TARGET, GRID, N),
        "together": Together((COUNTS["sizes"], grids["score"], COUNTS["first look"])),
    }
    return {**grids, **COUNTS, **more}


SUMS = every_sum()


@pytest.mark.parametrize("name", SUMS)
def test_bits_do_not_depend_on_blocks_threads_storage_or_order(name):
    X, y = table(N, 4, dtype=np.float32)
    total = SUMS[name]
    whole = total(X, y)
    assert whole.any()
    np.testing.assert_array_equal(total(np.array(X, np.float64), y), whole)
    columns = [column.astype(np.float64) for column in X.T]
    np.testing.assert_array_equal(total(Apart.of(columns, np.dtype(np.float64)), y), whole)
    for cuts in ([1], [63, 64, 65, 130], list(range(1, N))):
        parts = zip(np.split(X, cuts), np.split(y, cuts), strict=True)
        np.testing.assert_array_equal(np.sum([total(*part) for part in parts], axis=0), whole)
    order = np.random.default_rng(5).permutation(N)
    np.testing.assert_array_equal(total(X[order], y[order]), whole)
    for engine in (InMemory(X, y, 1), InMemory(np.asfortranarray(X), y, 3), InMemory(X, y, 3)):
        np.testing.assert_array_equal(engine.integer_sum(total, total.shape), whole)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(total))(X, y), whole)


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
def test_joint_scores_of_counts_have_the_same_bits_in_every_block(intercept):
    """At every place and in every length: an exponential that is taken of several rows at once is that of each."""
    X, y = table(70, 13)
    score = JointScore(design(D, intercept), np.full(D + 1, 0.3), OF_COUNTS, 0.4, offset=0.1, largest=5.0)
    with np.errstate(all="ignore"):
        alone = [(score(X[[i]], y[[i]]).tobytes(), score.sizes(X[[i]], y[[i]]).tobytes()) for i in range(70)]
        for start in range(70):
            for stop in range(start + 1, 71):
                rows, block = (X[start:stop], y[start:stop]), alone[start:stop]
                assert score(*rows).tobytes() == b"".join(vector for vector, _ in block)
                assert score.sizes(*rows).tobytes() == b"".join(size for _, size in block)
        size = np.linalg.norm(score(X, y), axis=1)
    assert np.all(size <= 0.4 * (1.0 + 1e-12))
    assert 0.3 < np.mean(size > 0.39) < 1.0  # power: most are clipped, and some are not


@pytest.mark.parametrize("d", [1, 4, 7, 8, 13])
def test_any_number_of_columns_in_any_layout(d):
    """Columns are taken four and rows eight at a time, but for the last ones: a single row is never taken so."""
    X, y = table(N, 11, d, dtype=np.float32)
    rows, bound = vectors(d)["score"]
    grid = Grid.of(L2Clip(bound), N)
    scores = ScoreTable(design(d), rows.theta, TARGET, GRID, N)
    by_columns, with_gaps = np.empty((d, N + 1), np.float32).T[:-1], np.empty((2 * N, 3 * d), np.float32)[::2, ::3]
    backwards = np.ascontiguousarray(X[::-1])[::-1]
    columns = [np.concatenate([np.zeros(j, np.float32), column])[j:] for j, column in enumerate(X.T)]
    apart = Apart.of(columns, X.dtype)
    for layout in (by_columns, with_gaps):
        layout[:] = X
    for total in (rows.clipped(grid), r.DesignRows(design(d)).gram(2.0, 19), scores):
        one_by_one = sum(total(X[i : i + 1], y[i : i + 1]) for i in range(N))
        for layout in (X, by_columns, with_gaps, backwards):
            layout.flags.writeable = False
            np.testing.assert_array_equal(total(layout, y), one_by_one)
        np.testing.assert_array_equal(total(apart, y), one_by_one)
        some = [total(apart.rows(part), y[part]) for part in (slice(0, 70), slice(70, N))]
        np.testing.assert_array_equal(sum(some), one_by_one)
    expected = defined(rows, X.astype(np.float64), y, grid).sum(axis=0)
    np.testing.assert_allclose(rows.clipped(grid)(X, y).ravel(), expected, rtol=0.0, atol=N)
    clip = r.Clip(float(GRID[6]))
    release = Grid.of(L2Clip(1.5 * clip.bound), N)
    expected = defined(scores.score(clip), X.astype(np.float64), y, release).sum(axis=0)
    np.testing.assert_allclose(scores.total_at(scores(X, y), clip, release), expected, rtol=0.0, atol=4.0 * N)
    assert np.abs(expected).max() > N * 2**10  # power


def test_columns_are_read_where_they_are_only_if_they_are_plain_arrays_of_one_type():
    plain, kind = np.arange(6.0), np.dtype(np.float64)
    assert Apart.of([plain, plain[::-1][::-1]], kind).shape == (6, 2)
    shifted = np.zeros(49, np.uint8)[1:].view(np.float64)
    for other in (plain.astype(np.float32), np.arange(6), np.arange(12.0)[::2], shifted, plain > 2.0):
        assert Apart.of([plain, other], kind) is None
        assert Apart.of([other, plain], kind) is None


def test_a_large_block_takes_several_flushes():
    """More rows than float64 adds up exactly before they go to integers: 2^21, and 2^14 for the Gram matrix."""
    X, y = np.full((2**21 + 100, 1), 1e3, np.float32), np.full(2**21 + 100, 30.0)
    X[::7], y[::3] = -0.4, -30.0
    one = design(1)
    assert len(X) > FLUSH * TILE > 2**14
    rows = [(np.float32(x), v) for x in (1e3, -0.4) for v in (30.0, -30.0)]
    repeats = [int(np.sum((X[:, 0] == x) & (y == v))) for x, v in rows]
    assert sum(repeats) == len(X)
    for total in (
        r.Score(one, np.ones(2), TARGET, r.Clip(1.0)).clipped(Grid.of(L2Clip(1.5), len(X))),
        r.DesignRows(one).gram(2.0, 19),
        ScoreTable(one, np.ones(2), TARGET, GRID, len(X)),
    ):
        each = [total(np.array([[x]]), np.array([v])) for x, v in rows]
        expected = sum(count * units for count, units in zip(repeats, each, strict=True))
        np.testing.assert_array_equal(total(X, y), expected)
    assert np.abs(expected).max() > 2**50  # power: more than a table holds between two flushes


def test_the_gram_matrix_is_that_of_its_rows():
    X, y = table(N, 6)
    rows = r.DesignRows(design())
    bound, bits = math.sqrt(2.5) * 1.5, 19
    units = np.rint(rows(X, y) / bound * 2.0**bits)
    found = rows.gram(bound, bits)(X, y)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, units.T @ units, rtol=1e-4, atol=N * 2.0**bits)
    for i in range(N):  # and a row is clipped, where integers are added
        one = rows.gram(0.2, bits)(X[i : i + 1], y[i : i + 1])
        assert math.sqrt(np.trace(one)) <= 2.0**bits * (1.0 + 2.0**-40) + math.sqrt(D + 1) / 2.0


# Clips.


@pytest.mark.parametrize("clip", [r.Clip(2.0), STRETCHED, r.Clip(3.0, 1.5, 1.0), r.Clip.stretched(4.0, 1.0, 2.5)])
def test_a_clip_is_odd_rises_and_ends_at_its_bound(clip):
    values = np.array([0.0, 1e-300, 0.4, 0.5, 1.0, 1.5, 1.9, 2.0, 3.0, 4.0, 1e308, np.inf])
    found = clip(values)
    assert np.all(np.diff(found) >= 0.0)
    assert found[-1] == pytest.approx(clip.bound, rel=1e-15)
    np.testing.assert_array_equal(clip(-values), -found)
    assert clip(np.array([np.nan]))[0] == 0.0
    inside = values <= clip.near
    np.testing.assert_array_equal(found[inside], values[inside])


@pytest.mark.parametrize("power", [2.1, 2.5, 4.0])
def test_a_stretched_clip_keeps_the_mean_of_a_tail_that_is_a_power(power):
    """A Pareto variable has mean a/(a - 1); what the clip cuts off is 4^(1 - a)/(a - 1) of it."""
    x = (1.0 - (np.arange(10**6) + 0.5) / 10**6) ** (-1.0 / power)
    found = r.Clip.stretched(4.0, 2.0, power)(x).mean()
    lost = 4.0 ** (1.0 - power) / (power - 1.0)
    assert found == pytest.approx(power / (power - 1.0), abs=2e-3 * lost)  # a stretch is a multiple of 1/1024


@pytest.mark.parametrize(("far", "near", "power"), [(2.0, 0.0, 3.0), (2.0, 2.0, 3.0), (2.0, 3.0, 3.0)])
def test_without_a_part_to_stretch_a_clip_is_plain(far, near, power):
    assert r.Clip.stretched(far, near, power) == r.Clip(far)


def test_no_tail_stretches_a_clip_beyond_twice_its_end():
    for power in (-3.0, 0.0, 1.0, 1.5, 2.0, 1e9):
        assert r.Clip.stretched(2.0, 1e-9, power).bound <= 4.0


# The table of scores.

CLIPS = [r.Clip(float(clip)) for clip in GRID] + [STRETCHED, r.Clip(16.0, 0.125, 1.0), r.Clip(1.0, 0.5, 1 / 1024)]


@pytest.mark.parametrize(("offset", "largest"), [(0.0, None), (0.1, 5.0)], ids=["linear", "exponential"])
def test_a_table_has_the_scores_of_every_clip(offset, largest):
    X, y = table(N, 7)
    score = ScoreTable(design(), np.full(D + 1, 0.3), TARGET, GRID, N, offset, largest)
    total = score(X, y)
    (sizes, found), *none = score.readings(total).items()
    assert not none
    np.testing.assert_array_equal(found, sizes(X, y))
    for clip in CLIPS:
        grid = Grid.of(L2Clip(1.5 * clip.bound), N)
        alone = score.score(clip).clipped(grid)(X, y)
        # A unit for rounding each row twice, or three times, and the clip is rounded down by 2^-29.
        np.testing.assert_allclose(score.total_at(total, clip, grid), alone, rtol=0.0, atol=N * 4.0)
        assert np.abs(alone).max() > N * 2**10


def test_one_row_of_a_table_keeps_the_sensitivity_at_every_clip():
    """Of the sum that is released, with what is allowed for rounding it."""
    X, y = table(200, 8)
    score = ScoreTable(design(), np.full(D + 1, 0.3), TARGET, GRID, 200)
    furthest = 0.0
    for i in range(200):
        one = score(X[i : i + 1], y[i : i + 1])
        for clip in CLIPS:
            grid = Grid.of(L2Clip(1.5 * clip.bound), 200)
            size = np.linalg.norm(score.total_at(one, clip, grid))
            allowed = grid.sensitivity(D + 1, "add-remove") + score.roundings(clip) * math.sqrt(D + 1) / 2.0
            assert size <= allowed
            furthest = max(furthest, size / allowed)
    assert furthest > 0.5  # power


@pytest.mark.parametrize(
    ("clip", "bound"),
    [(r.Clip(1.1), 1.65), (r.Clip(100.0), 150.0), (r.Clip(1.0), 1.4), (r.Clip(2.0, 0.6, 0.5), 4.05), (STRETCHED, 3.0)],
)
def test_a_table_refuses_a_clip_or_a_bound_that_it_was_not_made_for(clip, bound):
    """Its sums are clipped already: between two points of the grid rows up to the upper one would count."""
    X, y = table(200, 8)
    score = ScoreTable(design(), np.full(D + 1, 0.3), TARGET, GRID, 200)
    queries = Queries(InMemory(X, y, 1), Account(Budget(mu=1.0)), SeededNoise(0))
    queries.together(score)
    with pytest.raises(ValueError, match=r"a table has the scores"):
        queries.mean("steps", score.score(clip), D + 1, bound, 0.2)


def test_a_fine_unit_of_a_small_clip_is_not_lost_beside_a_large_one():
    """Fourteen octaves: rows far below the largest clip still count to 2^-30 of their own."""
    X, y = np.zeros((64, 1)), np.full(64, TARGET.mean + TARGET.scale * 1e-2)
    grid = 2.0 ** np.arange(-6.0, 8.01, 0.5)
    score = ScoreTable(design(1), np.zeros(2), TARGET, grid, 64)
    release = Grid.of(L2Clip(1.5 * grid[0]), 64)
    alone = score.score(r.Clip(float(grid[0]))).clipped(release)(X, y)
    found = score.total_at(score(X, y), r.Clip(float(grid[0])), release)
    np.testing.assert_allclose(found, alone, rtol=1e-7)


# Queries that share a pass.


class Counting(InMemory):
    passes = 0

    def integer_sum(self, *arguments):
        Counting.passes += 1
        return super().integer_sum(*arguments)

    def truncated_sum(self, *arguments):
        Counting.passes += 1
        return super().truncated_sum(*arguments)


@pytest.mark.parametrize("shared", [True, False])
def test_what_was_added_up_together_is_released_as_if_alone(shared, monkeypatch):
    X, y = table(N, 9)
    monkeypatch.setattr(Counting, "shares_passes", shared)
    rows, bound = VECTORS["score"]
    sizes, gram = COUNTS["sizes"], r.DesignRows(design())
    queries = Queries(Counting(X, y, 1), Account(Budget(mu=1.0)), SeededNoise(0))
    alone = Queries(InMemory(X, y, 1), Account(Budget(mu=1.0)), SeededNoise(0))
    Counting.passes = 0
    queries.together(rows.clipped(queries.grid(bound)), sizes, gram.gram(2.0, queries.gram_bits))
    for _ in range(2):  # the second time, what was held is gone, but for a Gram matrix, which may be asked for again
        for each in (queries, alone):
            each.found = [
                each.mean("a", rows, rows.width, bound, 0.1).value,
                each.counts("b", sizes, sizes.shape, 1.0, 0.1).value,
                each.gram("c", gram, D + 1, 2.0, 0.1).value,
            ]
        for mine, other in zip(queries.found, alone.found, strict=True):
            np.testing.assert_array_equal(mine, other)
    assert Counting.passes == (3 if shared else 5)
    assert queries.account.left == alone.account.left


@pytest.mark.parametrize("stretch", [0.0, 0.5])
def test_a_table_serves_the_clip_and_the_step(stretch):
    X, y = table(N, 10)
    Counting.passes = 0
    queries = Queries(Counting(X, y, 1), Account(Budget(mu=1.0)), SeededNoise(0))
    score = ScoreTable(design(), np.full(D + 1, 0.3), TARGET, GRID, N)
    queries.together(score)
    total = queries.total(r.Sizes(score.residual, tuple(GRID)), (len(GRID) + 1,))
    assert total.sum() == N
    clip = r.Clip(float(GRID[3]), float(GRID[1]), stretch)
    value, sd = queries.mean("steps", score.score(clip), D + 1, 1.5 * clip.bound, 0.2)
    assert Counting.passes == 1
    alone = Queries(InMemory(X, y, 1), Account(Budget(mu=1.0)), SeededNoise(0))
    expected, same = alone.mean("steps", r.Score(*score_parts(score), clip), D + 1, 1.5 * clip.bound, 0.2)
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6 * sd)
    assert 1.0 < sd / same < 1.0 + 1e-8  # more roundings are paid for


def score_parts(score: ScoreTable) -> tuple:
    return score.design, score.theta, score.target
