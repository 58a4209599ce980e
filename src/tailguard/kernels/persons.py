"""Averages over the rows of each person.

Rows are sorted by person; ``first`` (n + 1,) has the first row of every person, and the number of rows at its end. A
row's part of an average depends on that row and on how many its person has, in whatever place the rows stand.

=====================================  =======================================================
a row with                             adds to the average of its person
=====================================  =======================================================
a multiplier of NaN                    0
an entry of NaN                        0 in that coordinate
an entry or a multiplier of +-inf      as if it were +-1.797e308
a product that overflows               +-1.797e308 in that coordinate, divided by the number
=====================================  =======================================================
"""

from __future__ import annotations

from tailguard.kernels.compiling import njit

_LARGEST = 1.7976931348623157e308
# No reassociation: the sum of a person's rows has one order.
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}


@njit(**_OPTIONS)
def _finite(x):
    """+-inf becomes the largest float of its sign; NaN becomes 0."""
    return max(-_LARGEST, min(_LARGEST, x)) if x == x else 0.0


@njit(**_OPTIONS)
def mean_vectors(X, f, fit_intercept, first, out):
    """Fill ``out[i, k (d + fit_intercept) + j]`` with the average of ``f[k, r] X[r, j]`` over the rows of person i.

    The last coordinate of an output is the intercept's, ``f[k, r]``. Every term is divided before it is added, so that
    no sum of finite terms overflows by more than rounding.
    """
    d = X.shape[1]
    width = d + (1 if fit_intercept else 0)
    for i in range(len(first) - 1):
        rows = first[i + 1] - first[i]
        for c in range(out.shape[1]):
            out[i, c] = 0.0
        for r in range(first[i], first[i + 1]):
            for k in range(f.shape[0]):
                m = f[k, r]
                if m != m:
                    continue
                m = _finite(m)
                for j in range(d):
                    out[i, k * width + j] += _finite(m * _finite(float(X[r, j]))) / rows
                if fit_intercept:
                    out[i, k * width + d] += m / rows


@njit(**_OPTIONS)
def means(values, first, out):
    """Fill ``out[i]`` with the average of ``values`` over the rows of person i; one value alone stays as it is."""
    for i in range(len(first) - 1):
        rows = first[i + 1] - first[i]
        if rows == 1:
            out[i] = values[first[i]]
            continue
        out[i] = 0.0
        for r in range(first[i], first[i + 1]):
            out[i] += _finite(values[r]) / rows
