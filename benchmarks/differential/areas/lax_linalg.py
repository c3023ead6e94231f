"""``lax.linalg``: decompositions and solvers. Where signs or an order are open, what hangs on them is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import Inputs

KINDS = ("float32", "float32", "complex64")
PLAIN = ("call", "jit", "vmap")
ALL = ("call", "jit", "jvp", "vjp", "vmap")
# Iterations and conditions of some ten: another order of operations is another last digit, or two.
LOOSE = {"tolerance": 20.0}
Made = Callable[[ModuleType], Any]


def cases(inputs: Inputs) -> Iterator[Case]:
    for part in (_cholesky, _factors, _eigen, _singular, _schur, _solves, _rest):
        yield from part(inputs)


def _square(inputs: Inputs, kind: str, n: int = 3, batch: tuple[int, ...] = ()) -> Any:
    """Far from singular."""
    x = inputs.array((*batch, n, n), kind, low=-1, high=1)
    return (x + 2 * np.eye(n)).astype(x.dtype)


def _definite(inputs: Inputs, kind: str, n: int = 3, batch: tuple[int, ...] = ()) -> Any:
    x = inputs.array((*batch, n, n), kind, low=-1, high=1)
    return (x @ np.swapaxes(x, -1, -2).conj() + np.eye(n)).astype(x.dtype)


def _shapes(inputs: Inputs) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    for kind in KINDS:
        for n, batch in ((3, ()), (2, (2,)), (1, ()), (0, ()), (3, (0,))):
            yield kind, n, batch


def _call(name: str, after: Any = None, **kwargs: Any) -> Made:
    """``after(lib, inputs, results)`` is what is compared."""

    def made(lib: ModuleType) -> Any:
        def f(*xs: Any) -> Any:
            found = getattr(lib.lax.linalg, name)(*xs, **kwargs)
            return found if after is None else after(lib.numpy, xs[0], found)

        return f

    return made


def _t(x: Any) -> Any:
    return x.swapaxes(-1, -2).conj()


def _cholesky(inputs: Inputs) -> Iterator[Case]:
    for kind, n, batch in _shapes(inputs):
        x = _definite(inputs, kind, n, batch)
        yield Case("lax.linalg.cholesky", (x,), **LOOSE)
        if n == 3:
            raw = np.tril(x) if kind == "float32" else x
            yield Case("lax.linalg.cholesky", (raw,), {"symmetrize_input": False}, **LOOSE)
    yield Case("lax.linalg.cholesky", (-np.eye(2, dtype="float32"),), modes=PLAIN)
    yield Case("lax.linalg.cholesky", (np.full((2, 2), np.nan, "float32"),), modes=PLAIN)
    for kind in ("int32", "bfloat16", "float16"):
        yield Case(
            "lax.linalg.cholesky",
            (np.eye(2, dtype="float32").astype(inputs.array((), kind).dtype),),
            modes=("call", "jit"),
        )
    yield Case("lax.linalg.cholesky", (inputs.array((2, 3), "float32"),))
    yield Case("lax.linalg.cholesky", (inputs.array((3,), "float32"),))
    for _ in range(3):
        r = np.triu(_square(inputs, "float32"))
        made = _call("cholesky_update", lambda np_, x, r: _t(r) @ r)
        yield Case("lax.linalg.cholesky_update", (r, inputs.array((3,), "float32")), make=made, modes=PLAIN, **LOOSE)


def _factors(inputs: Inputs) -> Iterator[Case]:
    def rebuilt(np_: Any, x: Any, found: Any) -> Any:
        q, r = found[:2]
        k = min(r.shape[-2:])
        # The sign of a row of r is open, its product with the column of q is not.
        return q[..., :, :k] @ r[..., :k, :], abs(np_.diagonal(r, 0, -2, -1)), found[2:]

    for kind in KINDS:
        for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2), (0, 3), (3, 0), (0, 3, 2)):
            x = inputs.array(shape, kind)
            full = inputs.chance(0.5)
            square = shape[-1] == shape[-2]
            modes = ALL if (not full or square) and 0 not in shape and shape[-2] >= shape[-1] else PLAIN
            yield Case(
                f"lax.linalg.qr {full}", (x,), make=_call("qr", rebuilt, full_matrices=full), modes=modes, **LOOSE
            )
            yield Case("lax.linalg.lu", (x,), modes=ALL if 0 not in shape else PLAIN, **LOOSE)
            if kind == "float32" and len(shape) == 2 and 0 not in shape:
                made = _call("qr", rebuilt, pivoting=True, full_matrices=full)
                yield Case("lax.linalg.qr pivoting", (x,), make=made, modes=("call", "jit"), **LOOSE)
    for pivots, size in (([1, 1, 2], 3), ([2, 2], 4), ([[0, 1], [1, 1]], 2), ([], 2)):
        yield Case("lax.linalg.lu_pivots_to_permutation", (np.asarray(pivots, "int32"), size), modes=PLAIN)
    for kind in KINDS:
        for n, count in ((3, 2), (3, 3), (2, 0)):
            a, taus = inputs.array((4, n), kind), inputs.array((count,), kind, low=0, high=1)
            yield Case("lax.linalg.householder_product", (a, taus), modes=PLAIN, **LOOSE)
    for kind in KINDS:
        for left in (True, False):
            for transpose in (True, False):
                a, taus = inputs.array((3, 3), kind), inputs.array((2,), kind, low=0, high=1)
                kwargs = {"left": left, "transpose": transpose}
                yield Case("lax.linalg.ormqr", (a, taus, inputs.array((3, 3), kind)), kwargs, modes=PLAIN, **LOOSE)


def _eigen(inputs: Inputs) -> Iterator[Case]:
    def hermitian(np_: Any, x: Any, found: Any) -> Any:
        v, w = found
        return w, (v * w[..., None, :]) @ _t(v)

    for kind, n, batch in _shapes(inputs):
        x = _definite(inputs, kind, n, batch)
        yield Case(
            "lax.linalg.eigh",
            (x,),
            make=_call("eigh", hermitian),
            modes=ALL if n == 3 and not batch else PLAIN,
            **LOOSE,
        )
        if n == 3:
            for kwargs in ({"lower": False}, {"symmetrize_input": False}, {"sort_eigenvalues": False}):
                yield Case(
                    f"lax.linalg.eigh {kwargs}", (x,), make=_call("eigh", hermitian, **kwargs), modes=PLAIN, **LOOSE
                )
            raw = (inputs.array(x.shape, kind),)
            made = _call("eigh", hermitian, lower=inputs.chance(0.5), symmetrize_input=False)
            yield Case("lax.linalg.eigh triangle", raw, make=made, modes=PLAIN, **LOOSE)

    def ordered(np_: Any, x: Any, found: Any) -> Any:
        w = found[0]
        sizes = np_.sort(np_.real(w) * 3 + np_.abs(np_.imag(w)), -1)
        checks = []
        for v in found[1:]:
            checks.append(np_.linalg.norm(v, axis=-2))
        if len(found) == 2:
            checks.append(np_.abs(x @ found[1] - found[1] * w[..., None, :]) < 1e-3)
        return sizes, checks

    for kind, n, batch in _shapes(inputs):
        x = _square(inputs, kind, n, batch)
        left = inputs.chance(0.5)
        made = _call("eig", ordered, compute_left_eigenvectors=left)
        yield Case(f"lax.linalg.eig {left}", (x,), make=made, modes=PLAIN, **LOOSE)
        only = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
        sizes = _call("eig", lambda np_, x, found: np_.sort(np_.real(found[0])), **only)
        yield Case("lax.linalg.eig values", (x,), make=sizes, modes=PLAIN, **LOOSE)
    total = _call(
        "eig",
        lambda np_, x, found: (found[0] ** 3).sum(),
        compute_left_eigenvectors=False,
        compute_right_eigenvectors=False,
    )
    for kind in KINDS:
        yield Case("lax.linalg.eig sum", (_square(inputs, kind),), make=total, modes=("call", "jvp", "vjp"), **LOOSE)
    yield Case("lax.linalg.eigh", (inputs.array((2, 3), "float32"),), modes=("call",))
    yield Case("lax.linalg.eig", (inputs.array((2, 3), "float32"),), modes=("call",))


def _singular(inputs: Inputs) -> Iterator[Case]:
    def rebuilt(np_: Any, x: Any, found: Any) -> Any:
        u, s, vt = found
        k = s.shape[-1]
        shapes = np_.zeros(u.shape[-2:]), np_.zeros(vt.shape[-2:])
        return s, (u[..., :, :k] * s[..., None, :]) @ vt[..., :k, :], shapes

    for kind in KINDS:
        for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2), (0, 3), (3, 0), (0, 3, 2), (1, 1)):
            x = inputs.array(shape, kind)
            full = inputs.chance(0.5)
            plain = 0 in shape or len(shape) > 2
            made = _call("svd", rebuilt, full_matrices=full)
            modes = PLAIN if plain or (full and shape[0] != shape[1]) else ALL
            yield Case(f"lax.linalg.svd {full}", (x,), make=made, modes=modes, **LOOSE)
            yield Case("lax.linalg.svd", (x,), {"compute_uv": False}, modes=PLAIN if plain else ALL, **LOOSE)
    x = inputs.array((3, 3), "float32")
    yield Case("lax.linalg.svd subset", (x,), {"compute_uv": False, "subset_by_index": (0, 3)}, modes=PLAIN, **LOOSE)
    for name in ("DEFAULT", "QR", "JACOBI"):
        made = lambda lib, name=name: (
            lambda x: lib.lax.linalg.svd(x, compute_uv=False, algorithm=getattr(lib.lax.linalg.SvdAlgorithm, name))
        )
        yield Case(f"lax.linalg.svd {name}", (x,), make=made, modes=("call",), **LOOSE)
    polar = lambda np_, x, found: (found[0], found[1], found[3])
    for shape in ((3, 3), (4, 2)):
        x = inputs.array(shape, "float32")
        yield Case("lax.linalg.qdwh", (x,), make=_call("qdwh", polar), modes=("call", "jit"), **LOOSE)
    yield Case(
        "lax.linalg.qdwh hermitian",
        (_definite(inputs, "float32"),),
        make=_call("qdwh", polar, is_hermitian=True),
        modes=("call",),
        **LOOSE,
    )


def _schur(inputs: Inputs) -> Iterator[Case]:
    def rebuilt(np_: Any, x: Any, found: Any) -> Any:
        if len(found) == 1:
            return np_.trace(found[0], axis1=-2, axis2=-1), found[0].shape
        t, q = found
        return q @ t @ _t(q), np_.abs(np_.tril(t, -2)) < 1e-4, _t(q) @ q

    for kind, n, batch in _shapes(inputs):
        x = _square(inputs, kind, n, batch)
        vectors = inputs.chance(0.8)
        made = _call("schur", rebuilt, compute_schur_vectors=vectors)
        yield Case(f"lax.linalg.schur {vectors}", (x,), make=made, modes=PLAIN, **LOOSE)

        def hessenberg(np_: Any, x: Any, found: Any) -> Any:
            return abs(np_.triu(found[0], -1)), found[1]

        if n:
            yield Case("lax.linalg.hessenberg", (x,), make=_call("hessenberg", hessenberg), modes=PLAIN, **LOOSE)
            y = _definite(inputs, kind, n, batch)
            for lower in (True, False):
                made = _call("tridiagonal", lambda np_, x, found: (found[1], abs(found[2])), lower=lower)
                yield Case(f"lax.linalg.tridiagonal {lower}", (y,), make=made, modes=PLAIN, **LOOSE)


def _solves(inputs: Inputs) -> Iterator[Case]:
    for _ in range(24):
        kind = inputs.choice(KINDS)
        batch = inputs.choice(((), (), (2,), (0,)))
        a = _square(inputs, kind, 3, batch)
        flags = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
        kwargs = {flag: True for flag in flags if inputs.chance(0.4)}
        b = inputs.array((*batch, *((3, 2) if "left_side" in kwargs else (2, 3))), kind)
        yield Case("lax.linalg.triangular_solve", (a, b), kwargs, **LOOSE)
    a = _square(inputs, "float32")
    yield Case("lax.linalg.triangular_solve", (a, inputs.array((3,), "float32")), {"left_side": True}, **LOOSE)
    yield Case("lax.linalg.triangular_solve", (a[:0, :0], inputs.array((2, 0), "float32")))
    yield Case("lax.linalg.triangular_solve", (a, inputs.array((2, 2), "float32")))
    yield Case("lax.linalg.triangular_solve", (a, inputs.array((2, 3), "complex64")))
    yield Case(
        "lax.linalg.triangular_solve", (np.zeros((2, 2), "float32"), inputs.array((1, 2), "float32")), modes=PLAIN
    )
    for kind in KINDS:
        for batch in ((), (2,)):
            lower, upper = inputs.array((*batch, 4), kind), inputs.array((*batch, 4), kind)
            lower[..., 0] = upper[..., -1] = 0
            middle = (inputs.array((*batch, 4), kind, low=1, high=2) + 5).astype(lower.dtype)
            b = inputs.array((*batch, 4, 2), kind)
            yield Case("lax.linalg.tridiagonal_solve", (lower, middle, upper, b), **LOOSE)


def _rest(inputs: Inputs) -> Iterator[Case]:
    for kwargs in ({}, {"alpha": 2.0, "beta": 0.5}, {"symmetrize_output": True}):
        args = (inputs.array((3, 2), "float32"), _definite(inputs, "float32"))
        half = _call("symmetric_product", lambda np_, x, y: np_.tril(y), **kwargs)
        yield Case(f"lax.linalg.symmetric_product {kwargs}", args, make=half, modes=("call", "jit"), **LOOSE)
    names = ("SvdAlgorithm", "EigImplementation", "EighImplementation")
    for name in names:
        members = lambda lib, name=name: lambda: [str(m.name) for m in getattr(lib.lax.linalg, name)]
        yield Case(f"lax.linalg.{name}", (), make=members, modes=("call",))
