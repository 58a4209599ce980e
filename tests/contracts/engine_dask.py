"""Ways to give rows to Dask, for the contract of engines: cut in every way, in the threads of this process.

Functions of the contract count what they see, so they must not be sent elsewhere: clusters are in test_dask.py.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pandas as pd

from tailguard.engines.engine import engine_for

SAME_BLOCKS = False
INSTALLED = find_spec("dask") is not None  # with tailguard[dask]
if INSTALLED:
    import dask.array as da
    import dask.dataframe as dd
    from dask import config


def in_chunks(chunks, persist=True):
    def build(X, y, threads, folder):
        edges = tuple(len(rows) for rows in np.array_split(X, chunks)) if isinstance(chunks, int) else chunks(len(X))
        with config.set({"tailguard.persist": persist}):
            rows = da.from_array(X, chunks=(edges, 1))
            return engine_for(rows, da.from_array(y, chunks=-1), threads)

    return build


def uneven(n):
    """Some empty, some of one row."""
    return (1, 0, n // 2, 0, n - n // 2 - 1)


def frame(X, y) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(target=y)


def named(X, y, threads, folder):
    return engine_for(dd.from_pandas(frame(X, y), npartitions=4), "target", threads)


def apart(X, y, threads, folder):
    """Partitions whose lengths Dask does not know, and targets in a collection of their own."""
    rows = dd.from_pandas(frame(X, y), npartitions=3)
    return engine_for(rows[[name for name in rows.columns if name != "target"]], rows["target"], threads)


WAYS = {
    "Dask, uneven chunks": in_chunks(uneven),
    "Dask, computed anew": in_chunks(4, persist=False),
    "Dask, dataframe": named,
    "Dask, two frames": apart,
}
BUILDERS = WAYS if INSTALLED else {}
