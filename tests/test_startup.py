"""What a first use says: kernels that have to be compiled are announced, once, and not again on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from numba.core.dispatcher import Dispatcher

from tailguard import kernels
from tailguard.kernels import default_sums, features, persons, rows, smooth_sensitivity
from tailguard.kernels.compiling import fingerprint

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


THREADS = """
import sys, threading
import numpy as np
import tailguard as tg
X, found = np.ones((5, 2)), []
assert "numba" not in sys.modules
start = threading.Barrier(6)

def fit():
    start.wait()
    tg.algorithms.clipped_gd(tg.losses.Squared(), X, X[:, 0], epsilon=1.0, clip=1.0, steps=1)
    found.append("numba" in sys.modules)

threads = [threading.Thread(target=fit) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(found)
"""


def test_kernels_are_imported_by_whoever_is_first_to_fit_and_others_wait():
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == str(6 * [True])


def test_what_kernels_do_not_have_is_said():
    with pytest.raises(AttributeError, match=r"tailguard\.kernels.*'columns'"):
        kernels.columns  # noqa: B018


def test_a_kernel_on_disk_belongs_to_all_sources_of_its_folder():
    # A function that is compiled into a kernel may live in another file, which numba does not look at.
    found = [
        kernel
        for module in (default_sums, features, persons, rows, smooth_sensitivity)
        for kernel in vars(module).values()
        if isinstance(kernel, Dispatcher) and hasattr(kernel._cache, "_cache_file")
    ]
    assert len(found) > 10
    assert all(fingerprint() in kernel._cache._cache_file._source_stamp for kernel in found)
