r"""Launch a kernel of Triton again without what Triton does for every launch.

A sum over a million rows takes the GPU a fraction of a millisecond, and Triton takes a tenth of one to find out, for
every launch, which compiled form of a kernel fits the arguments. `Launch` keeps the compiled forms of one kernel with
one choice of constants, by what Triton specialises them on:

=================================  ====================================================================
argument                           kept by
=================================  ====================================================================
the GPU                            which one is current
tensor                             type, and whether it begins at a multiple of 16 bytes
None                               that it is None
integer                            its value: Triton looks whether it is 1, and a multiple of 16
integer in ``do_not_specialize``   whether it fits in 32 bits, or in 64
anything else                      its type and value
=================================  ====================================================================

So a kernel that was compiled to read 16 bytes at once is never given a tensor where it cannot. What is kept apart here
may be the same to Triton, never the other way round; ``tests/test_cuda_launch.py`` compares the two. What Triton asks
at every launch is asked at the first alone: whether globals of the kernel have changed, and its knobs for debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

# Versions whose compiled kernels are known to be launched like this: one that failed halfway could not be repeated,
# because sums are added to.
FIRST_VERSION, LAST_VERSION = (3, 6), (3, 9)
MOST = 1024  # compiled forms that one `Launch` keeps


class Launch:
    """A kernel with its constants and options: ``Launch(kernel, D=10, num_warps=1)((programs,), X, y, n)``."""

    def __init__(self, kernel: Any, **settings: Any) -> None:
        self.kernel = kernel
        self.settings = settings
        self.constants = tuple(settings[name] for name in kernel.arg_names if name in settings)
        free = getattr(kernel, "do_not_specialize", ())
        self.free = frozenset(i for i, name in enumerate(kernel.arg_names) if name in free)
        self.compiled: dict[tuple[Any, ...], Any] = {}
        self.current = current_device()

    def __call__(self, grid: tuple[int, ...], *args: Any) -> None:
        """Launch it over a grid, with all arguments that are not constants, in order."""
        if self.current is None:
            self.kernel[grid](*args, **self.settings)
            return
        key = (self.current(), *specialised(args, self.free))
        compiled = self.compiled.get(key)
        if compiled is None:
            compiled = self.kernel[grid](*args, **self.settings)
            if len(self.compiled) == MOST:
                self.compiled.clear()
            self.compiled[key] = compiled
            return
        compiled[(*grid, 1, 1)[:3]](*args, *self.constants)


def specialised(args: Sequence[Any], free: frozenset[int]) -> list[Any]:
    """Return what a kernel is compiled for; ``free`` has the places of integers that are not specialised."""
    key: list[Any] = []
    for place, arg in enumerate(args):
        if arg is None:
            key.append(None)
        elif type(arg) is not int:
            known = (arg.dtype, arg.data_ptr() % 16 == 0) if hasattr(arg, "data_ptr") else (type(arg), arg)
            key.append(known)
        elif place not in free:
            key.append(arg)
        else:
            key.append("32" if -(2**31) <= arg < 2**31 else "64" if arg < 2**63 else arg)
    return key


def current_device() -> Callable[[], int] | None:
    """Return what tells the current GPU; None where there is none to launch on again.

    The interpreter compiles nothing, and for GPUs of AMD Triton specialises on the size of tensors too.
    """
    import torch
    import triton

    major, minor = (int(part) for part in triton.__version__.split(".")[:2])
    known = FIRST_VERSION <= (major, minor) <= LAST_VERSION
    return torch.cuda.current_device if known and torch.cuda.is_available() and torch.version.hip is None else None


@lru_cache(maxsize=1024, typed=True)
def prepared(kernel: Any, **settings: Any) -> Launch:
    """Return the same `Launch` for the same settings."""
    return Launch(kernel, **settings)


@cache
def multiprocessors(device: Any) -> int:
    """Return how many a GPU has; 1 in the interpreter."""
    if device.type != "cuda":
        return 1
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def parts(whole: int, size: int) -> int:
    """Return how many parts of a size make up the whole; Triton's ``cdiv`` is slow on the host."""
    return -(-whole // size)


def power_of_two(number: int) -> int:
    """Return the least power of two that is not below the number."""
    return 1 << (number - 1).bit_length()
