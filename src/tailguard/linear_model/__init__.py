"""scikit-learn estimators with differential privacy.

Each is thin: it checks its arguments, chooses a loss, and hands the rows to the default (`tailguard.default`) or to a
named algorithm (`tailguard.algorithms`). The data is never looked at in any other way, so no value in it can make
``fit`` raise, warn or leave a trace; only shapes, types and parameters can.

=============================  ==========================================================
estimator                      what it promises to approach
=============================  ==========================================================
`PrivateRidge`                 the minimiser of the squared risk: the slopes of the mean
`PrivateHuberRegressor`        the minimiser of the Huber risk: slopes of the bulk
`PrivateLogisticRegression`    the minimiser of the (multinomial) log-loss
`PrivatePoissonRegressor`      the minimiser of the Poisson deviance, log link
=============================  ==========================================================

Under noise that is skewed *and* whose size depends on x, as in medical costs, the slopes of the mean and of the bulk
differ: choose `PrivateRidge` to predict totals, `PrivateHuberRegressor` to describe the typical row; the latter
needs less budget.
"""

from tailguard.linear_model.base import FewRowsWarning
from tailguard.linear_model.classification import PrivateLogisticRegression
from tailguard.linear_model.regression import PrivateHuberRegressor, PrivatePoissonRegressor, PrivateRidge

__all__ = [
    "FewRowsWarning",
    "PrivateHuberRegressor",
    "PrivateLogisticRegression",
    "PrivatePoissonRegressor",
    "PrivateRidge",
]
