"""What a first use says: kernels that have to be compiled are announced, once, and not again on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys

FIT = """
import numpy as np
import tailguard as tg
X = np.ones((5, 2))
tg.algorithms.clipped_gd(tg.losses.Squared(), X, X[:, 0], epsilon=1.0, clip=1.0, steps=1)
"""


def said(cache: str) -> str:
    """What a process with its kernels cached in a folder writes to standard error during a fit."""
    done = subprocess.run(
        [sys.executable, "-c", FIT],
        env=os.environ | {"NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stderr


def test_the_first_fit_says_that_it_compiles_and_the_next_is_silent(tmp_path):
    first = said(str(tmp_path))
    assert first.count("\n") == 1
    assert first.startswith("compiling tailguard's kernels")
    assert said(str(tmp_path)) == ""
