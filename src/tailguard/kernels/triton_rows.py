r"""`tailguard.kernels.rows` for a GPU: the same sums, to the last bit, in one pass over the data.

How rows are cut among threads, and how the kernels of `tailguard.kernels.triton_sum` are launched. What one row
contributes is in `tailguard.kernels.triton_rule`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from tailguard.kernels import rule
from tailguard.kernels.triton_launch import Launch, multiprocessors, parts, power_of_two, prepared
from tailguard.kernels.triton_rule import SMOOTH
from tailguard.kernels.triton_sum import predictors, truncated_sum

# Rows of one launch, in bytes of X and in number: their list takes at most 4 GiB, and launching little time.
LAUNCH_BYTES = 2**33
LAUNCH_ROWS = 2**30
WARP = 32
SHARE = 4  # programs that share a list of rows that are not plain: it is short, and every row takes long
COPIES = 16  # of the total: additions to one place in memory wait for each other


class Plan(NamedTuple):
    """How a sum is launched."""

    threads: int  # that share a row; a program is one warp
    programs: int  # on each multiprocessor, all at once: it is what limits their registers
    shared: bool  # weights are kept in shared memory, rather than in registers
    ahead: int  # tiles that are on their way while one is added: 1 or 2
    listed: int  # threads of a row that is not plain, which needs more registers


@lru_cache(maxsize=256)
def plan_for(columns: int, vector: int, kind: int, size: int) -> Plan:
    """Return the plan for rows of numbers of ``size`` bytes, ``vector`` of which can be read at once; tried on an H200.

    Threads that share a row all repeat what is computed once per row, so they should be few; but a thread that holds
    many values needs many registers, and then few programs are there to wait for memory. A thread reads 16 bytes at
    best: neighbours should read on where it ends, so that rows of more than 64 bytes have two threads or more.
    """
    smooth = kind == SMOOTH.value  # takes a few registers more
    threads = _threads(columns, 16)
    values = _values(columns, threads)
    if columns <= 16:
        programs, ahead = 20 if values <= 10 else 16 if values <= 14 else 12, 1
    elif columns <= 32 or (vector == 1 and values <= 15):
        programs, ahead = (12, 2) if smooth and values > 15 else (16, 1)
    else:
        threads = _threads(columns, 32)
        values = _values(columns, threads)
        if values <= (20 if smooth else 26) and vector > 1:  # with more, psi of the logistic loss has to spill
            programs, ahead = 12, 1
        else:
            programs, ahead = 8, 1 if vector == 1 or (smooth and values > 28) else 2
    if size == 8:  # a tile on its way takes twice the registers
        programs, ahead = (programs, 1) if ahead == 2 else (max(8, programs - 4), 1)
    return Plan(threads, programs, columns > 16, ahead, _threads(columns, 8))


def _threads(columns: int, values: int) -> int:
    """Return how many threads share a row, so that none holds more than so many of its values."""
    return min(WARP, power_of_two(parts(columns, values)))


def _values(columns: int, threads: int) -> int:
    """Return how many values of a row its first thread holds."""
    whole = (columns - 1) // (4 * threads)
    return 4 * whole + min(4, columns - 4 * threads * whole)


def _vector(X: Any) -> int:
    """How many neighbours of a row can be read at once: 16 bytes, if all rows begin at a multiple of that."""
    if X.stride(1) != 1:
        return 1
    vector = 16 // X.element_size()
    while vector > 1 and (X.stride(0) % vector or X.data_ptr() % (vector * X.element_size())):
        vector //= 2
    return vector


def add_rows(
    X: Any,
    y: Any,
    w: Any,
    given: Any,
    index: Any,
    fit_intercept: bool,
    code: int,
    parameter: float,
    kind: int,
    bound: float,
    per_unit: float,
    psi: tuple[float, ...],
    table: Any,
    cubic: float,
    core: float,
    plan: Plan | None = None,
) -> Any:
    """Sum of the truncated vectors of all rows, or of those in ``index``, in units: int64 (outputs, columns).

    X (n, d), y (n,), w (outputs, d + fit_intercept), the multipliers ``given`` (rows that are summed, outputs) and
    ``index`` are tensors on one device; y, given and index may be None. The other arguments are those of
    `tailguard.kernels.rows.truncated_sum`.
    """
    device = X.device
    n = X.shape[0] if index is None else index.shape[0]
    d = X.shape[1]
    outputs = w.shape[0]
    total = torch.zeros((COPIES, outputs, d + fit_intercept), dtype=torch.int64, device=device)
    if n == 0:
        return total[0]
    constants, cells = _constants(bound, per_unit, parameter, psi, table.tobytes(), cubic, core, device)
    size = X.element_size()
    row, column = X.stride()
    vector = _vector(X)
    plan = plan or plan_for(d, vector, kind, size)
    B = WARP // plan.threads
    rows = max(B, min(n, LAUNCH_ROWS, LAUNCH_BYTES // (d * size)))
    tiles = parts(rows, B)
    programs = min(plan.programs * multiprocessors(device), tiles)
    room = parts(tiles, programs) * B
    listed = torch.empty(outputs * programs * (room + 1), dtype=torch.int32, device=device)
    first, second = _launches(plan, row, column, d, bool(fit_intercept), code, kind, len(cells), vector)
    for offset in range(0, n, rows):
        here = None if given is None else given[offset:]
        numbers = min(rows, n - offset), offset, outputs, room
        first((programs, outputs), X, y, w, here, index, constants, cells, listed, total, *numbers)
        second((programs * SHARE, outputs), X, y, w, here, index, constants, cells, listed, total, *numbers)
    return total.sum(0)  # wraps around, as the additions do


@lru_cache(maxsize=256)
def _launches(
    plan: Plan, row: int, column: int, d: int, fit_intercept: bool, code: int, kind: int, cells: int, vector: int
) -> tuple[Launch, Launch]:
    """Return the launch over all rows, and that over the rows that it has listed."""

    def launch(share: int, Q: int) -> Launch:
        return Launch(
            truncated_sum,
            ROW=row,
            COLUMN=column,
            D=d,
            INTERCEPT=fit_intercept,
            CODE=code,
            KIND=kind,
            CELLS=cells,
            LISTED=share,
            VECTOR=vector,
            B=WARP // Q,
            Q=Q,
            PADDED=power_of_two(4 * parts(d, 4 * Q)),
            SHARED=plan.shared and not share,
            AHEAD=1 if share else plan.ahead,
            COPIES=COPIES,
            num_warps=1,
            maxnreg=None if share else _registers(plan.programs),
            enable_fp_fusion=False,
        )

    return launch(0, plan.threads), launch(SHARE, plan.listed)


@lru_cache(maxsize=256)
def _constants(
    bound: float,
    per_unit: float,
    parameter: float,
    psi: tuple[float, ...],
    table: bytes,
    cubic: float,
    core: float,
    device: Any,
) -> tuple[Any, Any]:
    """Return public constants and the table of psi on the device.

    They are kept, since a copy from the host stops the launches before it.
    """
    root, shift, p, cells = rule.psi_in_units(psi, np.frombuffer(table).reshape(-1, 4), bound * per_unit)
    numbers = bound, 1.0 / bound, per_unit, parameter, cubic, core, root, float(shift), *map(float, p)
    return tuple(torch.tensor(values, dtype=torch.float64, device=device) for values in (numbers, cells.tolist()))


def _registers(programs: int) -> int:
    """Return how many registers a thread may take so that so many programs are on a multiprocessor at once.

    It has four parts with 16,384 registers each, which are given out by eights to the threads of a warp.
    """
    return min(255, 16384 // WARP // (programs // 4) // 8 * 8)


def predict(X: Any, w: Any, fit_intercept: bool) -> Any:
    """Return the predictors of all rows, float64 (n, outputs)."""
    n, d = X.shape
    z = torch.empty((n, w.shape[0]), dtype=torch.float64, device=X.device)
    Q = _threads(d, 16)
    launch = prepared(
        predictors,
        ROW=X.stride(0),
        COLUMN=X.stride(1),
        D=d,
        INTERCEPT=bool(fit_intercept),
        VECTOR=_vector(X),
        B=WARP // Q,
        Q=Q,
        num_warps=1,
        enable_fp_fusion=False,
    )
    launch((parts(n, WARP // Q), w.shape[0]), X, w, z, n)
    return z
