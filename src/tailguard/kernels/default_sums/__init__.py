r"""The sums of the default, each one pass over a block of rows that adds integers to ``total``.

==================  ====================================================================================
function            adds
==================  ====================================================================================
`column_counts`     a histogram of every column
`near_counts`       one of equal bins near a centre
`column_moments`    ``(v, v^2 - 1)``, or ``v^2 - 1/2``, of every column
`design_gram`       the Gram matrix of weighted design vectors
`scores`            ``w a s`` with the logistic score s, or a clipped residual
`score_table`       the same with every clip of a grid at once
`class_scores`      the same for several classes
`line_sizes`        a histogram of absolute residuals of a line
`line_vectors`      one to three numbers that depend on a line and the target: see `codes`
`target_vectors`    one or more numbers that depend on the target alone
==================  ====================================================================================

`tailguard.default.rows` has the definitions. X is float32 or float64, y is float64; neither is copied, and nothing is
built that is larger than a tile. `tile` says how rows are taken and what guards them.
"""

from tailguard.kernels.default_sums.columns import column_counts, column_moments, near_counts
from tailguard.kernels.default_sums.design import class_scores, design_gram, scores
from tailguard.kernels.default_sums.line import line_sizes, line_vectors, target_vectors
from tailguard.kernels.default_sums.table import score_table

__all__ = [
    "class_scores",
    "column_counts",
    "column_moments",
    "design_gram",
    "line_sizes",
    "line_vectors",
    "near_counts",
    "score_table",
    "scores",
    "target_vectors",
]
