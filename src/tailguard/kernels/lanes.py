"""Eight numbers in one vector register, as a type of compiled code.

A compiler that vectorises loops must first prove that it may, and often cannot; code that is written in lanes does not
leave it to the compiler. ``+ - * /``, comparisons and the functions below work lane by lane. Every operation is
rounded once, `fma` too; none is fused or reordered unasked: the result is the same on every machine. A scalar among
lanes is spread.

Lanes hold the same column of eight rows (`columns4`), or eight neighbours of one row (`load`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

WIDTH = 8  # float64 of a 512-bit register; the compiler cuts them in two or four where registers are shorter
ASKED = 2 * WIDTH  # entries that `prefetch` asks for: two cache lines of float64, one of float32

Code = Callable[..., Any]
_INT32 = ir.IntType(32)


class Lanes(types.Type):
    """Numbers of one kind."""

    def __init__(self, of: Any, count: int) -> None:
        self.of, self.count = of, count
        super().__init__(name=f"Lanes({of}, {count})")


DOUBLES, INTEGERS, TRUTHS = (Lanes(of, WIDTH) for of in (types.float64, types.int64, types.boolean))
# Numbers of 32 bits come in four times as many lanes, two registers full: each waits less for the other's results.
SINGLES, WORDS, CHOICES = (Lanes(of, 4 * WIDTH) for of in (types.float32, types.int32, types.boolean))
_ELEMENT = {
    types.float64: ir.DoubleType(),
    types.float32: ir.FloatType(),
    types.int64: ir.IntType(64),
    types.int32: _INT32,
    types.boolean: ir.IntType(1),
}
_VECTOR = {
    kind: ir.VectorType(_ELEMENT[kind.of], kind.count) for kind in (DOUBLES, INTEGERS, TRUTHS, SINGLES, WORDS, CHOICES)
}
_ANSWER = {DOUBLES: TRUTHS, INTEGERS: TRUTHS, SINGLES: CHOICES, WORDS: CHOICES}  # of a comparison
_FLOATS, _WHOLE = (DOUBLES, SINGLES), (INTEGERS, WORDS)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        super().__init__(dmm, fe_type, _VECTOR[fe_type])


def _indices(values: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT32, len(values)), list(values))


def _spread(builder: Any, value: Any, count: int = WIDTH) -> Any:
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, count), ir.Undefined), value, _INT32(0))
    return builder.shuffle_vector(one, one, _indices([0] * count))


def _all_lanes(builder: Any, kind: Lanes, sig: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The arguments as lanes."""
    pairs = zip(sig, args, strict=True)
    return [value if isinstance(of, Lanes) else _spread(builder, value, kind.count) for of, value in pairs]


# Operators


def _kind(args: Sequence[Any]) -> Lanes | None:
    """The kind of the lanes among the arguments, if it is one."""
    kinds = {a for a in args if isinstance(a, Lanes)}
    return kinds.pop() if len(kinds) == 1 else None


def _operator(function: Code, codes: dict[Lanes, tuple[Lanes, Code]]) -> None:
    """Let an operator take lanes on both sides, or a number on one; ``codes`` are the result and code of each kind."""

    @infer_global(function)
    class _Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            kind = _kind(args)
            if kind not in codes:
                return None
            return signature(codes[kind][0], *(a if isinstance(a, Lanes) else kind.of for a in args))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = _kind(sig.args)
        assert kind is not None
        return codes[kind][1](builder, *_all_lanes(builder, kind, sig.args, args))

    for pattern in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *pattern)(lower)


def _method(name: str, *first: Any) -> Code:
    return lambda builder, *args: getattr(builder, name)(*first, *args)


for _function, _name in ((operator.add, "add"), (operator.sub, "sub"), (operator.mul, "mul")):
    _operator(
        _function,
        {
            **{kind: (kind, _method("f" + _name)) for kind in _FLOATS},
            **{kind: (kind, _method(_name)) for kind in _WHOLE},
        },
    )
_operator(operator.truediv, {kind: (kind, _method("fdiv")) for kind in _FLOATS})
_operator(operator.and_, {kind: (kind, _method("and_")) for kind in (*_WHOLE, TRUTHS, CHOICES)})
_operator(operator.or_, {kind: (kind, _method("or_")) for kind in (*_WHOLE, TRUTHS, CHOICES)})
_operator(operator.lshift, {kind: (kind, _method("shl")) for kind in _WHOLE})
_operator(operator.rshift, {kind: (kind, _method("ashr")) for kind in _WHOLE})
for _function, _name in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
):
    # Ordered: NaN compares false with everything.
    _operator(
        _function,
        {
            **{kind: (_ANSWER[kind], _method("fcmp_ordered", _name)) for kind in _FLOATS},
            **{kind: (_ANSWER[kind], _method("icmp_signed", _name)) for kind in _WHOLE},
        },
    )


# Functions


def _conversion(name: str, doc: str, results: dict[Lanes, tuple[Lanes, str]]) -> Any:
    def typer(typingctx: Any, a: Any) -> Any:
        if a not in results:
            return None
        kind, method = results[a]
        return kind(a), lambda context, builder, sig, args: getattr(builder, method)(args[0], _VECTOR[kind])

    typer.__name__, typer.__doc__ = name, doc
    return intrinsic(typer)


bits = _conversion(
    "bits", "The bits of floats.", {DOUBLES: (INTEGERS, "bitcast"), SINGLES: (WORDS, "bitcast")}
)  # fmt: skip
from_bits = _conversion(
    "from_bits", "Floats of these bits.", {INTEGERS: (DOUBLES, "bitcast"), WORDS: (SINGLES, "bitcast")}
)
double = _conversion("double", "The same in float64.", {INTEGERS: (DOUBLES, "sitofp")})
integer = _conversion("integer", "The integer part.", {DOUBLES: (INTEGERS, "fptosi")})


@intrinsic
def singles(typingctx: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The nearest float32 of four lanes of float64, side by side."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        half = ir.VectorType(ir.FloatType(), WIDTH)
        return _joined(builder, [builder.fptrunc(value, half) for value in args])

    return (SINGLES(a, b, c, d), code) if {a, b, c, d} == {DOUBLES} else None


@intrinsic
def integers(typingctx: Any, a: Any) -> Any:
    """The integer parts of numbers below 2^31, four lanes of them."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = builder.fptosi(args[0], _VECTOR[WORDS])
        quarters = (_indices(range(start, start + WIDTH)) for start in range(0, 4 * WIDTH, WIDTH))
        parts = [builder.sext(builder.shuffle_vector(words, words, part), _VECTOR[INTEGERS]) for part in quarters]
        return context.make_tuple(builder, sig.return_type, parts)

    return (types.UniTuple(INTEGERS, 4)(a), code) if a == SINGLES else None


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a b + c``, rounded once; of lanes, or of three float64.

    One instruction where the processor has it. Where not, the compiler calls the C library's: as exact, and slow.
    """
    kind = _kind((a, b, c))
    if kind is None:
        result, name = types.float64, "llvm.fma.f64"
    elif kind in _FLOATS:
        result, name = kind, f"llvm.fma.v{kind.count}f{kind.of.bitwidth}"
    else:
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        values = args if kind is None else _all_lanes(builder, kind, sig.args, args)
        of = values[0].type
        fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(of, [of] * 3), name)
        return builder.call(fused, values)

    number = types.float64 if kind is None else kind.of
    return result(*(v if isinstance(v, Lanes) else number for v in (a, b, c))), code


@intrinsic
def spread(typingctx: Any, value: Any) -> Any:
    """One float64 in all lanes."""
    return DOUBLES(types.float64), lambda context, builder, sig, args: _spread(builder, args[0])


@intrinsic
def first(typingctx: Any, a: Any) -> Any:
    """The number in the first lane."""
    if not isinstance(a, Lanes):
        return None
    return a.of(a), lambda context, builder, sig, args: builder.extract_element(args[0], _INT32(0))


@intrinsic
def where(typingctx: Any, truth: Any, a: Any, b: Any) -> Any:
    """A where true, else b."""
    kind = _kind((a, b))

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(args[0], *_all_lanes(builder, sig.return_type, sig.args[1:], args[1:]))

    if kind is None or truth != _ANSWER[kind]:
        return None
    return kind(truth, *(v if isinstance(v, Lanes) else kind.of for v in (a, b))), code


@intrinsic
def mask(typingctx: Any, truth: Any) -> Any:
    """Truths as the low bits of an integer, the first lane lowest."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], ir.IntType(WIDTH)), ir.IntType(64))

    return (types.int64(truth), code) if truth == TRUTHS else None


def _bit_count(name: str, doc: str, *last: Any) -> Any:
    def typer(typingctx: Any, truths: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            of = args[0].type
            kind = ir.FunctionType(of, [of, *(value.type for value in last)])
            count = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.i64")
            return builder.call(count, [args[0], *last])

        return (types.int64(truths), code) if truths == types.int64 else None

    typer.__name__, typer.__doc__ = name, doc
    return intrinsic(typer)


bits_set = _bit_count("ctpop", "How many bits of an integer are set.")
lowest = _bit_count("cttz", "Which bit of an integer is the first that is set; 64 if none is.", ir.IntType(1)(0))


# Memory. Places count elements from a pointer on; none is checked.
#
# Pointers, because compiled code counts the references of an array at every call of a function that takes one. The
# arrays themselves must be kept until the last use of their pointers.


@intrinsic
def pointer(typingctx: Any, array: Any) -> Any:
    """To the first entry of an array; where the others are, its strides say."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), code


@intrinsic
def keep(typingctx: Any, arrays: Any) -> Any:
    """Do nothing; the arrays of a tuple are used, and so they are still there."""
    return types.void(arrays), lambda context, builder, sig, args: context.get_dummy_value()


def _size(of: Any) -> int:
    """Bytes of what a pointer points to."""
    return int(of.dtype.bitwidth) // 8


@intrinsic
def load(typingctx: Any, data: Any, k: Any) -> Any:
    """WIDTH neighbours from place k on; float32 becomes float64."""
    kind = {types.float64: DOUBLES, types.float32: DOUBLES, types.int64: INTEGERS}.get(data.dtype)

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        vector = ir.VectorType(place.type.pointee, WIDTH)
        value = builder.load(builder.bitcast(place, vector.as_pointer()), align=_size(sig.args[0]))
        return builder.fpext(value, _VECTOR[DOUBLES]) if sig.args[0].dtype == types.float32 else value

    return None if kind is None else (kind(data, types.intp), code)


@intrinsic
def store(typingctx: Any, data: Any, k: Any, value: Any) -> Any:
    """Put lanes at place k and after."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        builder.store(args[2], builder.bitcast(place, args[2].type.as_pointer()), align=_size(sig.args[0]))
        return context.get_dummy_value()

    if not isinstance(value, Lanes) or value.of != data.dtype:
        return None
    return types.void(data, types.intp, value), code


@intrinsic
def pick(typingctx: Any, data: Any, places: Any) -> Any:
    """The numbers at eight places."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        found = ir.Constant(_VECTOR[DOUBLES], ir.Undefined)
        for lane in map(_INT32, range(WIDTH)):
            value = builder.load(builder.gep(args[0], [builder.extract_element(args[1], lane)]))
            found = builder.insert_element(found, value, lane)
        return found

    return (DOUBLES(data, places), code) if places == INTEGERS and data.dtype == types.float64 else None


def _places(builder: Any, data: Any, k: Any, stride: Any) -> list[Any]:
    """Pointers to k, k + stride, ..., k + 7 stride: sums of two pointers and three multiples, to save registers."""

    def moved(place: Any, count: int) -> Any:
        return builder.gep(place, [builder.mul(stride, ir.Constant(stride.type, count))]) if count else place

    start = builder.gep(data, [k])
    return [moved(base, count) for base in (start, moved(start, 4)) for count in range(4)]


@intrinsic
def prefetch(typingctx: Any, data: Any, k: Any) -> Any:
    """Ask for the ASKED entries from place k on; no harm is done if they do not exist."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        start = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        for line in range(0, ASKED * _size(sig.args[0]), 64):
            place = builder.gep(start, [ir.Constant(ir.IntType(64), line)])
            # To be read, data, into the second cache. The first can wait for some twenty lines at a time: too few to
            # keep the memory busy, and those that are asked for hold up those that are read.
            builder.call(fetch, [place, _INT32(0), _INT32(2), _INT32(1)])
        return context.get_dummy_value()

    return types.void(data, types.intp), code


# Transposition


def _joined(builder: Any, vectors: list[Any]) -> Any:
    """One vector of several, the first first."""
    while len(vectors) > 1:
        both = _indices(range(2 * vectors[0].type.count))
        vectors = [builder.shuffle_vector(a, b, both) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns, of WIDTH entries each, of WIDTH rows of 1, 2 or 4 entries."""
    count = rows[0].type.count
    block = [_joined(builder, rows[r::count]) for r in range(count)]  # squares of count rows, side by side
    step = 1
    while step < count:
        # In squares of 2 step entries, exchange the quarters beside the diagonal.
        keep = _indices([WIDTH + (e ^ step) if e & step else e for e in range(WIDTH)])
        swap = _indices([WIDTH + e if e & step else e | step for e in range(WIDTH)])
        for r in range(count):
            if not r & step:
                a, b = block[r], block[r | step]
                block[r], block[r | step] = builder.shuffle_vector(a, b, keep), builder.shuffle_vector(a, b, swap)
        step *= 2
    return block


def _columns(count: int) -> Any:
    def columns(typingctx: Any, data: Any, k: Any, stride: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            vector = ir.VectorType(args[0].type.pointee, count).as_pointer()
            size = _size(sig.args[0])
            places = _places(builder, *args)
            found = _transposed(builder, [builder.load(builder.bitcast(p, vector), align=size) for p in places])
            if sig.args[0].dtype == types.float32:
                found = [builder.fpext(column, _VECTOR[DOUBLES]) for column in found]
            return context.make_tuple(builder, sig.return_type, found)

        return types.UniTuple(DOUBLES, count)(data, types.intp, types.intp), code

    columns.__doc__ = f"{count} neighbouring columns of WIDTH rows, whose first entries stand at k, k + stride, ..."
    columns.__name__ = f"columns{count}"
    return intrinsic(columns)


# Four at a time take two thirds of the shuffles of eight: rows are joined while they are loaded.
columns4, columns2, columns1 = map(_columns, (4, 2, 1))
