"""Where Triton's kernels run in the tests: on a GPU, in Triton's interpreter on the CPU, or not at all.

The interpreter is chosen when Triton is imported: without a GPU a test file runs itself again, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

from row_rule import fma, fmaf

HERE = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("triton") is not None
INTERPRETED = HERE and os.environ.get("TRITON_INTERPRET") == "1"
needs_torch = pytest.mark.skipif(not HERE, reason="torch and triton are not installed")
DEVICE = None
if HERE:
    import torch

    DEVICE = "cpu" if INTERPRETED else "cuda" if torch.cuda.is_available() else None
on_device = pytest.mark.skipif(DEVICE is None, reason="no GPU here, and not in the interpreter")
elsewhere = pytest.mark.skipif(DEVICE is not None, reason="the tests run by themselves here")


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Let the interpreter of Triton 3.6 fuse, and take arrays of one number for numbers, as NumPy 2.4 does no more."""
    if INTERPRETED:
        from triton.runtime import interpreter

        def create_fma(self, x, y, z):
            fused = fmaf if z.data.dtype == np.float32 else fma
            return interpreter.TensorHandle(fused(x.data, y.data, z.data), z.dtype.scalar)

        monkeypatch.setattr(interpreter.InterpreterBuilder, "create_fma", create_fma)

        original = interpreter._patch_lang_tensor

        def patch(tensor, scope):
            original(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
            scope.set_attr(tensor, "__bool__", lambda self: self.handle.data.size != 1 or bool(self.handle.data.item()))

        monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)
    with np.errstate(all="ignore"):  # a kernel has no warnings; NumPy, which interprets it, does
        yield


def passes_in_the_interpreter(file: str) -> None:
    """Run a test file in Triton's interpreter."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", file],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
