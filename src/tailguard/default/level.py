"""Fits of a level alone: a private mean, and what is left of a line where there is too much noise for slopes."""

from __future__ import annotations

from tailguard.default.columns import Columns, Looks
from tailguard.default.hinted import narrowed_target
from tailguard.default.line import LEVEL_ONLY, LEVEL_UNSEEN, Line, nothing
from tailguard.default.locating import FAR, locate_target
from tailguard.default.recalibration import Fit
from tailguard.hints import Known
from tailguard.means.queries import Queries

TARGET = Looks(0.3, 0.1)  # at the target where only its level is fitted,
MEAN = Looks(0.15, 0.05)  # and for a private mean


def level_only(queries: Queries, intercept: bool, known: Known | None = None) -> Line:
    """Fit a level, if there is to be one, and no slopes."""
    columns = Columns.unknown(queries.engine.columns)
    if not intercept:
        return nothing(columns, LEVEL_ONLY)
    y_column = narrowed_target(locate_target(queries, TARGET._replace(closer=FAR), again=False), known)
    if not y_column.seen[0]:
        return nothing(columns, LEVEL_UNSEEN)
    return Fit(queries, y_column).level_alone()


def fit_level(queries: Queries) -> float | None:
    """Fit a constant to the target: a private mean; none if nothing is seen of it."""
    y_column = locate_target(queries, MEAN._replace(closer=FAR))
    return float(Fit(queries, y_column).level_alone().level) if y_column.seen[0] else None
