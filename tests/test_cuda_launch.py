"""Launching compiled kernels again: never with arguments of another kind than they were compiled for."""

from __future__ import annotations

import itertools

import pytest

from tailguard.kernels import triton_launch
from tailguard.kernels.triton_launch import Launch, parts, power_of_two, specialised
from triton_here import needs_torch


class Tensor:
    def __init__(self, address=0, dtype="float32"):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


class Kernel:
    """Stands for one of Triton; what it compiles remembers the arguments that it is launched with again."""

    arg_names = ("X", "y", "n", "outputs", "D", "FLAG")
    do_not_specialize = ("n",)

    def __init__(self):
        self.ordinary, self.again = [], []

    def __getitem__(self, grid):
        def launch(*args, **settings):
            self.ordinary.append((grid, args, settings))
            return Compiled(self)

        return launch


class Compiled:
    def __init__(self, kernel):
        self.kernel, self.number = kernel, len(kernel.ordinary)

    def __getitem__(self, grid):
        return lambda *args: self.kernel.again.append((self.number, grid, args))


@pytest.fixture
def device(monkeypatch):
    """The current device, which a test may change."""
    current = [0]
    monkeypatch.setattr(triton_launch, "current_device", lambda: lambda: current[0])
    return current


X, Y = Tensor(64), Tensor(128, "float64")
OTHERS = {
    "rows that begin elsewhere": (Tensor(68), Y, 10, 3),
    "targets that begin elsewhere": (X, Tensor(136, "float64"), 10, 3),
    "both": (Tensor(68), Tensor(136, "float64"), 10, 3),
    "another type": (Tensor(64, "float64"), Y, 10, 3),
    "nothing": (X, None, 10, 3),
    "more rows than 32 bits count": (X, Y, 2**31, 3),
    "an integer that is specialised": (X, Y, 10, 4),
}


def test_the_same_kinds_of_arguments_are_launched_again(device):
    kernel = Kernel()
    launch = Launch(kernel, FLAG=True, D=7, num_warps=1)
    launch((5,), X, Y, 10, 3)
    assert kernel.ordinary == [((5,), (X, Y, 10, 3), {"FLAG": True, "D": 7, "num_warps": 1})]
    other = Tensor(16), Tensor(32, "float64"), 999, 3
    launch((6, 2), *other)
    assert len(kernel.ordinary) == 1
    assert kernel.again == [(1, (6, 2, 1), (*other, 7, True))]  # constants as the kernel names them, no options


@pytest.mark.parametrize("what", OTHERS)
def test_other_kinds_are_compiled_by_themselves(what, device):
    kernel = Kernel()
    launch = Launch(kernel, FLAG=True, D=7)
    for _ in range(2):
        launch((5,), X, Y, 10, 3)
        launch((5,), *OTHERS[what])
    assert [args for _, args, _ in kernel.ordinary] == [(X, Y, 10, 3), OTHERS[what]]
    assert [(number, args[:4]) for number, _, args in kernel.again] == [(1, (X, Y, 10, 3)), (2, OTHERS[what])]


def test_every_device_has_its_own(device):
    kernel = Kernel()
    launch = Launch(kernel, FLAG=True, D=7)
    for device[0] in (0, 1, 0, 1):
        launch((5,), X, Y, 10, 3)
    assert [number for number, _, _ in kernel.again] == [1, 2]


def test_settings_have_their_own_even_where_they_are_equal_in_python(device):
    kernel = Kernel()
    ways = [triton_launch.prepared(kernel, D=1, FLAG=flag) for flag in (True, 1, 1.0, True)]
    assert len(set(map(id, ways))) == 3
    assert ways[0] is ways[3]


def test_what_is_interpreted_is_launched_by_triton(monkeypatch):
    monkeypatch.setattr(triton_launch, "current_device", lambda: None)
    kernel = Kernel()
    launch = Launch(kernel, FLAG=True, D=7)
    for _ in range(3):
        launch((5,), X, Y, 10, 3)
    assert len(kernel.ordinary) == 3
    assert kernel.again == []


def test_only_so_many_forms_are_kept(device, monkeypatch):
    monkeypatch.setattr(triton_launch, "MOST", 2)
    kernel = Kernel()
    launch = Launch(kernel, FLAG=True, D=7)
    for outputs in (1, 2, 3, 3, 1):
        launch((5,), X, Y, 10, outputs)
    assert [args[3] for _, args, _ in kernel.ordinary] == [1, 2, 3, 1]
    assert len(launch.compiled) == 2


@needs_torch
@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0.0"])
def test_other_versions_of_triton_launch_by_themselves(version, monkeypatch):
    import torch
    import triton

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    assert triton_launch.current_device() is torch.cuda.current_device
    monkeypatch.setattr(triton, "__version__", version)
    assert triton_launch.current_device() is None


@needs_torch
def test_arguments_that_triton_tells_apart_are_told_apart_here():
    """Of every two arguments for one place, with and without ``do_not_specialize``."""
    import torch

    library = pytest.importorskip("triton._C.libtriton")
    if not hasattr(library, "native_specialize_impl"):
        pytest.skip("this version of Triton does it elsewhere")
    from triton.backends.compiler import BaseBackend

    powers = [2**k for k in (0, 1, 4, 30, 31, 32, 62)]
    numbers = [0, 2**63, *(sign * p + add for p in powers for sign in (1, -1) for add in (-1, 0, 1))]
    tensors = [
        torch.zeros(40, dtype=dtype)[start:]
        for dtype in (torch.float32, torch.float64, torch.int32)
        for start in (0, 1, 2, 3, 4, 8)
    ]
    args = [None, True, False, 0.5, *numbers, *tensors]
    told_apart = 0
    for free in (False, True):
        seen = [library.native_specialize_impl(BaseBackend, arg, False, not free, True) for arg in args]
        keys = [specialised([arg], frozenset([0] if free else [])) for arg in args]
        for (one, here), (other, there) in itertools.combinations(zip(seen, keys, strict=True), 2):
            if one != other:
                told_apart += 1
                assert here != there, (one, other)
    assert told_apart > 100


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 31, 32, 33, 1000])
def test_counting_on_the_host(number):
    power = power_of_two(number)
    assert power.bit_count() == 1
    assert power // 2 < number <= power
    assert all((parts(number, size) - 1) * size < number <= parts(number, size) * size for size in (1, 3, 16))
