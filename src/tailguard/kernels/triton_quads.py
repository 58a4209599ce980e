r"""Rows of a table in the registers of a GPU.

The rule adds products by quads of columns. Here Q neighbouring threads share a row, and thread r has its quads r,
r + Q, r + 2 Q, ...: a tuple of tensors (Q, B), each one number of every thread. What is done with a number is written
once and unrolled; no column is padded but in the last Q quads, and neighbours whose products are added first are in one
thread. Q comes first because Triton then gives a row to neighbouring threads, which read it together.

What there is once per row (a predictor, a norm) is (Q, B) too, the same in all threads of a row. As (B,) it would have
a layout of its own, and compilers differ in what they convert where the two meet: Triton 3.9 took every number of the
row to every one of its threads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tailguard.kernels.triton_rule import finite


@triton.jit
def load_quads(pointer, D: tl.constexpr, COLUMN: tl.constexpr, VECTOR: tl.constexpr, Q: tl.constexpr):
    """Load rows of D columns that begin at ``pointer`` (Q, B), VECTOR neighbours at once; 0 beyond the last column."""
    x = ()
    quad = tl.arange(0, Q)[:, None]
    for k in tl.static_range((D + 4 * Q - 1) // (4 * Q)):
        column = 4 * Q * k + 4 * quad
        if COLUMN != 1:  # a column may be billions of numbers away
            column = column.to(tl.int64) * COLUMN
        x = x + _load_quad(pointer + column, quad, D - 4 * Q * k, COLUMN, VECTOR, Q)
    return x


@triton.jit
def _load_quad(pointer, quad, LEFT: tl.constexpr, COLUMN: tl.constexpr, VECTOR: tl.constexpr, Q: tl.constexpr):
    """Load one quad for every thread of a row; LEFT columns are left. Numbers that no thread has are left out."""
    ALL: tl.constexpr = LEFT >= 4 * Q or Q == 1
    V: tl.constexpr = VECTOR if LEFT >= 4 * Q or LEFT % VECTOR == 0 else 2 if VECTOR > 2 and LEFT % 2 == 0 else 1
    x = ()
    if V == 4:
        at = pointer[:, :, None] + tl.arange(0, 4)[None, None, :]
        t = tl.load(at) if ALL else tl.load(at, mask=(4 * quad < LEFT)[:, :, None], other=0.0)
        even, odd = tl.split(tl.reshape(t, (Q, t.shape[1], 2, 2)))
        x0, x2 = tl.split(even)
        x1, x3 = tl.split(odd)
        x = (x0, x1, x2, x3)
    elif V == 2:
        for j in tl.static_range(0, 4, 2):
            if j < LEFT:
                at = (pointer + j)[:, :, None] + tl.arange(0, 2)[None, None, :]
                x = x + tl.split(tl.load(at) if ALL else tl.load(at, mask=(4 * quad + j < LEFT)[:, :, None], other=0.0))
    else:
        for j in tl.static_range(4):
            if j < LEFT:
                at = pointer + j * COLUMN
                x += (tl.load(at) if ALL else tl.load(at, mask=4 * quad + j < LEFT, other=0.0),)
    return x


@triton.jit
def load_weights(w, D: tl.constexpr, Q: tl.constexpr, PADDED: tl.constexpr):
    """Load weights once for a program: (Q, 1, PADDED), number i of the threads of a row at (:, 0, i)."""
    i = tl.arange(0, PADDED)[None, None, :]
    column = 4 * Q * (i // 4) + 4 * tl.arange(0, Q)[:, None, None] + i % 4
    return tl.load(w + column, mask=column < D, other=0.0)


@triton.jit
def weights_of(loaded, COUNT: tl.constexpr, Q: tl.constexpr, PADDED: tl.constexpr):
    """Give every thread its COUNT weights, by way of shared memory."""
    parts = (loaded,)
    for k in tl.static_range(8):
        if (PADDED >> k) > 1:
            parts = _split_all(parts, Q, PADDED >> (k + 1))
    w = ()
    for i in tl.static_range(COUNT):
        w += (tl.reshape(parts[i], (Q, 1)),)
    return w


@triton.jit
def _split_all(parts, Q: tl.constexpr, HALF: tl.constexpr):
    """Cut every part (Q, 1, 2 HALF) in its first and its second half."""
    halves = ()
    for i in tl.static_range(len(parts)):
        halves = halves + tl.split(tl.permute(tl.reshape(parts[i], (Q, 1, 2, HALF)), (0, 1, 3, 2)))
    return halves


@triton.jit
def zeros_for(x, B: tl.constexpr, Q: tl.constexpr):
    """As many zeros as there are numbers: int64 (Q, B)."""
    v = ()
    for _ in tl.static_range(len(x)):
        v += (tl.zeros((Q, B), tl.int64),)
    return v


@triton.jit
def as_doubles(x):
    """Convert to float64, which is exact."""
    v = ()
    for i in tl.static_range(len(x)):
        v += (x[i].to(tl.float64),)
    return v


@triton.jit
def all_finite(x):
    """+-inf becomes the largest float of its sign, NaN becomes 0."""
    v = ()
    for i in tl.static_range(len(x)):
        v += (finite(x[i]),)
    return v


@triton.jit
def times(x, factor):
    """Multiply every number."""
    v = ()
    for i in tl.static_range(len(x)):
        v += (x[i] * factor,)
    return v


@triton.jit
def zero_unless(x, condition):
    """Keep rows where the condition holds; others become 0."""
    v = ()
    for i in tl.static_range(len(x)):
        v += (tl.where(condition, x[i], 0.0),)
    return v


@triton.jit
def _pair(v, w, i: tl.constexpr):
    if i + 1 < len(v):
        return tl.fma(v[i + 1], w[i + 1], v[i] * w[i])
    else:
        return v[i] * w[i]


@triton.jit
def _quad(v, w, k: tl.constexpr):
    if 4 * k + 2 < len(v):
        return _pair(v, w, 4 * k) + _pair(v, w, 4 * k + 2)
    else:
        return _pair(v, w, 4 * k)


@triton.jit
def _halves(lanes, HALF: tl.constexpr):
    """Add r and r + HALF; lanes that do not exist count as 0."""
    fewer = ()
    for r in tl.static_range(HALF if len(lanes) > HALF else len(lanes)):
        fewer += (lanes[r] + lanes[r + HALF] if r + HALF < len(lanes) else lanes[r],)
    return fewer


@triton.jit
def _lane(v, w, r: tl.constexpr, B: tl.constexpr, Q: tl.constexpr):
    """Add every ``16/Q``-th quad from the r-th on, in order: with Q threads these are Q of the 16 lanes."""
    COUNT: tl.constexpr = (len(v) + 3) // 4
    if Q <= 16:
        t = _quad(v, w, r)
        for k in tl.static_range(r + 16 // Q, COUNT, 16 // Q):
            t = t + _quad(v, w, k)
        return t
    else:  # more threads than lanes: they take turns
        turn = tl.arange(0, Q // 16)[:, None, None]
        total = tl.full((1, 16, B), -0.0, tl.float64)  # x + -0.0 is x for every x
        for k in tl.static_range(COUNT):
            t = tl.reshape(_quad(v, w, k), (Q // 16, 16, B))
            for i in tl.static_range(Q // 16):
                total = total + tl.sum(tl.where(turn == i, t, -0.0), 0, keep_dims=True)
        return tl.reshape(tl.broadcast_to(total, (Q // 16, 16, B)), (Q, B))


@triton.jit
def _with_partner(t, HALF: tl.constexpr, B: tl.constexpr, Q: tl.constexpr):
    """Add what threads r and r + HALF have, of every 2 HALF; both get the sum."""
    both = tl.reshape(t, (Q // (2 * HALF), 2, HALF, B))
    return tl.reshape(tl.broadcast_to(tl.sum(both, 1, keep_dims=True), both.shape), (Q, B))


@triton.jit
def dot(v, w, B: tl.constexpr, Q: tl.constexpr):
    """Add products of v and w in the order of the rule: (Q, B).

    Every reduction is over an axis of two, or of one entry that counts: no order is left to a compiler.
    """
    COUNT: tl.constexpr = (len(v) + 3) // 4
    GROUPS: tl.constexpr = 16 // Q if Q < 16 else 1
    lanes = ()
    for r in tl.static_range(GROUPS if GROUPS < COUNT else COUNT):
        lanes += (_lane(v, w, r, B, Q),)
    for i in tl.static_range(4):
        if (GROUPS >> i) > 1:
            lanes = _halves(lanes, GROUPS >> (i + 1))
    t = lanes[0]
    WIDTH: tl.constexpr = Q if Q < 16 else 16
    for i in tl.static_range(4):
        if (WIDTH >> i) > 1:
            t = _with_partner(t, WIDTH >> (i + 1), B, Q)
    return t


@triton.jit
def careful_dot(v, w, B: tl.constexpr, Q: tl.constexpr):
    """The dot product where products overflow or are not numbers: NaN if an entry is."""
    small = dot(times(all_finite(v), 2.409919865102884e-181), w, B, Q)  # 2^-600
    nan = v[0] != v[0]
    for i in tl.static_range(1, len(v)):
        nan = nan | (v[i] != v[i])
    nan = tl.max(nan.to(tl.int32), 0, keep_dims=True) > 0
    return tl.where(nan, float("nan"), small * 4.149515568880993e180)  # 2^600


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest(x):
    """Largest |x_j| of every row, as float64 (Q, B); NaN if there is one."""
    if x[0].dtype == tl.float32:
        size = tl.abs(x[0])
        for i in tl.static_range(1, len(x)):
            size = tl.maximum(size, tl.abs(x[i]), propagate_nan=tl.PropagateNan.ALL)
        return tl.broadcast_to(tl.reduce(size, 0, _larger, keep_dims=True), size.shape).to(tl.float64)
    else:  # bits are in the order of sizes, and those of NaN are the largest
        size = _size_bits(x[0])
        for i in tl.static_range(1, len(x)):
            size = tl.maximum(size, _size_bits(x[i]))
        return tl.broadcast_to(tl.max(size, 0, keep_dims=True), size.shape).to(tl.float64, bitcast=True)


@triton.jit
def _size_bits(x):
    return x.to(tl.float64).to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
