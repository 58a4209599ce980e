r"""What one row adds to each query of the default: small objects of released and public numbers.

Each is a function of a block of rows that looks at every row by itself. Called, it is its own definition, in NumPy: the
vector of every row, (rows, width). `clipped` is the same as one compiled pass that adds up integers and builds nothing
of the size of the block (`tailguard.kernels.default_sums`). An engine that can add up integers takes the second, any
other the first. Objects hold no rows and can be pickled.

==================  =====================================  =================  ==========================================
object              one row                                norm at most       asked for by
==================  =====================================  =================  ==========================================
`ColumnCounts`      a count in one bin of each column      -                  columns
`NearCounts`        a count in one of equal bins           -                  columns
`ColumnMoments`     (v, v^2 - 1) of each column            sqrt(columns)      columns
..                  or v^2 - 1/2 of each column            sqrt(columns)/2    columns, heavy tails
`DesignRows`        sqrt(w) a                              sqrt(cap) R        whitening
`Sizes`             a count in the bin of abs(r)           -                  clips and tails
`Score`             w a c(r), c a `Clip`                   R bound            steps: linear, Poisson
`Widening`          w a (min(abs(r), c) - c/2)             R c/2              direction of a tilt: linear
`LogisticScore`     w a (p - y)/max(p, 1 - p)              R                  steps: logistic
`MultinomialScore`  t_y (m - e_y)/g  (x)  w a              R                  steps: multinomial
`Square`            min(r^2, c^2) - c^2/2                  c^2/2              variances
`Uneven`            (a u, a, u/2), abs(a) <= 1/2           sqrt(3/4)          which clips: linear
`Instrument`        (u, u clip(eta, 4)/2)                  sqrt(5)            tilt: linear
`Product`           c(r) (u - centre), u of another line   bound              tilt: linear
`Level`             c(r)                                   bound              level: linear, Poisson
`Beyond`            clip((y - e)^2 - (y - eta)^2, most)    most               truncation: linear
`SquaredLine`       (u, u^2 - 1/2)                         sqrt(5/4)          recalibration: logistic
`BoundedProducts`   (s, s u)                               sqrt(2)            recalibration: logistic
`Prevalence`        sign(y)/2                              1/2                level: logistic
`Membership`        onehot(y) - 1/K                        sqrt(1 - 1/K)      levels: multinomial
==================  =====================================  =================  ==========================================

a is the design vector of a row, w its Mallows weight, r its residual, z or eta its predictor, u the instrument
``clip(eta / (1.5 spread), -1, 1)``; the a of `Uneven` is ``min(abs(r)/c, 1) - 1/2``,
the e of `Beyond` eta with features cut to their ends. A missing target has residual 0.
One file each for what depends on columns one by one, on the design vector, on a fitted line and on the target alone;
`vectors` has what they share.
"""

from tailguard.default.rows.clips import Clip
from tailguard.default.rows.columns import (
    BELOW,
    NEAR,
    TOPS,
    ColumnCounts,
    ColumnMoments,
    NearCounts,
    Source,
    exponent,
    first_look,
    later_look,
    near_look,
)
from tailguard.default.rows.design import (
    DesignGram,
    DesignRows,
    LogisticScore,
    MultinomialScore,
    Score,
    Widening,
    class_weights,
)
from tailguard.default.rows.line import (
    Beyond,
    BoundedProducts,
    Fitted,
    Instrument,
    Level,
    Product,
    Residual,
    Sizes,
    Square,
    SquaredLine,
    Uneven,
)
from tailguard.default.rows.target import Membership, Prevalence, Target, bounded_score, mean_of
from tailguard.default.rows.vectors import Clipped, Vectors

__all__ = [
    "BELOW",
    "NEAR",
    "TOPS",
    "Beyond",
    "BoundedProducts",
    "Clip",
    "Clipped",
    "ColumnCounts",
    "ColumnMoments",
    "DesignGram",
    "DesignRows",
    "Fitted",
    "Instrument",
    "Level",
    "LogisticScore",
    "Membership",
    "MultinomialScore",
    "NearCounts",
    "Prevalence",
    "Product",
    "Residual",
    "Score",
    "Sizes",
    "Source",
    "Square",
    "SquaredLine",
    "Target",
    "Uneven",
    "Vectors",
    "Widening",
    "bounded_score",
    "class_weights",
    "exponent",
    "first_look",
    "later_look",
    "mean_of",
    "near_look",
]
