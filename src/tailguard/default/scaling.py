r"""Centre, scale and truncation of every column with a budget of their own: stage A, and one closer look.

=================  =======================================================  ==========================  ==============
query              one row                                                  L2 sensitivity of the sum   share
=================  =======================================================  ==========================  ==============
column scales      as in `tailguard.default.columns`, or `hinted`           sqrt(2 d)                   `LOOK`
column means       the same                                                 2 sqrt(d)                   `LOOK`
closer look        (v, v^2 - 1) of ``v = clip((x - mean)/(4 scale), +-1)``  2 sqrt(d)                   what is left
=================  =======================================================  ==========================  ==============

The closer look takes all that stage A did not need. Its second moment replaces the scale where it is known well; the
bound of four scales is where a normal column ends, and a heavy-tailed one is truncated for this purpose.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tailguard.default.columns import FIRST, KNOWN, Columns, Looks, locate
from tailguard.default.hinted import locate_known, narrowed
from tailguard.default.rows import ColumnMoments
from tailguard.hints import Known
from tailguard.means.queries import Queries

LOOK = Looks(0.5, 0.1)
POOR = 0.06  # noise of a histogram of one column from which alike columns are pooled
BOUND = 4.0  # scales at which the closer look clips


def scale_columns(queries: Queries, known: Known | None) -> Columns:
    """Find truncation, mean and scale of every column with the whole account."""
    d = queries.engine.columns
    noise = queries.sd(math.sqrt(2.0 * d), LOOK.histogram * FIRST)
    if known is not None and known.complete and noise > POOR:
        columns = locate_known(queries, known, centred=True)
    else:
        columns = narrowed(locate(queries, "features", d, LOOK), known)
    bound = BOUND * columns.scale
    powers = ColumnMoments("features", tuple(range(d)), tuple(columns.mean.tolist()), tuple(bound.tolist()))
    moments, sd = queries.mean("closer look", powers, powers.width, powers.length, queries.account.left)
    first, second = np.clip(moments[:d], -1.0, 1.0), np.clip(moments[d:] + 1.0, 0.0, 1.0)
    variance = second - first**2
    sure = columns.seen & (variance > KNOWN * sd)
    mean = np.clip(columns.mean + np.where(columns.seen, bound * first, 0.0), columns.lower, columns.upper)
    return replace(columns, mean=mean, scale=np.where(sure, bound * np.sqrt(np.maximum(variance, 0.0)), columns.scale))
