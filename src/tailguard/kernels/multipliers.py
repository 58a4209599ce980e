"""What multiplies each row of a tile, and which rows are plain: the work that is done once per row.

For the rows of a tile together, before any of them is added: one row's operations wait for each other, those of
different rows do not. Rows are plain where no operation overflows or loses digits; they are returned as bits, the
first row lowest. What is left in the multipliers of other rows does not matter.

Multipliers of output k stand from ``k ROWS`` on.
"""

from __future__ import annotations

import numpy as np

from tailguard.kernels.compiling import njit
from tailguard.kernels.lanes import WIDTH, fma, load, mask, spread, store, where
from tailguard.kernels.rule import FARTHEST, OPTIONS, derivatives, inverse_root, size_of
from tailguard.kernels.tiles import ROWS


@njit(**OPTIONS)
def slopes(groups, z, intercept, y, row, code, parameter, c):
    """Fill the derivatives of the loss in the predictors z; the targets stand from ``row`` on."""
    plain = 0
    for group in range(groups):
        at = WIDTH * group
        value = load(z, at) + intercept
        plain |= mask(size_of(value) < np.inf) << at
        store(c, at, derivatives(code, parameter, value, load(y, row + at)))
    return plain


@njit(**OPTIONS)
def clip(groups, q, one, outputs, bound, per_unit, c):
    """Scale multipliers down, for the L2 norm; q are squared norms, ``one`` is what the intercept adds to them."""
    plain = 0
    for group in range(groups):
        at = WIDTH * group
        size = load(q, at) + one
        g = spread(0.0)
        for k in range(outputs):
            f = load(c, k * ROWS + at)
            g = fma(f, f, g)
        # Products of numbers in this range neither overflow nor lose digits; zeros add nothing either way.
        fine = (size < 1e140) & (g < 1e140) & ((size > 1e-140) | (size == 0.0)) & ((g > 1e-140) | (g == 0.0))
        plain |= mask(fine) << at
        factor = bound * inverse_root(size * g)
        factor = per_unit * where(factor < 1.0, factor, 1.0)
        for k in range(outputs):
            store(c, k * ROWS + at, load(c, k * ROWS + at) * factor)
    return plain


@njit(**OPTIONS)
def clamp(groups, q, outputs, c):
    """Leave multipliers as they are, for clamped coordinates; q are the largest entries."""
    plain = 0
    for group in range(groups):
        at = WIDTH * group
        fine = load(q, at) < np.inf
        for k in range(outputs):
            fine = fine & (size_of(load(c, k * ROWS + at)) < np.inf)
        plain |= mask(fine) << at
    return plain


@njit(**OPTIONS)
def smooth(groups, q, one, outputs, inverse, height, root, cubic, core, c, three, far, beyond):
    """Turn multipliers into those of psi: c and ``three`` in its core, else 0; ``far`` beyond it, else 0.

    q are the largest entries, ``one`` is that of the intercept. ``beyond[k]`` are the rows beyond the core, as bits.
    """
    plain = (1 << WIDTH * groups) - 1
    for k in range(outputs):
        fine_rows = far_rows = 0
        for group in range(groups):
            at = WIDTH * group
            size = load(q, at)
            size = where(size < one, one, size)
            u = load(c, k * ROWS + at) * inverse
            reach = size_of(u) * size
            # The root is below 2: no argument of psi is beyond FARTHEST.
            fine_rows |= mask((size_of(u) < 1e30) & (size < 1e30) & (reach <= FARTHEST / 2)) << at
            inside = reach <= core
            far_rows |= mask(reach > core) << at
            store(far, k * ROWS + at, where(inside, 0.0, u * root))
            u = where(inside, u, 0.0)
            first = u * height
            store(c, k * ROWS + at, first)
            store(three, k * ROWS + at, first * -cubic * u * u)
        beyond[k] = far_rows
        plain &= fine_rows
    return plain
