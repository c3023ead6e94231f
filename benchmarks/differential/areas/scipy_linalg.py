"""``scipy.linalg``: factors, solutions, functions and special matrices, of well-conditioned inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import NUMBERS, Inputs

BATCHES = ((), (), (2,), (2, 1))
DTYPES = ("float32", "float32", "complex64", "int32")
SIZED = ("hilbert", "invhilbert", "pascal", "invpascal", "dft", "hadamard", "helmert")
FLOAT = ("float32", "complex64")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _factors(inputs)
    yield from _solutions(inputs)
    yield from _eigen(inputs)
    yield from _functions(inputs)
    yield from _structured(inputs)


def _square(inputs: Inputs, dtype: str = "float32", n: int = 3, batch: Any = None) -> np.ndarray:
    """Matrices with a strong diagonal."""
    batch = inputs.choice(BATCHES) if batch is None else batch
    x = inputs.array((*batch, n, n), dtype, low=-2, high=2)
    return (x + np.asarray(np.diag(np.arange(4, 4 + n)), x.dtype)).astype(x.dtype)


def _definite(inputs: Inputs, dtype: str = "float32", n: int = 3, batch: Any = None) -> np.ndarray:
    x = _square(inputs, dtype, n, batch)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(n)).astype(x.dtype)


def _of(name: str, f: Callable[..., Any]) -> Callable[[ModuleType], Any]:
    """``f`` of the library's function ``name``: what does not hang on a choice of signs or order."""
    return lambda lib: lambda *args, **kwargs: f(getattr(lib.scipy.linalg, name)(*args, **kwargs))


def _cho(lower: bool) -> Callable[[ModuleType], Any]:
    def solve(linalg: ModuleType, a: Any, b: Any) -> Any:
        return linalg.cho_solve(linalg.cho_factor(a, lower=lower), b)

    return lambda lib: partial(solve, lib.scipy.linalg)


def _lu(trans: int) -> Callable[[ModuleType], Any]:
    def solve(linalg: ModuleType, a: Any, b: Any) -> Any:
        return linalg.lu_solve(linalg.lu_factor(a), b, trans=trans)

    return lambda lib: partial(solve, lib.scipy.linalg)


def _schur(output: str) -> Callable[[ModuleType], Any]:
    def whole(linalg: ModuleType, a: Any) -> Any:
        t, z = linalg.schur(a, output=output)
        return z @ t @ z.conj().T

    return lambda lib: partial(whole, lib.scipy.linalg)


def _converted(lib: ModuleType) -> Any:
    def whole(a: Any) -> Any:
        t, z = lib.scipy.linalg.rsf2csf(*lib.scipy.linalg.schur(a))
        return z @ t @ z.conj().T

    return whole


def _funm(disp: bool) -> Callable[[ModuleType], Any]:
    return lambda lib: lambda a: lib.scipy.linalg.funm(a, lib.numpy.exp, disp=disp)


def _call(name: str, *args: Any, **kwargs: Any) -> Case:
    return Case(f"scipy.linalg.{name}", args, kwargs, tolerance=8)


def _factors(inputs: Inputs) -> Iterator[Case]:
    for dtype in (*DTYPES, "float16"):
        for overwrite in ({}, {"overwrite_a": True, "check_finite": False}):
            yield _call("cholesky", _definite(inputs, dtype), **overwrite, lower=inputs.chance(0.5))
            a = _square(inputs, dtype)
            yield _call("lu_factor", a, **overwrite)
            yield _call("lu", _square(inputs, dtype), **overwrite, permute_l=inputs.chance(0.5))
            yield _call("inv", a, **overwrite)
            yield _call("det", a, **overwrite)
            x = inputs.array((*inputs.choice(BATCHES), *inputs.choice(((3, 3), (4, 3), (2, 4)))), dtype)
            yield _call("qr", x, **overwrite, mode=inputs.choice(("full", "economic", "r")))
            yield _call("svd", x, **overwrite, compute_uv=False)
        yield _call("cho_factor", _definite(inputs, dtype), lower=inputs.chance(0.5))
    for shape in ((0, 0), (2, 0, 0), (0, 3), (3, 0), (1, 1)):
        x = inputs.array(shape, "float32", low=1, high=2)
        for name in ("cholesky", "lu", "lu_factor", "det", "inv", "qr", "svd"):
            if shape[-1] == shape[-2] or name not in ("cholesky", "det", "inv"):
                yield _call(name, x)
    for dtype in FLOAT:
        x = inputs.array(inputs.choice(((4, 3), (3, 3), (2, 3, 2))), dtype)
        for full in (True, False):
            kwargs = {"full_matrices": full}
            product = _of("svd", lambda usv: (abs(usv[0]), usv[1], abs(usv[2])))
            x = inputs.array(inputs.choice(((3, 3), (2, 3, 2) if not full else (2, 2))), dtype)
            yield Case("scipy.linalg.svd", (x,), kwargs, product, ("call", "jit", "vmap"), 8)
        yield _call("qr", inputs.array((4, 3), dtype), pivoting=True, mode=inputs.choice(("full", "economic", "r")))
        for mode in ("left", "right"):
            for conjugate in (False, True):
                c = inputs.array((3, 3), dtype)
                a = inputs.array((3, 3), dtype)
                yield _call("qr_multiply", a, c, mode=mode, conjugate=conjugate)
                yield _call("qr_multiply", a, c[0], mode=mode, pivoting=conjugate)
        for calc_q in (False, True):
            yield _call("hessenberg", _square(inputs, dtype, 4), calc_q=calc_q)
    yield _call("qr", inputs.array((3, 3), "float32"), mode="nothing")
    yield _call("cholesky", -np.eye(3, dtype="float32"))
    yield _call("cholesky", np.full((2, 2), np.nan, "float32"))
    yield _call("lu_factor", np.zeros((2, 2), "float32"))
    yield _call("inv", np.zeros((2, 2), "float32"))
    yield _call("det", inputs.array((2, 3), "float32"))


def _solutions(inputs: Inputs) -> Iterator[Case]:
    for i in range(10):
        dtype = DTYPES[i % 4]
        batch = inputs.choice(BATCHES)
        b = inputs.array(inputs.choice(((*batch, 3, 2), (3, 2)) if batch else ((3,), (3, 2), (3, 0))), dtype)
        trans = inputs.choice((0, 1, 2, "N", "T", "C"))
        kwargs = {"trans": trans, "lower": inputs.chance(0.5), "unit_diagonal": inputs.chance(0.3)}
        yield _call("solve_triangular", _square(inputs, dtype, batch=batch), b, **kwargs)
        kind = inputs.choice(("gen", "sym", "her", "pos"))
        a = _square(inputs, dtype, batch=batch) if kind == "gen" else _definite(inputs, dtype, batch=batch)
        yield _call("solve", a, b, assume_a=kind, lower=inputs.chance(0.5))
        yield Case(
            "scipy.linalg.cho_solve",
            (_definite(inputs, dtype, batch=batch), b),
            {},
            _cho(inputs.chance(0.5)),
            tolerance=8,
        )
        yield Case("scipy.linalg.lu_solve", (_square(inputs, dtype, batch=batch), b), {}, _lu(i % 3), tolerance=8)
    yield _call("solve", _square(inputs, batch=()), inputs.array((4,), "float32"))
    yield _call("solve", _square(inputs, batch=()), inputs.array((3,), "float32"), assume_a="nothing")
    for method in ("schur", "eigen", "nothing"):
        a, b, c = _square(inputs, batch=()), _square(inputs, n=2, batch=()), inputs.array((3, 2), "float32")
        yield Case("scipy.linalg.solve_sylvester", (a, b, c), {"method": method}, modes=("call", "jit"), tolerance=30)
    a, b, c = (_square(inputs, "complex64", batch=()) for _ in range(3))
    yield Case("scipy.linalg.solve_sylvester", (a, b, c), modes=("call", "jit"), tolerance=30)


def _eigen(inputs: Inputs) -> Iterator[Case]:
    for dtype in DTYPES:
        a = _definite(inputs, dtype)
        yield _call("eigh", a, eigvals_only=True, lower=inputs.chance(0.5))
        make = _of("eigh", lambda wv: (wv[0], abs(wv[1])))
        yield Case("scipy.linalg.eigh", (a,), {"lower": inputs.chance(0.5)}, make, ("call", "jit", "vmap"), 8)
    for select, ends in (("a", None), ("i", (0, 1)), ("v", (-2.0, 2.0))):
        d, e = inputs.array((4,), "float32"), inputs.array((3,), "float32", low=0.3, high=1)
        kwargs = {"eigvals_only": True, "select": select, "select_range": ends}
        yield Case("scipy.linalg.eigh_tridiagonal", (d, e), kwargs, modes=("call", "jit"), tolerance=8)
    d, e = inputs.array((4,), "float32"), inputs.array((3,), "float32", low=0.3, high=1)
    make = _of("eigh_tridiagonal", lambda wv: (wv[0], abs(wv[1])))
    yield Case("scipy.linalg.eigh_tridiagonal", (d, e), {}, make, ("call", "jit"), 30)
    for dtype, output in (("float32", "real"), ("float32", "complex"), ("complex64", "complex")):
        a = _square(inputs, dtype, batch=())
        yield Case("scipy.linalg.schur", (a,), {}, _schur(output), ("call", "jit"), 30)
        if dtype == "float32":
            yield Case("scipy.linalg.rsf2csf", (a,), {}, _converted, ("call", "jit"), 30)
    yield _call("eigh", _definite(inputs), type=2)
    yield _call("eigh", _definite(inputs), _definite(inputs))


def _functions(inputs: Inputs) -> Iterator[Case]:
    for dtype in DTYPES:
        for scale in (0.1, 1.0):
            a = (inputs.array((*inputs.choice(BATCHES), 3, 3), dtype) * scale).astype(dtype)
            yield _call("expm", a)
        x = np.triu(inputs.array((3, 3), dtype))
        yield Case("scipy.linalg.expm", (x,), {"upper_triangular": True}, modes=("call", "jit"), tolerance=8)
    yield _call("expm", inputs.array((3, 3), "float32") * 20, max_squarings=2)
    yield _call("expm", inputs.array((0, 0), "float32"))
    for dtype in ("float32", "complex64"):
        a, e = inputs.array((3, 3), dtype), inputs.array((3, 3), dtype)
        for kwargs in ({}, {"compute_expm": False}, {"method": "SPS"}, {"method": "blockEnlarge"}):
            yield Case("scipy.linalg.expm_frechet", (a, e), kwargs, modes=("call", "jit"), tolerance=8)
        yield Case("scipy.linalg.sqrtm", (_definite(inputs, dtype, batch=()),), modes=("call", "jit"), tolerance=30)
        for side in ("right", "left"):
            for method in ("qdwh", "svd"):
                x = inputs.array((4, 3) if side == "right" else (3, 4), dtype)
                kwargs = {"side": side, "method": method}
                yield Case("scipy.linalg.polar", (x,), kwargs, modes=("call", "jit"), tolerance=30)
        for disp in (True, False):
            yield Case("scipy.linalg.funm", (_square(inputs, dtype, batch=()),), {}, _funm(disp), ("call", "jit"), 100)


def _structured(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        for name in ("toeplitz", "hankel", "circulant", "fiedler"):
            yield Case(f"scipy.linalg.{name}", (inputs.array(inputs.choice(((3,), (0,), (1,), (2, 3), ())), dtype),))
        arrays = [inputs.array(inputs.choice(((2, 3), (3,), (), (1, 2), (0, 2))), dtype) for _ in range(3)]
        yield Case("scipy.linalg.block_diag", tuple(arrays))
        c, r = inputs.array((3,), dtype), inputs.array(inputs.choice(((3,), (2,), (2, 4))), dtype)
        yield Case(f"scipy.linalg.{inputs.choice(('toeplitz', 'hankel'))}", (c, r))
        a = inputs.array((4,), dtype, low=1, high=5)
        yield Case("scipy.linalg.companion", (a,))
        yield Case("scipy.linalg.fiedler_companion", (a,))
        yield Case("scipy.linalg.leslie", (inputs.array((4,), dtype), inputs.array((3,), dtype)))
        mode = inputs.choice(("full", "same", "valid"))
        yield Case("scipy.linalg.convolution_matrix", (a, inputs.choice((2, 4, 6))), {"mode": mode})
    yield Case("scipy.linalg.block_diag", ())
    yield Case("scipy.linalg.block_diag", (inputs.array((2, 2, 2), "float32"),))
    yield Case("scipy.linalg.block_diag", ([[1, 2]], 3.5))
    yield Case("scipy.linalg.companion", (np.ones(1, "float32"),))
    yield Case("scipy.linalg.toeplitz", ([1, 2, 3], [1.5, 4.0]))
    for name in SIZED:
        for n in (1, 2, 4, 0):
            yield Case(f"scipy.linalg.{name}", (n,), modes=("call", "jit"))
    for kind in ("symmetric", "lower", "upper", "nothing"):
        yield Case("scipy.linalg.pascal", (4,), {"kind": kind}, modes=("call", "jit"))
        yield Case("scipy.linalg.invpascal", (4,), {"kind": kind}, modes=("call", "jit"))
    for scale in ("sqrtn", "n", "nothing"):
        yield Case("scipy.linalg.dft", (3, scale), modes=("call", "jit"))
    yield Case("scipy.linalg.dft", (3,), {"dtype": "complex64"}, modes=("call",))
    yield Case("scipy.linalg.hadamard", (4, "float32"), modes=("call",))
    yield Case("scipy.linalg.hadamard", (3,), modes=("call",))
    yield Case("scipy.linalg.helmert", (4, True), modes=("call", "jit"))
