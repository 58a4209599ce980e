"""Ways to hold rows on a GPU, for the contract of engines; without one, test_cuda_engine.py interprets the kernels."""

from __future__ import annotations

from importlib.util import find_spec

from tailguard.engines.engine import engine_for

BUILDERS = {}
SAME_BITS = False  # of the sums of the default
if find_spec("torch") is not None and find_spec("triton") is not None:
    import torch

    def rows(X, y, threads, folder):
        return engine_for(torch.as_tensor(X, device="cuda"), torch.as_tensor(y, device="cuda"), threads)

    def columns(X, y, threads, folder):
        return engine_for(torch.as_tensor(X.T.copy(), device="cuda").T, torch.as_tensor(y, device="cuda"), threads)

    if torch.cuda.is_available():
        BUILDERS = {"cuda": rows, "cuda, column by column": columns}
