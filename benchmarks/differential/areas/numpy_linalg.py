"""``numpy.linalg``, and what of ``numpy`` takes diagonals and triangles."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import NUMBERS, Inputs

SQUARES = ((3, 3), (2, 2), (2, 3, 3), (1, 1))
TALL = ((4, 3), (3, 4), (3, 3), (2, 3, 2))
DTYPES = ("float32", "float32", "complex64", "int32", "bool", "float16", "bfloat16", "uint8")
ONLY = ("call", "jit", "vmap")


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random)


def _cases(inputs: Inputs) -> Iterator[Case]:
    yield from _solves(inputs)
    yield from _factors(inputs)
    yield from _norms(inputs)
    yield from _products(inputs)
    yield from _refusals(inputs)


def _square(inputs: Inputs, dtype: str, shape: Any = None) -> np.ndarray:
    """Well-conditioned."""
    shape = inputs.choice(SQUARES) if shape is None else shape
    x = inputs.array(shape, dtype, low=-1, high=1.5)
    far = 4 * np.eye(shape[-1])
    return (x.astype("complex64" if x.dtype.kind == "c" else "float32") + far).astype(x.dtype)


def _definite(inputs: Inputs, dtype: str, shape: Any = None) -> np.ndarray:
    x = _square(inputs, dtype, shape)
    if x.dtype.kind == "b":
        return np.broadcast_to(np.eye(x.shape[-1], dtype=bool), x.shape).copy()
    y = x.astype("complex64" if x.dtype.kind == "c" else "float32")
    return (y @ np.conj(np.swapaxes(y, -1, -2)) / 2 + np.eye(x.shape[-1])).round(2).astype(x.dtype)


def _solves(inputs: Inputs) -> Iterator[Case]:
    for dtype in DTYPES:
        x = _square(inputs, dtype)
        for name in ("inv", "det", "slogdet", "pinv", "cond", "matrix_rank"):
            yield Case(f"numpy.linalg.{name}", (x,), tolerance=4)
        n = x.shape[-1]
        for shape in ((n,), (n, 2), (2, n, 1), (2, n)):
            b = inputs.array(shape, inputs.choice((dtype, "float32")))
            yield Case("numpy.linalg.solve", (x, b), tolerance=4)
        for power in (0, 1, 2, 3, -1, -2, 5):
            yield Case("numpy.linalg.matrix_power", (x, power), modes=("call", "jit", "jvp"), tolerance=8)
        a = inputs.array(inputs.choice(((4, 2), (3, 3), (2, 4))), dtype, low=0.5, high=4)
        b = inputs.array(inputs.choice(((a.shape[0],), (a.shape[0], 2))), dtype)
        yield Case("numpy.linalg.lstsq", (a, b), make=_without_noise, modes=ONLY, tolerance=30)
        yield Case("numpy.linalg.lstsq", (a, b), {"rcond": 0.1, "numpy_resid": True}, modes=("call",), tolerance=30)
        yield Case("numpy.linalg.pinv", (inputs.array(inputs.choice(TALL), dtype),), tolerance=30)
    x = _square(inputs, "float32")
    for method in ("lu", "qr"):
        yield Case("numpy.linalg.slogdet", (x,), {"method": method}, tolerance=4)
    singular = np.asarray([[1.0, 2.0], [2.0, 4.0]], "float32")
    for name in ("inv", "det", "slogdet", "matrix_rank", "pinv"):
        yield Case(f"numpy.linalg.{name}", (singular,), modes=("call", "jit"))
        yield Case(f"numpy.linalg.{name}", (np.zeros((2, 2), "float32"),), modes=("call", "jit"))
        yield Case(f"numpy.linalg.{name}", (np.zeros((0, 0), "float32"),), modes=("call", "jit"))
        yield Case(f"numpy.linalg.{name}", (np.zeros((0, 2, 2), "float32"),), modes=("call", "jit"))
        yield Case(f"numpy.linalg.{name}", (np.full((2, 2), np.nan, "float32"),), modes=("call", "jit"))
    for kwargs in ({"rtol": 0.1}, {"rcond": 0.1}, {"hermitian": True}, {"rtol": np.asarray(0.2, "float32")}):
        yield Case("numpy.linalg.pinv", (_definite(inputs, "float32"),), kwargs, tolerance=8)
    for kwargs in ({"tol": 0.5}, {"hermitian": True}):
        yield Case("numpy.linalg.matrix_rank", (_definite(inputs, "float32"),), kwargs)
    for p in (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc", "other"):
        yield Case("numpy.linalg.cond", (_square(inputs, "float32"),), {"p": p}, modes=("call", "jit"), tolerance=8)
    a = _square(inputs, "float32", (4, 4)).reshape(2, 2, 4)
    yield Case("numpy.linalg.tensorinv", (a,), tolerance=8)
    yield Case("numpy.linalg.tensorinv", (a.reshape(4, 2, 2),), {"ind": 1}, tolerance=8)
    yield Case("numpy.linalg.tensorsolve", (a, inputs.array((2, 2), "float32")), tolerance=8)
    yield Case("numpy.linalg.tensorsolve", (a.reshape(2, 4, 2), inputs.array((2, 2), "float32"), (1,)), tolerance=8)


def _without_noise(lib: ModuleType) -> Any:
    def called(a: Any, b: Any) -> Any:
        x, residuals, rank, values = lib.numpy.linalg.lstsq(a, b)
        return (x, residuals.shape if a.shape[0] <= a.shape[1] else residuals, rank, values)  # there it is 0

    return called


def _factors(inputs: Inputs) -> Iterator[Case]:
    for dtype in DTYPES:
        x = _definite(inputs, dtype)
        yield Case("numpy.linalg.cholesky", (x,), {"upper": inputs.chance(0.4)}, tolerance=4)
        yield Case(
            "numpy.linalg.cholesky", (_square(inputs, dtype),), {"symmetrize_input": False}, modes=("call", "jit")
        )
        for name in ("eigh", "eigvalsh"):
            kwargs = {"UPLO": inputs.choice(("L", "U", None) if name == "eigh" else ("L", "U"))}
            # The sign of a vector is free: its square is not. Derivatives divide by distances of eigenvalues.
            yield Case(f"numpy.linalg.{name}", (x,), kwargs, make=_up_to_sign(name), tolerance=30)
        tall = inputs.array(inputs.choice(TALL), dtype)
        yield Case("numpy.linalg.svdvals", (tall,), tolerance=8)
        yield Case("numpy.linalg.svd", (tall,), {"compute_uv": False}, tolerance=8)
        for full in (True, False):
            modes = ("call", "jit") if full else ("call", "jit", "jvp")
            yield Case(
                "numpy.linalg.svd", (tall,), {"full_matrices": full}, make=_up_to_sign("svd"), modes=modes, tolerance=30
            )
        for mode in ("reduced", "complete", "r", "raw"):
            modes = ("call", "jit", "vmap") if mode in ("complete", "raw") else ("call", "jit", "jvp")
            yield Case("numpy.linalg.qr", (tall, mode), modes=modes, tolerance=30)
        yield Case("numpy.linalg.eigvals", (_triangle(inputs, dtype),), make=_sorted, modes=("call",), tolerance=30)
    for name in ("cholesky", "eigvalsh", "svdvals", "qr", "eigvals"):
        for x in (np.zeros((0, 0), "float32"), np.zeros((0, 2, 2), "float32"), np.full((2, 2), np.nan, "float32")):
            yield Case(f"numpy.linalg.{name}", (x,), modes=("call", "jit"))
    yield Case("numpy.linalg.cholesky", (-np.eye(2, dtype="float32"),), modes=("call", "jit"))
    yield Case("numpy.linalg.svd", (_definite(inputs, "float32"), False, False, True), tolerance=8)
    yield Case("numpy.linalg.svd", (_square(inputs, "float32"), False, False), {"subset_by_index": (0, 1)}, tolerance=8)
    yield Case(
        "numpy.linalg.eigh", (_definite(inputs, "float32"),), {"symmetrize_input": False}, make=_up_to_sign("eigh")
    )
    yield Case("numpy.linalg.eig", (np.diag([3.0, 1.0, 2.0]).astype("float32"),), modes=("call",))
    yield Case("numpy.linalg.eig", (_triangle(inputs, "float32"),), make=_rebuilt, modes=("call",), tolerance=30)


def _triangle(inputs: Inputs, dtype: str) -> np.ndarray:
    return np.triu(_square(inputs, dtype, (3, 3)))


def _up_to_sign(name: str) -> Any:
    def make(lib: ModuleType) -> Any:
        def called(x: Any, **kwargs: Any) -> Any:
            found = getattr(lib.numpy.linalg, name)(x, **kwargs)
            parts = tuple(found) if isinstance(found, tuple) else (found,)
            return tuple(y if y.ndim == x.ndim - 1 else abs(y) ** 2 for y in parts)

        return called

    return make


def _sorted(lib: ModuleType) -> Any:
    return lambda x: lib.numpy.sort(lib.numpy.linalg.eigvals(x))


def _rebuilt(lib: ModuleType) -> Any:
    def called(x: Any) -> Any:
        values, vectors = lib.numpy.linalg.eig(x)
        return vectors * values @ lib.numpy.linalg.inv(vectors)

    return called


def _norms(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array((3, 4), dtype)
        yield Case("numpy.linalg.norm", (x,))
        axis = inputs.choice((0, 1, -1, (0, 1), None))
        yield Case("numpy.linalg.norm", (x,), {"axis": axis, "keepdims": inputs.chance(0.5)})
        order = inputs.choice((1, 2, 3, 0, np.inf, -np.inf, -1, 0.5))
        yield Case("numpy.linalg.norm", (inputs.array((4,), dtype), order))
        yield Case("numpy.linalg.vector_norm", (x,), {"ord": order, "axis": axis, "keepdims": inputs.chance(0.5)})
        yield Case("numpy.linalg.matrix_norm", (x,), {"keepdims": inputs.chance(0.5)})
    x = inputs.array((2, 3, 4), "float32")
    for order in (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc", 3, "other", 0):
        yield Case("numpy.linalg.norm", (x[0], order), tolerance=8)
        yield Case("numpy.linalg.norm", (x, order, (0, -1)), {"keepdims": True}, tolerance=8)
        yield Case("numpy.linalg.norm", (x, order, 1), tolerance=8)
        yield Case("numpy.linalg.matrix_norm", (x,), {"ord": order}, tolerance=8)
        yield Case("numpy.linalg.vector_norm", (x,), {"ord": order, "axis": (0, 2)}, tolerance=8)
    for y in (np.zeros((0,), "float32"), np.zeros((3,), "float32"), Weak(2.0), np.asarray(2.0, "float32"), [3, 4], x):
        for name in ("norm", "vector_norm"):
            yield Case(f"numpy.linalg.{name}", (y,))
    yield Case("numpy.linalg.norm", (inputs.array((4,), "float32", odd=0.5),))


def _products(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x, y = inputs.array((2, 3), dtype), inputs.array((3, 2), dtype)
        yield Case("numpy.linalg.matmul", (x, y), {"preferred_element_type": inputs.choice((None, "float32"))})
        yield Case("numpy.linalg.outer", (x[0], y[:, 0]))
        yield Case("numpy.linalg.tensordot", (x, y), {"axes": inputs.choice((1, 0, ((0,), (1,))))})
        yield Case("numpy.linalg.vecdot", (x, x), {"axis": inputs.choice((-1, -2))})
        yield Case("numpy.linalg.cross", (x, x[0]))
        yield Case("numpy.linalg.multi_dot", ([x, y, x],))
        yield Case("numpy.linalg.matrix_transpose", (inputs.array(inputs.choice(((2, 3), (2, 1, 3))), dtype),))
        z = inputs.array(inputs.choice(((3, 4), (2, 3, 3), (0, 3))), dtype)
        yield Case("numpy.linalg.trace", (z,), {"offset": inputs.choice((0, 1, -1, 5))})
        yield Case("numpy.linalg.diagonal", (z,), {"offset": inputs.choice((0, 1, -1, 5))})
    yield Case("numpy.linalg.trace", (z,), {"dtype": "float32"})
    a, b, c, d = (inputs.array(s, "float32") for s in ((3,), (3, 4), (4, 2), (2,)))
    for arrays in ([a, b, c, d], [b, c], [a, b], [b, c, d], [a], [a, c], [b, c, c.T, b.T]):
        yield Case("numpy.linalg.multi_dot", (arrays,))
    yield Case("numpy.linalg.multi_dot", ([b, c, c.T],), {"precision": "highest"})
    yield Case("numpy.linalg.outer", (b, c))
    yield Case("numpy.linalg.cross", (b, b))
    yield Case("numpy.linalg.cross", (inputs.array((3, 4), "float32"), b), {"axis": 0})


def _refusals(inputs: Inputs) -> Iterator[Case]:
    wrong = (inputs.array((2, 3), "float32"), inputs.array((3,), "float32"), inputs.array((), "float32"))
    for name in (
        "inv",
        "det",
        "slogdet",
        "cholesky",
        "eigh",
        "eigvalsh",
        "eig",
        "eigvals",
        "qr",
        "svdvals",
        "pinv",
        "cond",
    ):
        for x in wrong:
            if x.ndim < 2 or name not in ("qr", "svdvals", "pinv", "cond"):
                yield Case(f"numpy.linalg.{name}", (x,), modes=("call",))
        yield Case(f"numpy.linalg.{name}", ([[2, 1], [1, 3]],), modes=("call",))
    for name in ("trace", "diagonal", "matrix_transpose", "matrix_norm", "matrix_rank"):
        yield Case(f"numpy.linalg.{name}", (wrong[1],), modes=("call",))
    yield Case("numpy.linalg.solve", (np.eye(2, dtype="float32"), wrong[1]), modes=("call",))
    yield Case("numpy.linalg.matrix_power", (np.eye(2, dtype="float32"), 1.5), modes=("call",))
    yield Case("numpy.linalg.matrix_power", (np.eye(2, dtype="int32"), -1), modes=("call",))
    yield Case("numpy.linalg.qr", (np.eye(2, dtype="float32"), "other"), modes=("call",))
