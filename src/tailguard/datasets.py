r"""The paper's data: two synthetic linear models with heavy-tailed, skewed, centred noise, and the Adult table.

==============  ========================================================  =========================================
function        model                                                     noise ``e = D - E[D]``
==============  ========================================================  =========================================
`make_linear`   ``y = <w, x> + e``                                        D log-normal(mu, sigma)
`make_binary`   ``y = sign(1 / (1 + exp(<w, x> + e)) - 1/2)``             D log-logistic(mu, sigma)
==============  ========================================================  =========================================

``x`` has d independent coordinates of one distribution, taken as it is, neither centred nor scaled:

=============  ===================================  =================
features       coordinates of x                     E[x_j], E[x_j^2]
=============  ===================================  =================
"normal"       standard normal, as in the paper     0, 1
"t3"           Student's t, 3 degrees of freedom    0, 3
"lognormal"    log-normal(0, 1)                     e^(1/2), e^2
=============  ===================================  =================

These are experiments, so everything here may be seeded; seeds of data have nothing to do with the noise that hides it.

`load_adult` reads the Adult (census income) table of the UCI repository and turns every attribute into numbers with
public constants only: round numbers and the categories of the published code book, never the rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailguard._checks import count, one_of, within
from tailguard._optional import import_optional

Array = NDArray[np.float64]
Features = Literal["normal", "t3", "lognormal"]
Encoding = Literal["compact", "onehot"]

# First and second moments of one coordinate of x.
_MOMENTS: dict[str, tuple[float, float]] = {
    "normal": (0.0, 1.0),
    "t3": (0.0, 3.0),
    "lognormal": (math.exp(0.5), math.exp(2.0)),
}


@dataclass(frozen=True)
class Dataset:
    """Rows, targets and the truth behind them.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Rows.
    y : ndarray of shape (n,)
        Targets, or labels -1 and +1.
    w : ndarray of shape (d,)
        The true coefficients w*.
    second_moment : ndarray of shape (d, d)
        E[x x'] of the distribution that the rows were drawn from.
    """

    X: Array
    y: Array
    w: Array
    second_moment: Array

    def excess_risk(self, w: ArrayLike) -> float:
        r"""Population excess risk of coefficients in the linear model, :math:`\frac12 (w - w^*)' E[x x'] (w - w^*)`.

        Parameters
        ----------
        w : array_like of shape (d,)
            Estimated coefficients of a model without an intercept.

        Returns
        -------
        float
            Half the expected squared error of prediction in excess of that of w*, in squared units of y.
        """
        error = np.asarray(w, dtype=np.float64) - self.w
        return float(error @ self.second_moment @ error) / 2.0


def make_linear(
    n: int = 100_000,
    d: int = 10,
    *,
    seed: int | np.random.Generator | None = None,
    mu: float = 1.0,
    sigma: float = 1.0,
    features: Features = "normal",
    w: ArrayLike | None = None,
) -> Dataset:
    r"""Linear model with centred log-normal noise: ``y = <w, x> + D - exp(mu + sigma^2 / 2)``.

    Parameters
    ----------
    n, d : int
        Rows and columns; the defaults are the paper's.
    seed : int or numpy Generator, optional
        Default fresh entropy.
    mu, sigma : float, default=1
        Mean and standard deviation of log D. At the default the noise has mean 0, standard deviation 5.9 and
        skewness 6.2.
    features : {"normal", "t3", "lognormal"}, default="normal"
        Distribution of the coordinates of x.
    w : array_like of shape (d,), optional
        True coefficients; default a random direction, of length 1.

    Returns
    -------
    Dataset
        With real ``y``.

    Examples
    --------
    >>> from tailguard.datasets import make_linear
    >>> data = make_linear(1000, 3, seed=0)
    >>> data.X.shape, data.y.shape, data.w.shape
    ((1000, 3), (1000,), (3,))
    >>> data.excess_risk(data.w)
    0.0
    """
    mu = within("mu", mu, -100.0, 100.0)
    sigma = within("sigma", sigma, 0.0, 10.0, open_low=True)
    rng, X, w = _rows(n, d, seed, features, w)
    noise = rng.lognormal(mu, sigma, len(X)) - math.exp(mu + sigma**2 / 2.0)
    return Dataset(X, X @ w + noise, w, _second_moment(features, len(w)))


def make_binary(
    n: int = 100_000,
    d: int = 10,
    *,
    seed: int | np.random.Generator | None = None,
    mu: float = 0.2,
    sigma: float = 0.2,
    features: Features = "normal",
    w: ArrayLike | None = None,
) -> Dataset:
    r"""Binary model with centred log-logistic noise: ``y = sign(1/(1 + exp(<w, x> + D - E[D])) - 1/2)``.

    The mean of D is ``exp(mu) pi sigma / sin(pi sigma)``. As printed, y is +1 where ``<w, x> + e`` is *negative*, so
    a fitted logistic model points along ``-w``.

    Parameters
    ----------
    n, d, seed, features, w
        As in `make_linear`.
    mu : float, default=0.2
        Median of log D.
    sigma : float, default=0.2
        Scale of log D, below 1: from there on D has no mean.

    Returns
    -------
    Dataset
        With ``y`` in {-1, +1}.
    """
    mu = within("mu", mu, -100.0, 100.0)
    sigma = within("sigma", sigma, 0.0, 1.0, open_low=True, open_high=True, hint="From 1 on the noise has no mean.")
    rng, X, w = _rows(n, d, seed, features, w)
    mean = math.exp(mu) * math.pi * sigma / math.sin(math.pi * sigma)
    with np.errstate(over="ignore"):  # a draw beyond 1e308 is inf, and its label is still right
        noise = np.exp(rng.logistic(mu, sigma, len(X))) - mean
    # 1/(1 + e^z) > 1/2 exactly where z < 0; comparing z does not lose the sign of small z.
    y = np.where(X @ w + noise < 0.0, 1.0, -1.0)
    return Dataset(X, y, w, _second_moment(features, len(w)))


def _rows(
    n: int, d: int, seed: int | np.random.Generator | None, features: str, w: ArrayLike | None
) -> tuple[np.random.Generator, Array, Array]:
    """Check what both models share and draw the coefficients, then the rows."""
    n, d = count("n", n), count("d", d)
    if n * d > 2**40:
        raise ValueError(f"n={n!r} rows of d={d!r} columns fit into no memory: give fewer.")
    one_of("features", features, _MOMENTS)
    try:
        rng = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise TypeError(f"seed must be None, an integer >= 0 or a numpy Generator; got {seed!r}") from None
    coefficients = _direction(rng, d) if w is None else _given(w, d)
    if features == "normal":
        X = rng.standard_normal((n, d))
    elif features == "t3":
        X = rng.standard_t(3.0, (n, d))
    else:
        X = rng.lognormal(0.0, 1.0, (n, d))
    return rng, X, coefficients


def _direction(rng: np.random.Generator, d: int) -> Array:
    """Return a uniformly random unit vector."""
    w = rng.standard_normal(d)
    return np.asarray(w / np.linalg.norm(w))


def _given(w: Any, d: int) -> Array:
    try:
        coefficients = np.array(w, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"w must be {d} numbers; got {w!r}") from None
    if coefficients.shape != (d,) or not np.all(np.isfinite(coefficients)):
        raise ValueError(f"w must be {d} finite numbers, or d another number; got shape {coefficients.shape}")
    return coefficients


def _second_moment(features: str, d: int) -> Array:
    mean, square = _MOMENTS[features]
    moment = np.full((d, d), mean * mean)
    np.fill_diagonal(moment, square)
    return moment


@dataclass(frozen=True)
class Table:
    """A real table, encoded.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Rows.
    y : ndarray of shape (n,)
        Targets, or labels -1 and +1.
    columns : tuple of str
        What the columns of X are.
    """

    X: Array
    y: Array
    columns: tuple[str, ...]


# Adult: numbers are centred and divided by round numbers of their order of magnitude; nothing is taken from the rows.
# The heavy tails of capital gains (to 10 here) and losses are left as they are.
_ADULT_NUMBERS: dict[str, tuple[float, float]] = {
    "age": (40.0, 15.0),
    "fnlwgt": (200_000.0, 100_000.0),
    "education-num": (10.0, 2.5),
    "capital-gain": (0.0, 10_000.0),
    "capital-loss": (0.0, 500.0),
    "hours-per-week": (40.0, 12.0),
}
# Compact encoding: one 0/1 column for each attribute with categories, 1 for the group named here.
_ADULT_GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "workclass": (
        "government or self-employed",
        ("Federal-gov", "Local-gov", "State-gov", "Self-emp-inc", "Self-emp-not-inc"),
    ),
    "education": ("degree", ("Bachelors", "Masters", "Prof-school", "Doctorate")),
    "marital-status": ("married", ("Married-civ-spouse", "Married-AF-spouse")),
    "occupation": ("manager or professional", ("Exec-managerial", "Prof-specialty")),
    "relationship": ("child in the household", ("Own-child",)),
    "race": ("not white", ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other")),
    "sex": ("female", ("Female",)),
    "native-country": ("born elsewhere or unknown", ("not United-States",)),
}
# One-hot encoding: one 0/1 column per category of the code book; "?" is unknown.
_ADULT_CATEGORIES: dict[str, str] = {
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "education": (
        "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters Preschool "
        "Prof-school Some-college"
    ),
    "marital-status": (
        "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed"
    ),
    "occupation": (
        "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners Machine-op-inspct "
        "Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support Transport-moving"
    ),
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native-country": (
        "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany Greece "
        "Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos Mexico "
        "Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan "
        "Thailand Trinadad&Tobago United-States Vietnam Yugoslavia"
    ),
}


def load_adult(path: str | os.PathLike[str] | None = None, *, encoding: Encoding = "compact") -> Table:
    """Load the Adult table: 48,842 rows of the 1994 census, labelled +1 where the income is above 50,000 dollars.

    Parameters
    ----------
    path : str or path, optional
        A CSV file with a header (``.csv`` or ``.csv.gz``), or a folder that holds ``adult.csv.gz`` or ``adult.csv``.
        Default: the environment variable ``TAILGUARD_DATA``, in the same form; without it, scikit-learn fetches the
        table from OpenML (version 2) and keeps a copy.
    encoding : {"compact", "onehot"}, default="compact"
        "compact": 14 columns, the six numbers centred and divided by round public numbers (age 40 and 15, final weight
        200,000 and 100,000, years of education 10 and 2.5, capital gain 0 and 10,000, capital loss 0 and 500, hours
        40 and 12), and for each of the other eight attributes one 0/1 column for a group of categories. "onehot": 108
        columns, the same numbers and one 0/1 column per category of the code book. Missing values are the category
        "?", and in the compact encoding belong to no group but the last attribute's.

    Returns
    -------
    Table
        In the order of the file; no constant column.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    OSError
        If the table cannot be fetched.
    """
    one_of("encoding", encoding, ("compact", "onehot"))
    place = path if path is not None else os.environ.get("TAILGUARD_DATA") or None
    attributes = _fetch_adult() if place is None else _read_adult(Path(place))
    return _encode_adult(attributes, encoding)


def _read_adult(path: Path) -> dict[str, Sequence[str]]:
    if path.is_dir():
        found = [path / name for name in ("adult.csv.gz", "adult.csv") if (path / name).is_file()]
        if not found:
            raise FileNotFoundError(f"{path} holds no adult.csv.gz: give the folder or the file of the Adult table.")
        path = found[0]
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
        rows = list(csv.reader(io.StringIO(text), skipinitialspace=True))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path.name} is not a CSV file, or is damaged: give the Adult table again.") from None
    header = rows[0] if rows else []
    missing = {*_ADULT_NUMBERS, *_ADULT_GROUPS, "income"} - set(header)
    if missing:
        raise ValueError(f"{path.name} has no column {sorted(missing)[0]!r}: give the Adult table with a header row.")
    if len(rows) < 2 or any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path.name} has no rows, or rows of another length than its header: give the Adult table.")
    return dict(zip(header, zip(*rows[1:], strict=True), strict=True))


def _fetch_adult() -> dict[str, Sequence[str]]:
    import_optional("pandas", "reproduce")
    from sklearn.datasets import fetch_openml

    frame = fetch_openml("adult", version=2, as_frame=True).frame
    attributes = {name: ["?" if value != value else str(value) for value in frame[name]] for name in frame.columns}
    attributes["income"] = attributes.pop("class")
    return {name: tuple(values) for name, values in attributes.items()}


def _encode_adult(attributes: dict[str, Sequence[str]], encoding: str) -> Table:
    names, columns = [], []
    for name, (centre, scale) in _ADULT_NUMBERS.items():
        names.append(name)
        try:
            numbers = np.array(attributes[name], dtype=np.float64)
        except ValueError:
            raise ValueError(f"column {name!r} of the Adult table holds something that is not a number.") from None
        columns.append((numbers - centre) / scale)
    for name, (label, group) in _ADULT_GROUPS.items():
        values = np.array(attributes[name])
        if encoding == "onehot":
            for category in _ADULT_CATEGORIES[name].split(" "):
                names.append(f"{name}: {category}")
                columns.append((values == category).astype(np.float64))
        else:
            names.append(f"{name}: {label}")
            elsewhere = name == "native-country"
            columns.append((values != "United-States" if elsewhere else np.isin(values, group)).astype(np.float64))
    y = np.array([1.0 if value.startswith(">50K") else -1.0 for value in attributes["income"]])
    return Table(np.column_stack(columns), y, tuple(names))
