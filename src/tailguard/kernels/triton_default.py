r"""`tailguard.kernels.default_sums` for a GPU: functions of the same names and arguments, on tensors.

Rows are read once, in tiles, and integers are added up on the device; ``total``, on the host, is what comes back. The
formulas and the guards are those of the compiled loops: every contribution is scaled down to its bound, rounded to an
integer, and counts nothing if it is not a number, so the sensitivity of every sum holds as it does there.

**What is not the same.** Sums over the columns of a row are added up in the order that suits the device (fused, by
halves or by its matrix units) and a division by the scale of a column is a product, so a contribution can come out one
unit away from that of the CPU. Counts, of which nothing is rounded, differ only where a residual is within rounding of
the edge of a bin. For the same rows, device and version of Triton the integers are the same in every run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tailguard.kernels.codes import EVEN, NEAREST
from tailguard.kernels.triton_launch import multiprocessors, power_of_two, prepared
from tailguard.kernels.triton_passes import (
    PLAIN,
    SCORES,
    WEIGHTED,
    along_line,
    count,
    count_near,
    design_vectors,
    moments,
)

VALUES = 2048  # of a tile of rows
STORED = 2**25  # values of design vectors that are kept at a time
PIECE = 2**14  # rows whose products of 19 + 19 bits add up exactly in float64
COPIES = 2**23  # counts of all copies of the histograms: many copies, so that few threads wait for each other

NO_CLIP = (1.0, 0.0, 0.0)  # where no score is asked for


# ---------------------------------------------------------------- functions like those of `default_sums`


def column_counts(X, columns, centre, positive, bins, total):
    """Count binary exponents."""
    width, device = len(columns), X.device
    copies = 1 << max(0, int(math.log2(max(1, COPIES // total.size))))
    out = torch.zeros((copies, *total.shape), dtype=torch.int32, device=device)
    padded = power_of_two(width)
    launch = prepared(
        count, WIDTH=width, W=padded, B=max(1, min(256, VALUES // padded)), POSITIVE=bool(positive),
        EACH=int(len(bins) > 1), BINS=total.shape[1], EXPONENTS=bins.shape[1],
    )  # fmt: skip
    launch(
        (_programs(X),), X, X.stride(0), X.stride(1), _ints(columns, device), _floats(device, centre),
        torch.as_tensor(bins.astype(np.int32), device=device), out, len(X), copies,
    )  # fmt: skip
    total += out.sum(0, dtype=torch.int64).cpu().numpy()


def near_counts(X, columns, centre, unit, positive, total):
    """Count values in equal bins about a centre."""
    width, device = len(columns), X.device
    padded = power_of_two(width)
    copies = 1 << max(0, int(math.log2(max(1, COPIES // total.size))))
    out = torch.zeros((copies, *total.shape), dtype=torch.int32, device=device)
    launch = prepared(
        count_near, WIDTH=width, W=padded, B=max(1, min(256, VALUES // padded)), POSITIVE=bool(positive),
        BINS=total.shape[1],
    )  # fmt: skip
    q = _floats(device, _padded(centre, padded), _padded(unit, padded, 1.0))
    launch((_programs(X),), X, X.stride(0), X.stride(1), _ints(columns, device), q, out, len(X), copies)
    total += out.sum(0, dtype=torch.int64).cpu().numpy()


def column_moments(X, columns, centre, bound, positive, both, clip, per_unit, total):
    """Add moments of columns."""
    width, device = len(columns), X.device
    padded = power_of_two(width)
    out = torch.empty((_programs(X), len(total)), dtype=torch.int64, device=device)
    q = _floats(device, _padded(centre, padded), _padded(bound, padded, 1.0), clip, per_unit)
    kind = {"POSITIVE": bool(positive), "BOTH": bool(both)}
    launch = prepared(moments, WIDTH=width, W=padded, B=max(1, min(128, VALUES // padded)), **kind)
    launch((len(out),), X, X.stride(0), X.stride(1), _ints(columns, device), q, out, len(X))
    total += out.sum(0).cpu().numpy()


def design_gram(X, lower, upper, mean, scale, shift, rotation, constant, radius, cap, bound, bits, total):
    """Add the Gram matrix of weighted design vectors: integers, whose products a matrix product adds up exactly."""
    design = lower, upper, mean, scale, shift, rotation, constant, radius, cap
    found = torch.zeros(total.shape, dtype=torch.int64, device=X.device)
    width = X.shape[1] + 1
    for rows in _blocks(X, width):
        pieces = -(-len(rows) // PIECE)
        kept = torch.zeros((pieces * PIECE, width), dtype=torch.float64, device=X.device)
        unused = None, design, np.zeros(width), 0.0, 0, 0.0, None, NO_CLIP
        _run_design(rows, *unused, bound, 2.0**bits / bound, WEIGHTED, kept)
        kept = kept.reshape(pieces, PIECE, width)
        found += torch.bmm(kept.transpose(1, 2), kept).to(torch.int64).sum(0)
    total += found.cpu().numpy()


def scores(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, offset, link, largest, target, far,
    near, stretch, bound, per_unit, total,
):  # fmt: skip
    """Add weighted scores."""
    design = lower, upper, mean, scale, shift, rotation, constant, radius, cap
    clip = far, near, stretch
    total += _run_design(X, y, design, theta, offset, link, largest, target, clip, bound, per_unit, SCORES, None)


def class_scores(
    X, y, lower, upper, mean, scale, shift, rotation, constant, radius, cap, theta, bound, per_unit, total
):
    """Add weighted scores of several classes."""
    design = lower, upper, mean, scale, shift, rotation, constant, radius, cap
    width, classes = X.shape[1] + 1, len(theta)
    theta = torch.as_tensor(theta, device=X.device)
    found = torch.zeros((classes, width), dtype=torch.int64, device=X.device)
    at = 0
    for rows in _blocks(X, width * classes):
        kept = torch.empty((len(rows), width + 1), dtype=torch.float64, device=X.device)
        _run_design(rows, None, design, np.zeros(width), 0.0, 0, 0.0, None, NO_CLIP, 1.0, 1.0, PLAIN, kept)
        a, weight = kept[:, :-1], kept[:, -1]
        labels = y[at : at + len(rows)].to(torch.float64)
        at += len(rows)
        p = torch.softmax(a @ theta.T, dim=1)
        t = (1.0 - 2.0 * p + (p * p).sum(dim=1, keepdim=True)).clamp(min=NEAREST) ** -EVEN
        m = p * t / (p * t).sum(dim=1, keepdim=True)
        sizes = t * torch.sqrt((1.0 - 2.0 * m + (m * m).sum(dim=1, keepdim=True)).clamp(min=0.0))
        known = torch.arange(classes, device=X.device, dtype=torch.float64)
        label = (labels[:, None] == known).to(torch.float64)
        gap = (m - label) * (weight * (label * t).sum(dim=1) / sizes.max(dim=1).values)[:, None]
        size = torch.sqrt((gap * gap).sum(dim=1)) * torch.sqrt((a * a).sum(dim=1))
        gap = gap * _scaled_down(size, bound, per_unit)[:, None]
        for c in range(classes):
            found[c] += _rounded(a * gap[:, c : c + 1], bound * per_unit).sum(dim=0)
    total += found.reshape(-1).cpu().numpy()


def line_sizes(X, y, lower, upper, mean, scale, shift, slopes, constant, link, largest, target, grid, total):
    """Count absolute residuals."""
    points = power_of_two(len(grid))
    line = lower, upper, mean, scale, shift, slopes, constant, largest, target
    beyond = _run_line(X, y, line, 1.0, 1.0, _padded(grid, points, math.inf), link, -1, points)[: len(grid)]
    total += np.diff(-beyond, prepend=-len(X), append=0)


def line_vectors(
    X, y, lower, upper, mean, scale, shift, slopes, constant, link, largest, target, code, q, bound, per_unit, total
):
    """Add one to three numbers of every row."""
    line = lower, upper, mean, scale, shift, slopes, constant, largest, target
    total += _run_line(X, y, line, bound, per_unit, q, link, code, 1)[: len(total)]


def target_vectors(y, classes, bound, per_unit, total):
    """Add numbers that depend on the target alone."""
    y = y.to(torch.float64)
    if classes > 0:
        known = torch.arange(classes, device=y.device, dtype=torch.float64)
        v = (y[:, None] == known).to(torch.float64) - 1.0 / classes
    else:
        v = torch.where(y > 0.0, 0.5, torch.where(y < 0.0, -0.5, 0.0)).to(torch.float64)[:, None]
    scale = _scaled_down(torch.sqrt((v * v).sum(dim=1)), bound, per_unit)
    total += _rounded(v * scale[:, None], bound * per_unit).sum(dim=0).cpu().numpy()


# ---------------------------------------------------------------- launches


def _run_design(X, y, design, theta, offset, link, largest, target, clip, bound, per_unit, work, kept) -> Any:
    lower, upper, mean, scale, shift, rotation, constant, radius, cap = design
    n, d = X.shape
    p = max(16, power_of_two(d))
    square = np.zeros((p, p))
    square[:d, :d] = rotation.T
    target = np.array([0.0, 1.0, 0.0, math.inf, -math.inf, math.inf]) if target is None else target
    columns = [_padded(lower, p), _padded(upper, p), _padded(mean, p), _padded(1.0 / scale, p), _padded(shift, p)]
    scalars = constant, theta[0], offset, largest, radius, cap, bound, per_unit, *clip
    q = _floats(X.device, *columns, square.ravel(), _padded(theta[1:], p), *scalars, target)
    out = torch.empty((_programs(X), d + 1), dtype=torch.int64, device=X.device)
    launch = prepared(
        design_vectors, D=d, P=p, K=min(p, 32), B=max(16, min(64, 2 * VALUES // p)), WORK=work.value, LINK=link
    )
    y, kept = X if y is None else y, out if kept is None else kept
    launch((len(out),), X, y, q, out, kept, n, X.stride(0), X.stride(1))
    return out.sum(0).cpu().numpy() if work is SCORES else None


def _run_line(X, y, line, bound, per_unit, rest, link, code, points) -> Any:
    lower, upper, mean, scale, shift, slopes, constant, largest, target = line
    d = len(slopes)
    p = power_of_two(max(1, d))
    columns = [_padded(each, p) for each in (lower, upper, mean, 1.0 / scale, shift, slopes)]
    q = _floats(X.device, *columns, constant, largest, target, bound, per_unit, rest)
    out = torch.empty((_programs(X), points if code < 0 else 3), dtype=torch.int64, device=X.device)
    launch = prepared(along_line, D=d, P=p, B=max(16, min(256, VALUES // p)), LINK=link, CODE=code, POINTS=points)
    launch((len(out),), X, y, q, out, len(X), X.stride(0), X.stride(1))
    return out.sum(0).cpu().numpy()


def _programs(X: Any) -> int:
    """Programs of a launch: a few for each multiprocessor; in the interpreter, one that goes on to a second tile."""
    return 4 * multiprocessors(X.device) if X.is_cuda else 2


def _blocks(X: Any, width: int) -> Any:
    """Rows in blocks whose design vectors are kept at a time, whole pieces of them."""
    return torch.split(X, max(1, STORED // (width * PIECE)) * PIECE)


def _padded(values: Any, length: int, fill: float = 0.0) -> Any:
    return np.concatenate([values, np.full(length - len(values), fill)])


def _floats(device: Any, *values: Any) -> Any:
    """All numbers of a launch in one tensor: arguments would be rounded to single precision."""
    return torch.as_tensor(np.concatenate([np.atleast_1d(np.asarray(v, np.float64)) for v in values]), device=device)


def _ints(values: Any, device: Any) -> Any:
    return torch.as_tensor(np.asarray(values, np.int64), device=device)


def _scaled_down(size: Any, bound: float, per_unit: float) -> Any:
    return torch.where(size < math.inf, per_unit * (bound / size.clamp(min=bound)), 0.0)


def _rounded(v: Any, most: float) -> Any:
    return torch.where(v.abs() <= most * (1.0 + 1e-9), v, 0.0).round().to(torch.int64)
