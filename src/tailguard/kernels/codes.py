"""Numbers that tell kernels what to do: for those who call them, and on every engine the same."""

from __future__ import annotations

# Losses: multipliers that are given, or the derivative of a loss.
GIVEN, SQUARED, LOGISTIC, HUBER, POISSON = 0, 1, 2, 3, 4

# Truncations.
L2, COORDINATE, SMOOTH = 0, 1, 2

# What `default_sums.residuals` compares with the target.
RESIDUAL, MEAN, LOG_ODDS = 0, 1, 2
SIZE = 3  # or how far its size is from a number

# What `default_sums.line_vectors` adds for a row with target t and line eta; u = clip(eta/range, 1).
LEVEL = 0  # c(-r), r the residual, c a clip by its far, near and stretch
SQUARE = 1  # min(r^2, c^2) of r = eta - t, less half of its bound
INSTRUMENT = 2  # u, u clip(eta/spread, 4)/2
PRODUCT = 3  # c(t - eta) clip(u - centre, 1) with the u of another line
SQUARED_LINE = 4  # u, u^2 - 1/2
BOUNDED_PRODUCTS = 5  # s, s u with the logistic score s of level + multiplier eta
UNEVEN = 6  # a u, a, u/2 with a = min(abs(t - eta), c)/c - 1/2 and u of eta less its constant
BEYOND = 7  # clip((t - e)^2 - (t - eta)^2, most), e the line with its features cut to ends

# Exponents of floats as `default_sums.column_counts` finds them: the bits, shifted, with 64 more for subnormal numbers.
SUBNORMAL = 64
EXPONENTS = 2049 + SUBNORMAL

# Weights of labels in the score of several classes: the squared distance of a label's corner from the probabilities, at
# least NEAREST, to the power -EVEN.
EVEN, NEAREST = 0.4, 1e-3
