"""``numpy``: what moves elements: shapes, axes, joining, splitting, repeating, padding, inserting."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import NUMBERS, Inputs

MOVES = ("call", "jit", "vjp", "vmap")  # what moves elements moves tangents too
STACKS = ("stack", "hstack", "vstack", "dstack", "column_stack", "concatenate", "concat", "block")
SPLITS = ("split", "array_split", "hsplit", "vsplit", "dsplit")
PADS = ("edge", "wrap", "reflect", "symmetric", "maximum", "minimum", "mean", "median", "linear_ramp", "empty")


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random, 1)


def _cases(inputs: Inputs) -> Iterator[Case]:
    yield from _of_one(inputs)
    yield from _shaped(inputs)
    yield from _axes(inputs)
    yield from _stacks(inputs)
    yield from _splits(inputs)
    yield from _repeats(inputs)
    yield from _pads(inputs)
    yield from _broadcasts(inputs)
    yield from _inserts(inputs)
    yield from _functions(inputs)
    yield from _methods(inputs)


def _of_one(inputs: Inputs) -> Iterator[Case]:
    names = ("ravel", "transpose", "squeeze", "flip", "flipud", "fliplr", "rot90", "matrix_transpose", "unstack")
    for name in (*names, "atleast_1d", "atleast_2d", "atleast_3d", "copy", "shape", "size", "ndim"):
        for dtype in NUMBERS:
            yield Case(f"numpy.{name}", (inputs.array(dtypes=dtype),), modes=MOVES)
        for x in (Weak(0.5), 2, [1, 2], [[0.5, 1.0]], inputs.array((2, 3), "float32")):
            yield Case(f"numpy.{name}", (x,))
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        yield Case(f"numpy.{name}", (inputs.array((), "int8"), inputs.array((3,), "float32"), 2))
        yield Case(f"numpy.{name}", ())


def _shaped(inputs: Inputs) -> Iterator[Case]:
    x = inputs.array((2, 3, 4), "float32")
    for shape in ((6, 4), -1, (4, -1), (2, 1, 3, 1, 4), 24, (-1, 0), (5, 5), (2, -1, -1), [3, 8]):
        for order in ("C", "F"):
            yield Case("numpy.reshape", (x, shape, order), modes=MOVES)
    yield Case("numpy.reshape", (x,), {"shape": (4, 6), "copy": True})
    yield Case("numpy.reshape", (x, (4, 6), "A"))
    for dtype in NUMBERS:
        yield Case("numpy.reshape", (inputs.array((2, 3), dtype), inputs.choice(((3, 2), -1, (1, 6)))), modes=MOVES)
        shape = inputs.choice(((4,), (2, 2), (3, 5), (0,), 7, ()))
        yield Case("numpy.resize", (inputs.array(dtypes=dtype), shape), modes=MOVES)
    for y, shape in (
        (inputs.array((0,), "float32"), (0, 3)),
        (inputs.array((0,), "float32"), (-1, 3)),
        (Weak(2), (1, 1)),
        (Weak(0.5), -1),
    ):
        yield Case("numpy.reshape", (y, shape))
        yield Case("numpy.resize", (y, (2, 2)))
    for order in ("C", "F", "A", "K"):
        yield Case("numpy.ravel", (x, order))
    for axis in (0, -1, 1, (0, -1), (0, 2), 5, (), [0], None):
        yield Case("numpy.squeeze", (inputs.array((1, 3, 1), NUMBERS), axis), modes=MOVES)
        yield Case("numpy.expand_dims", (inputs.array((2, 3), NUMBERS), axis), modes=MOVES)
        yield Case("numpy.size", (x, axis))
    for y in (Weak(0.5), inputs.array((), "int8")):
        yield Case("numpy.expand_dims", (y, 0))
        yield Case("numpy.expand_dims", (y, (0, 1)))


def _axes(inputs: Inputs) -> Iterator[Case]:
    x = inputs.array((2, 3, 4), "float32")
    for axes in ((0, 1, 2), (2, 0, 1), (-1, 0, 1), (0, 0, 1), (1, 0), None, [1, 0, 2]):
        for name in ("transpose", "permute_dims"):
            yield Case(f"numpy.{name}", (x, axes), modes=MOVES)
    for a, b in ((0, 1), (0, -1), (-3, 2), ((0, 1), (-1, -2)), ((0,), (2,)), (0, 3), ((0, 1), (0,)), ((0, 0), (1, 2))):
        yield Case("numpy.moveaxis", (x, a, b), modes=MOVES)
        if isinstance(a, int):
            yield Case("numpy.swapaxes", (x, a, b), modes=MOVES)
            yield Case("numpy.rollaxis", (x, a, b), modes=MOVES)
    yield Case("numpy.rollaxis", (x, 2))
    yield Case("numpy.rollaxis", (x, -1, -2))
    for axis in (None, 0, -1, (0, 2), (), 3, (1, 1)):
        yield Case("numpy.flip", (x, axis), modes=MOVES)
        shift = (1, -2) if isinstance(axis, tuple) else 2
        yield Case("numpy.roll", (x, shift, axis), modes=MOVES)
        yield Case("numpy.roll", (x, -1), {"axis": axis}, modes=MOVES)
        yield Case("numpy.unstack", (x,), {"axis": axis}, modes=MOVES)
    for dtype in NUMBERS:
        y = inputs.array(inputs.choice(((5,), (2, 3), (0,), ())), dtype)
        yield Case("numpy.roll", (y, inputs.choice((1, -1, 7, 0, np.asarray(2, "int32"), Weak(3)))), modes=MOVES)
    yield Case("numpy.roll", (x, np.asarray([1, 2], "int32"), (0, 1)))
    yield Case("numpy.roll", (x, (1, 2)))
    yield Case("numpy.roll", (Weak(2), 1))
    yield Case("numpy.roll", (x, 1.0))
    for k in (0, 1, 2, 3, -1, 5):
        yield Case("numpy.rot90", (x, k), modes=MOVES)
        yield Case("numpy.rot90", (x, k, inputs.choice(((0, 2), (-1, 0), (1, 2), (1, 1)))), modes=MOVES)


def _stacks(inputs: Inputs) -> Iterator[Case]:
    for name in STACKS:
        for dtype in NUMBERS:
            shape = inputs.choice(((), (3,), (2, 3), (0,), (1,), (2, 1, 3)))
            parts = [inputs.array(shape, dtype), inputs.array(shape)]
            modes = inputs.choice((("call", "jit", "jvp"), ("call", "vjp"), ("call", "vmap")))
            yield Case(f"numpy.{name}", (parts,), modes=modes)
        for parts in (
            [Weak(1), Weak(2.0)],
            [1, 2],
            [0.5, np.asarray(1, "int8")],
            [],
            inputs.array((2, 2, 3), "float32"),
            [[1, 2], [3, 4]],
            (inputs.array((2, 3), "int8"), inputs.array((2, 3), "uint8")),
            [inputs.array((2, 3), "float32"), inputs.array((4, 3), "float32")],
            [inputs.array((2,), "float32"), Weak(2.0)],
        ):
            yield Case(f"numpy.{name}", (parts,))
        if name in ("stack", "hstack", "vstack", "dstack", "concatenate"):
            x, y = inputs.array((2, 3), "float32"), inputs.array((2, 3), "int32")
            yield Case(f"numpy.{name}", ([x, y],), {"dtype": inputs.choice(("float16", "int32", "complex64"))})
        if name in ("stack", "concatenate", "concat"):
            for axis in (0, 1, -1, 2, -3, None):
                x, y = inputs.array((2, 3), "float32"), inputs.array((2, 3), "bfloat16")
                yield Case(f"numpy.{name}", ([x, y],), {"axis": axis})
    x = inputs.array((2, 2), "float32")
    yield Case("numpy.block", ([[x, x], [x, x]],))
    yield Case("numpy.block", ([[x, np.ones((2, 1), "int32")], [np.ones((1, 3), "int8")]],))
    yield Case("numpy.block", ([x, [x]],))
    yield Case("numpy.block", (x,))
    yield Case("numpy.block", ([[[x]], [[x]]],))
    for dtype in NUMBERS:
        shape = inputs.choice(((3,), (2, 3), ()))
        axis = inputs.choice((None, 0, -1)) if shape else None
        yield Case("numpy.append", (inputs.array(shape, dtype), inputs.array(shape)), {"axis": axis}, modes=MOVES)
    yield Case("numpy.append", (x, 2.0))
    yield Case("numpy.append", ([1, 2], [[0.5]]))


def _splits(inputs: Inputs) -> Iterator[Case]:
    for name in SPLITS:
        for dtype in ("float32", "int8", "bool", "complex64"):
            for sections in (2, 1, [1, 3], (1,), np.asarray([1, 2]), 3, [3, 1], [-1], [9]):
                x = inputs.array(inputs.choice(((4, 6, 2), (6, 4, 4))), dtype)
                args = (x, sections, inputs.choice((0, 1, -1))) if name in SPLITS[:2] else (x, sections)
                yield Case(f"numpy.{name}", args, modes=inputs.choice((("call", "jit", "vjp"), ("call", "vmap"))))
        for sections in (2, [1], 2.0, 2.5, 0, []):
            yield Case(f"numpy.{name}", (inputs.array((4,), "float32"), sections), modes=("call",))
        yield Case(f"numpy.{name}", (np.zeros((0, 2), "float32"), 2))
        yield Case(f"numpy.{name}", ([1, 2, 3, 4], 2))


def _repeats(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(dtypes=dtype)
        yield Case("numpy.tile", (x, inputs.choice((2, (2, 2), (1, 2, 1), 0, (), (2, 0)))), modes=MOVES)
        axis = inputs.choice((None, inputs.axis(x.ndim))) if x.ndim else None
        yield Case("numpy.repeat", (x, inputs.choice((2, 0, 1, 3))), {"axis": axis}, modes=MOVES)
    x = inputs.array((3, 2), "float32")
    for repeats in (np.asarray([1, 0, 2]), [1, 2, 0], np.asarray([2]), (2,)):
        yield Case("numpy.repeat", (x, repeats), {"axis": 0}, modes=("call",))
    for length in (2, 4, 7):
        yield Case("numpy.repeat", (x, np.asarray([1, 0, 2])), {"axis": 0, "total_repeat_length": length})
        yield Case("numpy.repeat", (x, 2), {"axis": 0, "total_repeat_length": length})
    for y in (Weak(2), 0.5, [1, 2]):
        yield Case("numpy.repeat", (y, 3))
        yield Case("numpy.tile", (y, (2, 1)))
    yield Case("numpy.tile", (x, np.asarray([2, 1])), modes=("call",))
    yield Case("numpy.repeat", (x, -1))
    yield Case("numpy.repeat", (x, np.asarray([1, 2])), modes=("call",))


def _pads(inputs: Inputs) -> Iterator[Case]:
    widths: tuple[Any, ...] = (1, (2, 1), ((1, 2), (0, 3)), ((2, 2),), 0, (1,), {0: 2, -1: (1, 0)})
    for mode in ("constant", *PADS):
        for dtype in ("float32", "int32", "bool", "bfloat16", "complex64", "uint8"):
            x = inputs.array(inputs.choice(((2, 3), (4, 2), (1, 3))), dtype)
            yield Case("numpy.pad", (x, inputs.choice(widths), mode), modes=("call", "jit", "vjp"))
        x = inputs.array((3,), "float32")
        for width in (1, (0, 7), (5, 2)):
            yield Case("numpy.pad", (x, width, mode))
        yield Case("numpy.pad", (np.zeros((0, 2), "float32"), 1, mode), modes=("call",))
        yield Case("numpy.pad", (inputs.array((2, 2), "int8"), ((0, 0), (2, 3)), mode))
        yield Case("numpy.pad", (Weak(2), 1, mode))
        yield Case("numpy.pad", (x, -1, mode), modes=("call",))
    x = inputs.array((3, 4), "float32")
    for mode in ("reflect", "symmetric"):
        for kind in ("odd", "even"):
            for width in (1, 3, (6, 2)):
                yield Case("numpy.pad", (x, width, mode), {"reflect_type": kind}, modes=MOVES)
    for mode in ("maximum", "minimum", "mean", "median"):
        for length in (1, 2, (2, 3), ((1, 2), (3, 1)), None):
            yield Case("numpy.pad", (inputs.choice((x, x.astype("int32"))), 2, mode), {"stat_length": length})
    for values in (2, (1, 2), ((1, 2), (3, 4)), 0.5, np.asarray(3.0, "float32")):
        yield Case("numpy.pad", (x, 1), {"constant_values": values})
        yield Case("numpy.pad", (x.astype("int32"), (1, 2), "constant"), {"constant_values": values})
        yield Case("numpy.pad", (inputs.choice((x, x.astype("int16"))), (3, 2), "linear_ramp"), {"end_values": values})
    yield Case("numpy.pad", (x, 1, "unknown"), modes=("call",))
    yield Case("numpy.pad", (x, 1, "edge"), {"constant_values": 1}, modes=("call",))
    yield Case("numpy.pad", (x, ((1, 1), (1, 1), (1, 1))), modes=("call",))
    yield Case("numpy.pad", (x, 1.5), modes=("call",))
    yield Case("numpy.pad", (x, 2), make=_padded_by_a_function)


def _padded_by_a_function(lib: ModuleType) -> Callable[..., Any]:
    def fill(row: Any, width: Any, axis: int, kwargs: Any) -> Any:
        row = row.at[: width[0]].set(7)
        return row.at[row.shape[0] - width[1] :].set(axis)

    return lambda x, width: lib.numpy.pad(x, width, fill)


def _broadcasts(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(inputs.choice(((3,), (1, 3), (), (2, 1))), dtype)
        yield Case("numpy.broadcast_to", (x, inputs.choice(((2, 3), (4, 2, 3), (2, 0), (3,)))), modes=MOVES)
        arrays = [inputs.array(shape) for shape in inputs.broadcastable(3)]
        yield Case("numpy.broadcast_arrays", tuple(arrays), modes=MOVES)
    yield Case("numpy.broadcast_to", (Weak(2.0), (2, 2)))
    yield Case("numpy.broadcast_to", (inputs.array((3,), "int8"), 3))
    yield Case("numpy.broadcast_arrays", (Weak(1), inputs.array((2,), "int8"), 0.5))
    yield Case("numpy.broadcast_arrays", ())
    for shapes in (((2, 1), (3,)), ((), (0,)), ((2,), (3,)), (3, (2, 1)), (), ((1, 0), (4, 1)), ((-1,), (1,))):
        yield Case("numpy.broadcast_shapes", shapes, modes=("call",))


def _inserts(inputs: Inputs) -> Iterator[Case]:
    at = (0, 1, -1, slice(0, 2), [0, 2], np.asarray([1, -1]), 9, slice(None, None, 2), [], slice(2, 0, -1))
    for index in at:
        for axis in (None, 0, 1):
            x = inputs.array((3, 4), inputs.choice(NUMBERS))
            yield Case("numpy.delete", (x, index, axis), modes=("call",))
            yield Case("numpy.insert", (x, index, inputs.choice((5, 0.5, [7])), axis), modes=("call",))
    x = inputs.array((4,), "float32")
    make = _with_index
    for index in (1, [0, 2], slice(1, 3), -4):
        yield Case("numpy.delete", (x,), {"obj": index}, make=make("delete"))
        yield Case("numpy.insert", (x,), {"obj": index, "values": 3.0}, make=make("insert"))
    yield Case("numpy.delete", (x, np.asarray([True, False, True, False])), modes=("call",))
    yield Case("numpy.delete", (x, np.asarray([1, 3])), {"assume_unique_indices": True})
    yield Case("numpy.insert", (x, [1, 1, 0], [1.0, 2.0, 3.0]), modes=("call",))
    yield Case("numpy.insert", (x, np.asarray([3, 0], "int32"), np.asarray([1.0, 2.0], "float32")))
    yield Case("numpy.insert", (inputs.array((2, 3), "int32"), 1, inputs.array((2,), "float32"), 1))
    for dtype in NUMBERS:
        y = np.concatenate([np.zeros(2), [1, 0, 2], np.zeros(1)]).astype(inputs.array((), dtype).dtype)
        yield Case("numpy.trim_zeros", (y, inputs.choice(("fb", "f", "b", "F"))), modes=("call",))
    for y in ([0, 0], [], [[0, 0, 0], [0, 1, 0], [0, 2, 0]]):
        yield Case("numpy.trim_zeros", (np.asarray(y, "float32"),), modes=("call",))
        yield Case(
            "numpy.trim_zeros", (np.asarray(y, "float32"),), {"axis": inputs.choice((0, -1, 1))}, modes=("call",)
        )
        yield Case("numpy.trim_zeros", (y,), modes=("call",))


def _with_index(name: str) -> Callable[[ModuleType], Callable[..., Any]]:
    return lambda lib: lambda x, **kwargs: getattr(lib.numpy, name)(x, **kwargs)


def _functions(inputs: Inputs) -> Iterator[Case]:
    def along(lib: ModuleType) -> Any:
        return lambda axis, x: lib.numpy.apply_along_axis(
            lambda row, k: lib.numpy.stack([row.sum(), row[0] * k]), axis, x, 2
        )

    def scalar(lib: ModuleType) -> Any:
        return lambda axis, x: lib.numpy.apply_along_axis(lib.numpy.max, axis, x)

    def over(lib: ModuleType) -> Any:
        return lambda x, axes: lib.numpy.apply_over_axes(lib.numpy.sum, x, axes)

    x = inputs.array((2, 3, 4), "float32")
    for axis in (0, 1, -1, 3):
        yield Case("numpy.apply_along_axis", (axis, x), make=along)
        yield Case("numpy.apply_along_axis", (axis, inputs.array((2, 3), ("int8", "bfloat16"))), make=scalar)
    for axes in (0, (0, 2), [1], -1, ()):
        yield Case("numpy.apply_over_axes", (x, axes), make=over)
    y = inputs.array((3,), "float32")
    for signature in (None, "(n),(n)->()", "(n),(m)->(n,m)", "(n),(3)->(n)", "(n),(n)->(),(n)", "n,n->()"):
        function = {None: "add", "(n),(n)->()": "dot", "(n),(m)->(n,m)": "outer", "(n),(3)->(n)": "multiply"}
        for other in (y, inputs.array((2, 3), "float32"), inputs.array((2, 1, 3), "int32"), Weak(2.0), x):
            yield Case("numpy.vectorize", (y, other), make=_vectorized(function.get(signature, "pair"), signature))
    yield Case("numpy.vectorize", (y, 2), make=_excluded)
    yield Case("numpy.vectorize", (x, 0.5), make=_excluded)


def _vectorized(name: str, signature: str | None) -> Callable[[ModuleType], Callable[..., Any]]:
    def make(lib: ModuleType) -> Any:
        function = getattr(lib.numpy, name) if name != "pair" else lambda a, b: (lib.numpy.dot(a, b), a)
        return lib.numpy.vectorize(function, signature=signature)

    return make


def _excluded(lib: ModuleType) -> Callable[..., Any]:
    return lib.numpy.vectorize(lambda a, b: a * b, excluded=(1,))


def _methods(inputs: Inputs) -> Iterator[Case]:
    def method(name: str, *args: Any, **kwargs: Any) -> Any:
        return lambda lib: lambda x: getattr(x, name)(*args, **kwargs)

    for dtype in ("float32", "int8", "bool", "complex64"):
        x = inputs.array((2, 3, 2), dtype)
        for name, args in (
            *(("reshape", (3, 4)), ("reshape", ((4, -1),)), ("transpose", ()), ("transpose", (2, 0, 1))),
            *(("transpose", ((1, 0, 2),)), ("ravel", ()), ("flatten", ()), ("swapaxes", (0, -1)), ("squeeze", ())),
            *(("repeat", (2, 1)), ("tolist", ()), ("copy", ()), ("diagonal", (0, 0, 2))),
        ):
            yield Case(f"Array.{name}", (x,), make=method(name, *args), modes=MOVES[:3])
        for name in ("T", "mT", "shape", "size", "ndim", "itemsize", "nbytes"):
            yield Case(
                f"Array.{name}", (x,), make=lambda lib, name=name: operator.attrgetter(name), modes=("call", "jit")
            )
        yield Case("Array.reshape", (x,), make=method("reshape", 2, 6, order="F"))
