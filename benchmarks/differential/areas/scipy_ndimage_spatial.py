"""The smaller modules of ``scipy``: ``ndimage``, ``spatial.transform``, ``interpolate``, ``integrate``, ``cluster``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import MODES, Case, Weak
from benchmarks.differential.inputs import FLOATS, INTS, NUMBERS, Inputs

QUICK = ("call", "jit")
BORDERS = ("constant", "nearest", "wrap", "mirror", "reflect")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _mapped(inputs)
    yield from _rotations(inputs)
    yield from _between(inputs)
    yield from _interpolated(inputs)
    yield from _areas(inputs)
    yield from _nearest(inputs)


def _mapped(inputs: Inputs) -> Iterator[Case]:
    name = "scipy.ndimage.map_coordinates"
    for order in (0, 1):
        for mode in BORDERS:
            image = inputs.array((4, 5), "float32")
            where = [inputs.array((6,), "float32", low=-6, high=9) for _ in range(2)]
            yield Case(name, (image, where, order, mode))
            yield Case(name, (image, where, order, mode), {"cval": -1.5}, modes=("call", "vjp"))
            kinds = [inputs.array((4,), (*INTS, *FLOATS), low=0, high=3) for _ in range(2)]
            yield Case(name, (inputs.array((3, 3), (*INTS, *FLOATS)), kinds, order, mode), modes=QUICK)
            yield Case(name, (image[0], [np.float32([-0.5, 0.5, 1.5, 2.5, 4.5])], order, mode), modes=QUICK)
            yield Case(name, (image[0], np.float32([[0.2, 3.9], [-1, 1]])[None], order, mode))
        for kind in NUMBERS:
            where = [inputs.array((3, 2), "float32", low=-1, high=5) for _ in range(2)]
            yield Case(name, (inputs.array((3, 4), kind), where, order), modes=QUICK)
        yield Case(name, (image, [np.float32(1.2), np.float32(2.5)], order))
        yield Case(name, (image, [np.zeros((0,), np.float32)] * 2, order), modes=QUICK)
        yield Case(name, (image, [Weak(1.5), Weak(2)], order), modes=QUICK)
        yield Case(
            name, (inputs.array((2, 3, 2), "float32"), [inputs.array((5,), "float32", low=0, high=2)] * 3, order)
        )
        odd = np.float32([np.nan, np.inf, -np.inf, 1e30, 2])
        yield Case(name, (image[0], [odd], order), modes=("call",))
    yield Case(name, (image, where, 2), modes=("call",))
    yield Case(name, (image, where[:1], 1), modes=("call",))
    yield Case(name, (image, where, 1, "other"), modes=("call",))


def _rotation(use: Callable[[ModuleType, Any], Any], build: str = "from_quat", **fixed: Any) -> Any:
    """A function of what a Rotation is built from."""

    def made(library: ModuleType) -> Callable[..., Any]:
        kind = library.scipy.spatial.transform.Rotation
        return lambda given, *rest: use(library, getattr(kind, build)(given, **fixed), *rest)

    return made


def _rotations(inputs: Inputs) -> Iterator[Case]:
    one, some = inputs.array((4,), "float32"), inputs.array((3, 4), "float32")
    quat = lambda _, r, *rest: r.as_quat()
    for given in (one, some, one.astype(np.float16), np.asarray([1, 2, 3, 4]), np.zeros(4, np.float32), some[:0]):
        modes = MODES if given.dtype == np.float32 and given.size and np.any(given) else QUICK
        for method in ("as_quat", "as_matrix", "as_rotvec", "as_mrp", "inv", "magnitude", "single"):
            plain = lambda _, r, method=method: _plain(getattr(r, method))
            yield Case(f"Rotation.{method}", (given,), make=_rotation(plain), modes=modes)
    for sequence in ("xyz", "ZYX", "zxz", "XYX", "z"):
        count = len(sequence)
        for degrees in (False, True):
            angles = inputs.array((count,), "float32", low=-2, high=2)
            building = _from_euler(sequence, degrees)
            yield Case(f"Rotation.from_euler {sequence}", (angles[0] if count == 1 else angles,), make=building)
            yield Case(f"Rotation.from_euler {sequence}", (inputs.array((2, count), "float32"),), make=building)
            if count == 3:
                turned = lambda _, r, s=sequence, d=degrees: r.as_euler(s, degrees=d)
                yield Case(f"Rotation.as_euler {sequence}", (one,), make=_rotation(turned))
                yield Case(f"Rotation.as_euler {sequence}", (some,), make=_rotation(turned), modes=("call", "vjp"))
    vector, vectors = inputs.array((3,), "float32"), inputs.array((2, 3), "float32")
    for given in (vector, vectors, vector * np.float32(1e-4), np.zeros(3, np.float32), np.asarray([1, 0, 2])):
        yield Case("Rotation.from_rotvec", (given,), make=_rotation(quat, "from_rotvec"))
        yield Case("Rotation.from_rotvec", (given,), make=_rotation(quat, "from_rotvec", degrees=True), modes=QUICK)
        yield Case("Rotation.from_mrp", (given,), make=_rotation(quat, "from_mrp"))
    turn = np.float32([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    for given in (turn, turn.T.copy(), -turn[::-1], np.eye(3, dtype=np.float32), np.stack([turn, turn.T])):
        yield Case("Rotation.from_matrix", (given,), make=_rotation(quat, "from_matrix"), modes=("call", "jit", "jvp"))
    for inverse in (False, True):
        applied = lambda _, r, v, inverse=inverse: r.apply(v, inverse=inverse)
        for given, v in ((one, vector), (one, vectors), (some, vector), (some[:2], vectors)):
            yield Case("Rotation.apply", (given, v), make=_rotation(applied))
    for canonical in (False, True):
        as_quat = lambda _, r, c=canonical: r.as_quat(canonical=c, scalar_first=True)
        yield Case("Rotation.as_quat", (some,), make=_rotation(as_quat))
    yield Case("Rotation.as_rotvec", (some,), make=_rotation(lambda _, r: r.as_rotvec(degrees=True)))
    product = lambda lib: lambda a, b: (_kind(lib).from_quat(a) * _kind(lib).from_quat(b)).as_quat()
    for a, b in ((one, one[::-1].copy()), (some, some[::-1].copy())):
        yield Case("Rotation.__mul__", (a, b), make=product)
    yield Case("Rotation.mean", (some,), make=_rotation(lambda _, r: r.mean().as_matrix()), tolerance=10)
    weighted = _rotation(lambda _, r, w: r.mean(w).as_matrix())
    yield Case("Rotation.mean", (some, inputs.array((3,), "float32", low=0.1, high=1)), make=weighted, tolerance=10)
    joined = lambda lib: lambda a, b: _kind(lib).concatenate([_kind(lib).from_quat(x) for x in (a, b)]).as_quat()
    yield Case("Rotation.concatenate", (one, one[::-1].copy()), make=joined)
    for index in (0, -1, slice(0, 2), [0, 2]):
        yield Case("Rotation.__getitem__", (some,), make=_rotation(lambda _, r, i=index: r[i].as_quat()), modes=QUICK)
    yield Case("Rotation.__len__", (some,), make=_rotation(lambda _, r: len(r)), modes=("call",))
    yield Case("Rotation.__len__", (one,), make=_rotation(lambda _, r: len(r)), modes=("call",))
    for num in (None, 2):
        yield Case(
            "Rotation.identity", (), make=lambda lib, n=num: lambda: _kind(lib).identity(n).as_quat(), modes=QUICK
        )
        drawn = lambda lib, n=num: lambda: _kind(lib).random(lib.random.key(1), n).as_quat()
        yield Case("Rotation.random", (), make=drawn, modes=QUICK)


def _kind(library: ModuleType) -> Any:
    return library.scipy.spatial.transform.Rotation


def _plain(found: Any) -> Any:
    found = found() if callable(found) else found
    return found.as_quat() if hasattr(found, "as_quat") else found


def _from_euler(sequence: str, degrees: bool) -> Callable[[ModuleType], Callable[..., Any]]:
    return lambda lib: lambda angles: _kind(lib).from_euler(sequence, angles, degrees).as_quat()


def _between(inputs: Inputs) -> Iterator[Case]:
    def made(library: ModuleType) -> Callable[..., Any]:
        module = library.scipy.spatial.transform
        return lambda t, q, at: module.Slerp.init(t, module.Rotation.from_quat(q))(at).as_quat()

    quats = inputs.array((4, 4), "float32")
    for at in (np.float32([0.5, 1.2, 2.9]), np.float32(1.5), np.float32([0, 1, 3]), np.float32([1e-3])):
        yield Case("Slerp", (np.float32([0, 1, 2, 3]), quats, at), make=made, tolerance=4)
    yield Case("Slerp", (np.asarray([0, 1, 2, 3]), quats, np.asarray([1, 2])), make=made, modes=QUICK)


def _interpolated(inputs: Inputs) -> Iterator[Case]:
    def made(**fixed: Any) -> Callable[[ModuleType], Callable[..., Any]]:
        def of(library: ModuleType) -> Callable[..., Any]:
            kind = library.scipy.interpolate.RegularGridInterpolator
            return lambda x, y, values, at: kind((x, y), values, **fixed)(at)

        return of

    x, y = np.float32([0, 1, 3, 4]), np.float32([-1, 0, 2])
    for values in (inputs.array((4, 3), "float32"), inputs.array((4, 3, 2), "float32"), inputs.array((4, 3), "int32")):
        at = inputs.array((5, 2), "float32", low=0, high=2)
        for method in ("linear", "nearest"):
            yield Case("RegularGridInterpolator", (x, y, values, at), make=made(method=method))
            beyond = at * np.float32(4) - 2
            for fill in (np.nan, None, 1.5):
                given = made(method=method, bounds_error=False, fill_value=fill)
                yield Case("RegularGridInterpolator", (x, y, values, beyond), make=given, modes=("call", "jvp"))
        yield Case("RegularGridInterpolator", (x, y, values, at[0]), make=made(), modes=QUICK)
        yield Case("RegularGridInterpolator", (x, y, values, at[:0]), make=made(), modes=QUICK)
        nan = np.float32([[np.nan, 0], [1, 1]])
        yield Case("RegularGridInterpolator", (x, y, values, nan), make=made(), modes=QUICK)
    yield Case("RegularGridInterpolator", (x, y, values, at), make=made(method="other"), modes=("call",))
    yield Case("RegularGridInterpolator", (y, x, values, at), make=made(), modes=("call",))
    yield Case("RegularGridInterpolator", (x[::-1].copy(), y, values, at), make=made(), modes=("call",))
    yield Case("RegularGridInterpolator", (x, y, values, at), make=made(bounds_error=True), modes=("call",))


def _areas(inputs: Inputs) -> Iterator[Case]:
    name = "scipy.integrate.trapezoid"
    for kind in NUMBERS:
        yield Case(name, (inputs.array((2, 4), kind),), modes=QUICK)
        yield Case(name, (inputs.array((4,), kind), inputs.array((4,), (*INTS, *FLOATS))), modes=("call", "vjp"))
    y = inputs.array((3, 4), "float32")
    yield Case(name, (y,), {"dx": 0.5, "axis": 0})
    yield Case(name, (y,), {"dx": Weak(2), "axis": -2}, modes=QUICK)
    yield Case(name, (y, inputs.array((3, 4), "float32")))
    yield Case(name, (y, inputs.array((3,), "float32"), 1.0, 0))
    for size in (0, 1):
        yield Case(name, (y[:, :size],))
    yield Case(name, (np.float32([1, np.nan, np.inf]),))
    yield Case(name, (np.float32(1),), modes=("call",))
    yield Case(name, (y, y[:2]), modes=("call",))


def _nearest(inputs: Inputs) -> Iterator[Case]:
    name = "scipy.cluster.vq.vq"
    for kind in (*FLOATS, *INTS, "bool", "complex64"):
        yield Case(name, (inputs.array((5, 2), kind), inputs.array((3, 2), kind)), modes=QUICK)
    obs, book = inputs.array((6, 3), "float32"), inputs.array((4, 3), "float32")
    yield Case(name, (obs, book))
    yield Case(name, (obs[:, 0], book[:, 0]))
    yield Case(name, (obs, book.astype(np.float16)), modes=QUICK)
    yield Case(name, (obs, inputs.array((4, 3), "int32")), modes=QUICK)
    yield Case(name, (obs[:0], book), modes=QUICK)
    yield Case(name, (obs, book[:0]), modes=("call",))
    yield Case(name, (np.float32([[1, np.nan], [0, 0]]), np.float32([[0, 0], [1, 1]])), modes=QUICK)
    yield Case(name, (np.float32([[0, 0]]), np.float32([[1, 0], [0, 1]])), modes=QUICK)
    yield Case(name, (obs, book[:, :2]), modes=("call",))
    yield Case(name, (obs, book[0]), modes=("call",))
    yield Case(name, (obs[0, 0], book), modes=("call",))
