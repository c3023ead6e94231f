"""``numpy``: products, contractions, convolutions, polynomials, differences and integrals."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import NUMBERS, Inputs

# Name -> pairs of shapes.
SHAPES: dict[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = {
    "dot": (
        ((3,), (3,)),
        ((2, 3), (3, 4)),
        ((2, 3), (3,)),
        ((), (3,)),
        ((2, 2, 3), (4, 3, 2)),
        ((0,), (0,)),
        ((2,), (3,)),
    ),
    "matmul": (
        ((3,), (3,)),
        ((2, 3), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((2, 1, 2, 3), (4, 3, 2)),
        ((2, 0), (0, 3)),
        ((), (3,)),
    ),
    "vecdot": (((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (4, 3)), ((0,), (0,)), ((2,), (3,))),
    "matvec": (((2, 3), (3,)), ((4, 2, 3), (3,)), ((2, 3), (4, 3)), ((3,), (3,))),
    "vecmat": (((2,), (2, 3)), ((4, 2), (2, 3)), ((2,), (4, 2, 3)), ((3,), (3,))),
    "inner": (((3,), (3,)), ((2, 3), (4, 3)), ((), (2, 3)), ((2, 2, 3), (3,)), ((0,), (0,)), ((2,), (3,))),
    "outer": (((3,), (2,)), ((2, 2), (3,)), ((), (3,)), ((0,), (2,))),
    "vdot": (((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (3, 2)), ((), ()), ((2,), (3,))),
    "kron": (((3,), (2,)), ((2, 2), (3, 1)), ((2,), (2, 2)), ((), (3,)), ((0,), (2,)), ((2, 1, 2), (2, 2))),
    "tensordot": (((2, 3), (2, 3)), ((4, 2, 3), (2, 3, 2)), ((2, 3), (3, 2)), ((2, 2), (2, 2))),
    "cross": (
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((2,), (2,)),
        ((4, 2), (4, 3)),
        ((2, 1, 3), (4, 3)),
        ((0, 3), (3,)),
        ((4,), (4,)),
    ),
    "convolve": (((5,), (3,)), ((3,), (5,)), ((1,), (1,)), ((4,), (4,)), ((0,), (2,)), ((2, 2), (2,))),
    "correlate": (((5,), (3,)), ((3,), (5,)), ((1,), (1,)), ((4,), (4,)), ((0,), (2,))),
    "polyadd": (((3,), (2,)), ((2,), (4,)), ((3,), (3,)), ((), (3,)), ((1,), (1,))),
    "polysub": (((3,), (2,)), ((2,), (4,)), ((3,), (3,)), ((), (3,)), ((1,), (1,))),
    "polymul": (((3,), (2,)), ((2,), (4,)), ((3,), (3,)), ((), (3,)), ((1,), (1,))),
    "polyval": (((3,), (2, 3)), ((1,), ()), ((4,), (3,)), ((0,), (3,)), ((2, 2), (3,)), ((3, 2), (2,)), ((), (2,))),
}
PRECISE = ("dot", "matmul", "vecdot", "inner", "vdot", "tensordot", "convolve", "correlate")
EINSUMS = (
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("...ij,...jk->...ik", (2, 2, 3), (3, 2)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
    ("ij,jk,ki", (2, 3), (3, 2), (2, 2)),
    (" i j , j -> i ", (2, 3), (3,)),
    ("i...->...", (2, 3)),
    ("ij,kj->", (2, 3), (2, 3)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("ij,jk->ijk", (1, 3), (3, 2)),
    (",->", (), ()),
    ("i,->i", (3,), ()),
    ("ij,jk->iik", (2, 3), (3, 2)),
    ("ij,jk->ix", (2, 3), (3, 2)),
    ("ij,j", (2, 3), (2,)),
    ("iij,jk->ik", (2, 2, 3), (3, 2)),
)


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random, 1)


def _cases(inputs: Inputs) -> Iterator[Case]:
    for name, shapes in SHAPES.items():
        yield from _pairs(inputs, name, shapes)
    yield from _keywords(inputs)
    yield from _einsums(inputs)
    yield from _polynomials(inputs)
    yield from _differences(inputs)


def _pairs(inputs: Inputs, name: str, shapes: Any) -> Iterator[Case]:
    for first, second in shapes:
        dtype = inputs.choice(("float32", "complex64", "float32", "int32"))
        yield Case(f"numpy.{name}", (inputs.array(first, dtype), inputs.array(second, dtype)))
    for dtype in NUMBERS:
        first, second = shapes[int(inputs.random.integers(3))]
        yield Case(
            f"numpy.{name}", (inputs.array(first, dtype), inputs.array(second, dtype)), modes=("call", "jit", "jvp")
        )
        other = inputs.choice(NUMBERS)
        yield Case(f"numpy.{name}", (inputs.array(first, dtype), inputs.array(second, other)), modes=("call", "vjp"))
    first, second = shapes[0]
    yield Case(f"numpy.{name}", (inputs.array(first, "float32"), np.ones(second).tolist()))
    yield Case(f"numpy.{name}", (inputs.array(first, "int32"), Weak(0.5)))
    yield Case(f"numpy.{name}", (Weak(2), inputs.array(second, "float32")))
    yield Case(f"numpy.{name}", (Weak(2), Weak(0.5)))
    odd = inputs.array(first, "float32", odd=0.4)
    yield Case(f"numpy.{name}", (odd, inputs.array(second, "float32", odd=0.2)), modes=("call", "jit"))


def _keywords(inputs: Inputs) -> Iterator[Case]:
    for name in PRECISE:
        first, second = SHAPES[name][1 if name in ("dot", "matmul", "tensordot") else 0]
        for dtype in ("float32", "int8", "bfloat16", "bool"):
            x, y = inputs.array(first, dtype), inputs.array(second, dtype)
            given = {"axes": 1} if name == "tensordot" and first[-1] == second[0] else {}
            for out in ("float32", "int32", "bfloat16", "complex64"):
                modes = ("call", "jit", "jvp")
                yield Case(f"numpy.{name}", (x, y), {"preferred_element_type": out, **given}, modes=modes)
            yield Case(f"numpy.{name}", (x, y), {"precision": inputs.choice(("highest", "default", "high")), **given})
    for axes in (0, 1, 2, ((0,), (0,)), ([0, 1], [1, 0]), (-1, 0), ((0, 1), (0,)), 3, (1, 1), ((-1, 0), (0, 1))):
        x, y = inputs.array((2, 2, 3), NUMBERS), inputs.array((2, 3, 2), NUMBERS)
        yield Case("numpy.tensordot", (x, y, axes))
        yield Case("numpy.tensordot", (x[0, :, :2], y[0, :2]), {"axes": axes})
    for mode in ("full", "same", "valid", "other"):
        for shapes in SHAPES["convolve"]:
            for name in ("convolve", "correlate"):
                x, y = (inputs.array(shape, inputs.choice(NUMBERS)) for shape in shapes)
                yield Case(f"numpy.{name}", (x, y, mode))
        for name in ("convolve", "correlate"):
            yield Case(
                f"numpy.{name}", (inputs.array((5,), "complex64"), inputs.array((2,), "complex64")), {"mode": mode}
            )
            yield Case(
                f"numpy.{name}", (inputs.array((2,), "complex64"), inputs.array((6,), "complex64")), {"mode": mode}
            )
    for a, b, given in (
        ((3, 2), (3, 2), {"axis": 0}),
        ((3, 2), (2, 3), {"axisa": 0}),
        ((2, 3), (2, 3), {"axisc": 0}),
        ((3, 4), (4, 3), {"axisa": 0, "axisb": 1, "axisc": 0}),
        ((2, 4), (3, 4), {"axis": 0}),
        ((2, 4), (2, 4), {"axis": 0}),
        ((3, 4), (3, 4), {"axis": -2}),
    ):
        yield Case("numpy.cross", (inputs.array(a, "float32"), inputs.array(b, ("float32", "int32"))), given)
    for axis in (0, -2, 1, 3):
        yield Case("numpy.vecdot", (inputs.array((3, 2), NUMBERS), inputs.array((3, 2), NUMBERS)), {"axis": axis})


def _einsums(inputs: Inputs) -> Iterator[Case]:
    for subscripts, *shapes in EINSUMS:
        for dtype in ("float32", inputs.choice(NUMBERS)):
            arrays = [inputs.array(shape, inputs.choice((dtype, dtype, "int32"))) for shape in shapes]
            yield Case("numpy.einsum", (subscripts, *arrays))
        yield Case("numpy.einsum_path", (subscripts, *arrays), modes=("call",))
    x, y = inputs.array((2, 3), "float32"), inputs.array((3, 2), "float32")
    yield Case("numpy.einsum", (x, [0, 1], y, [1, 2], [0, 2]))
    yield Case("numpy.einsum", (x, [0, 1], y, [1, 2]))
    yield Case("numpy.einsum", (x, [0, 1], [1, 0]))
    yield Case("numpy.einsum", (x, [..., 1], y, [1, 2], [..., 2]))
    yield Case("numpy.einsum_path", (x, [0, 1], y, [1, 2], [0, 2]), modes=("call",))
    for optimize in ("greedy", "optimal", True, False, "auto"):
        yield Case("numpy.einsum", ("ij,jk,kl", x, y, x), {"optimize": optimize})
        yield Case("numpy.einsum_path", ("ij,jk,kl", x, y, x), {"optimize": optimize}, modes=("call",))
    for out in ("float32", "bfloat16", "int32", "complex64"):
        for dtype in ("float32", "int8", "bfloat16"):
            a, b = x.astype("int32").astype(inputs.array((), dtype).dtype), inputs.array((3, 2), dtype)
            yield Case("numpy.einsum", ("ij,jk", a, b), {"preferred_element_type": out})
            yield Case("numpy.einsum", ("ij->i", a), {"preferred_element_type": out})
    yield Case("numpy.einsum", ("ij,jk", x, y), {"precision": "highest"})
    yield Case("numpy.einsum", ("i,->i", inputs.array((3,), "int32"), Weak(0.5)))
    yield Case("numpy.einsum", (",", Weak(2), Weak(0.5)))


def _polynomials(inputs: Inputs) -> Iterator[Case]:
    ill = {"tolerance": 30.0}  # roots, and what is divided by small leading coefficients
    for dtype in NUMBERS:
        p = inputs.array((4,), dtype, low=1, high=4)
        yield Case("numpy.polyder", (p, inputs.choice((0, 1, 2, 3, 5))))
        yield Case("numpy.polyint", (p, inputs.choice((0, 1, 2))), {"k": inputs.choice((None, 2, 0.5))})
        yield Case("numpy.polydiv", (p, inputs.array((2,), dtype, low=1, high=4)), **ill)
        yield Case("numpy.polydiv", (p, inputs.array((2,), inputs.choice(NUMBERS), low=1, high=4)), **ill)
        yield Case("numpy.polymul", (p, inputs.array((2,), dtype)), {"trim_leading_zeros": True}, modes=("call",))
        yield Case("numpy.vander", (inputs.array((3,), dtype),), {"N": inputs.choice((None, 2, 4, 0))})
        yield Case("numpy.vander", (inputs.array((3,), dtype), 3, True))
        yield Case("numpy.poly", (inputs.array((3,), dtype),), modes=("call", "jit"), **ill)
        x = np.arange(1, 7).astype("float32")
        y = inputs.array((6,), dtype)
        yield Case("numpy.polyfit", (x.astype(y.dtype) if y.dtype.kind != "b" else x, y, 2), **ill)
    for p in ([1.0, -6.0, 11.0, -6.0], [0.0, 1.0, -2.0], [1.0, 2.0, 0.0], [1.0], [0.0, 0.0], [2, -4], [1, 0, 1]):
        yield Case("numpy.roots", (np.asarray(p, "float32"),), make=_sorted_roots, modes=("call",), **ill)
        given = {"strip_zeros": False}
        yield Case("numpy.roots", (np.asarray(p, "float32"),), given, make=_sorted_roots, modes=("call", "jit"), **ill)
    yield Case("numpy.roots", ([1, -3, 2],), make=_sorted_roots, modes=("call",), **ill)
    for x in (
        inputs.array((2, 2), "float32"),
        inputs.array((), "float32"),
        np.zeros((0,), "float32"),
        [1, 2],
        Weak(2.0),
    ):
        yield Case("numpy.poly", (x,), modes=("call", "jit"), **ill)
        yield Case("numpy.vander", (x,))
        yield Case("numpy.polyder", (x,))
        yield Case("numpy.polyint", (x,))
    x, y = np.arange(1, 7).astype("float32"), inputs.array((6,), "float32")
    w = inputs.array((6,), "float32", low=0.5, high=2)
    for kwargs in (
        {"w": w},
        {"cov": True},
        {"cov": "unscaled"},
        {"full": True},
        {"rcond": 1e-3},
        {"w": w, "full": True},
    ):
        yield Case("numpy.polyfit", (x, y, 2), kwargs, modes=("call", "jit"), **ill)
    yield Case("numpy.polyfit", (x, np.stack([y, 2 * y], 1), 1), **ill)
    yield Case("numpy.polyfit", (x, y[:3], 1), modes=("call",))
    yield Case("numpy.polyfit", (x, y, -1), modes=("call",))
    for k in ([1, 2], np.asarray([1.0, 2.0], "float32"), 3):
        yield Case("numpy.polyint", (inputs.array((3,), "float32"), 2, k))
    yield Case("numpy.polyder", (y, -1), modes=("call",))
    for unroll in (1, 128):
        yield Case("numpy.polyval", (y, x), {"unroll": unroll})
    yield Case("numpy.polydiv", (y, w[:2]), {"trim_leading_zeros": True}, modes=("call",), **ill)
    yield Case("numpy.polydiv", (y[:2], w), **ill)


def _sorted_roots(lib: ModuleType) -> Any:
    return lambda p, **kwargs: lib.numpy.sort(lib.numpy.roots(p, **kwargs))


def _differences(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(inputs.choice(((4,), (3, 4), (2, 3, 2), (1,), (0,))), dtype)
        axis = inputs.axis(x.ndim)
        yield Case("numpy.diff", (x,), {"n": inputs.choice((0, 1, 2, 5)), "axis": axis})
        extra = {
            side: inputs.choice((1, 0.5, np.asarray(2, "int8"))) for side in ("prepend", "append") if inputs.chance(0.5)
        }
        yield Case("numpy.diff", (x,), extra)
        yield Case("numpy.ediff1d", (x,))
        ends = {
            side: inputs.choice((1, [1, 2], inputs.array((2,), dtype)))
            for side in ("to_begin", "to_end")
            if inputs.chance(0.6)
        }
        yield Case("numpy.ediff1d", (x,), ends)
        y = inputs.array(inputs.choice(((4,), (3, 4), (2, 2, 3))), dtype)
        yield Case("numpy.gradient", (y,))
        yield Case("numpy.gradient", (y, inputs.choice((2, 0.5, Weak(2.0)))), {"axis": inputs.axis(y.ndim)})
        axis = inputs.axis(y.ndim)
        yield Case("numpy.trapezoid", (y,), {"dx": inputs.choice((1, 0.5, Weak(2))), "axis": axis})
        points = inputs.array((y.shape[axis],), inputs.choice(("float32", "int32", dtype)))
        yield Case("numpy.trapezoid", (y, points), {"axis": axis})
        yield Case(
            "numpy.interp", (inputs.array(dtypes=dtype), np.arange(3).astype("float32"), inputs.array((3,), NUMBERS))
        )
    x = inputs.array((3, 4), "float32")
    rows, columns = np.asarray([0.0, 1.0, 3.0], "float32"), np.asarray([0.0, 1.0, 3.0, 4.5], "float32")
    for args in ((rows, columns), (2.0, columns), (rows, 0.5), (1.0, 2.0), (2,), (columns, rows), (1, 2, 3)):
        yield Case("numpy.gradient", (x, *args))
    for kwargs in ({"axis": (0, 1)}, {"axis": ()}, {"edge_order": 2}, {"edge_order": 1}, {"axis": 3}):
        yield Case("numpy.gradient", (x,), kwargs)
    yield Case("numpy.gradient", (x[:1],))
    yield Case("numpy.gradient", ([1, 2, 4],))
    yield Case("numpy.diff", (x, 1), {"axis": 0, "prepend": x[:1], "append": x[:2]})
    yield Case("numpy.diff", (x, -1))
    yield Case("numpy.diff", (Weak(2.0),))
    yield Case("numpy.trapezoid", (x, x))
    yield Case("numpy.trapezoid", (x[:, :1],))
    yield Case("numpy.trapezoid", (x[:, :0],))
    yield Case("numpy.trapezoid", ([1, 2, 3],))
    points = np.asarray([-1.0, 0.0, 0.5, 2.0, 9.0, np.nan, np.inf], "float32")
    xp, fp = np.asarray([0.0, 1.0, 2.0], "float32"), inputs.array((3,), "float32")
    for kwargs in (
        *({}, {"left": -5.0}, {"right": 7}, {"left": 1, "right": np.asarray(2.0, "float32")}, {"period": 1.5}),
        *({"left": "extrapolate"}, {"right": "extrapolate"}, {"period": 0.0}, {"left": "other"}, {"period": -2}),
    ):
        yield Case("numpy.interp", (points, xp, fp), kwargs)
    for args in (
        ([0, 1], [0, 1], [1, 3]),
        (Weak(0.5), xp, fp),
        (points, xp, fp[:2]),
        (points, xp, fp.astype("complex64")),
    ):
        yield Case("numpy.interp", args)
    yield Case("numpy.interp", (points, xp[:1], fp[:1]))
    yield Case(
        "numpy.interp",
        (np.asarray([1.0], "float32"), np.asarray([0.0, 1.0, 1.0, 2.0], "float32"), [1.0, 2.0, 3.0, 4.0]),
    )
