"""``lax``: parts of arrays read and written, at places that are static, data, or tables of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import Inputs

SOME = ("float32", "float32", "bool", "int8", "uint32", "bfloat16", "float16", "complex64", "int32")
MODES = ("clip", "fill", "promise_in_bounds", None)
SCATTERS = ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
# Shape of the operand, shape of the indices, dimension numbers, sizes of the slices.
GATHERS: tuple[tuple[Any, ...], ...] = (
    ((5,), (3, 1), ((), (0,), (0,)), (1,)),
    ((5,), (3, 1), ((1,), (), (0,)), (2,)),
    ((4, 5), (3, 1), ((1,), (0,), (0,)), (1, 5)),
    ((4, 5), (3, 1), ((0,), (1,), (1,)), (4, 1)),
    ((4, 5), (2, 3, 2), ((), (0, 1), (0, 1)), (1, 1)),
    ((4, 5), (3, 2), ((1, 2), (), (1, 0)), (2, 3)),
    ((4, 5, 3), (2, 2), ((1,), (0, 2), (2, 0)), (1, 4, 1)),
    ((4, 5), (0, 1), ((1,), (0,), (0,)), (1, 5)),
    ((4, 0), (3, 1), ((1,), (0,), (0,)), (1, 0)),
    ((4, 5), (2,), ((), (0, 1), (0, 1)), (1, 1)),
    ((4, 5), (2,), ((0, 1), (), (0, 1)), (2, 2)),
    ((), (0,), ((), (), ()), ()),
)
# The same with batching dimensions of operand and indices.
BATCHED: tuple[tuple[Any, ...], ...] = (
    ((3, 5), (3, 1), ((), (1,), (1,), (0,), (0,)), (1, 1)),
    ((3, 5, 4), (3, 2, 1), ((2,), (1,), (1,), (0,), (0,)), (1, 1, 4)),
    ((5, 3, 2), (2, 3, 1), ((), (0,), (0,), (1, 2), (1, 0)), (1, 1, 1)),
)


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _slices(inputs)
    yield from _dynamic(inputs)
    yield from _gathers(inputs)
    yield from _scatters(inputs)


def _slices(inputs: Inputs) -> Iterator[Case]:
    modes = ("call", "jit", "vjp", "vmap")
    for kind in SOME:
        x = inputs.array((4, 5), kind)
        start = (int(inputs.random.integers(0, 4)), int(inputs.random.integers(0, 5)))
        limit = tuple(int(inputs.random.integers(a, n + 1)) for a, n in zip(start, (4, 5), strict=True))
        strides = inputs.choice((None, (1, 2), (3, 1), (2, 2)))
        yield Case("lax.slice", (x, start, limit, strides), modes=modes)
        some = inputs.choice(((0, 3), (1, None), (None, None), (-3, -1), (None, 2), (2, 2), (3, 1), (0, 9)))
        rest = {"stride": inputs.choice((1, 2, 3)), "axis": inputs.choice((0, 1, -1))}
        yield Case("lax.slice_in_dim", (x, *some), rest, modes=modes)
        index, axis = inputs.choice((0, 3, -1, -4, 4, -5)), inputs.choice((0, 1, -1))
        yield Case("lax.index_in_dim", (x, index, axis), {"keepdims": inputs.chance(0.5)}, modes=modes)
    x = inputs.array((4, 5), "float32")
    for args in (((0, 0), (5, 5)), ((2, 0), (1, 5)), ((0,), (4,)), ((-1, 0), (4, 5)), ((0, 0), (4, 5), (0, 1))):
        yield Case("lax.slice", (x, *args), modes=("call",))
    yield Case("lax.slice", (Weak(1.0), (), ()))
    for _ in range(4):
        rows, columns = inputs.array((3,), "int32", low=-1, high=6), inputs.array((3,), "int32", low=-1, high=6)
        yield Case("lax.index_take", (x, (rows, columns), (0, 1)))
        yield Case("lax.index_take", (x, (rows,), (inputs.choice((0, 1)),)))


def _dynamic(inputs: Inputs) -> Iterator[Case]:
    for kind in (*SOME, "float32"):
        x = inputs.array((4, 5), kind)
        whole = inputs.choice(("int32", "int8", "uint8", "uint32"))
        i, j = inputs.array((), whole, low=-6, high=7), inputs.array((), whole, low=-6, high=7)
        sizes = inputs.choice(((2, 3), (4, 5), (1, 1), (0, 2)))
        yield Case("lax.dynamic_slice", (x, (i, j), sizes))
        yield Case("lax.dynamic_slice", (x, inputs.array((2,), whole, low=-6, high=7), sizes))
        yield Case("lax.dynamic_slice", (x, (inputs.choice((0, 1, -1, 9)), i), sizes))
        negative = {"allow_negative_indices": inputs.choice((False, True, (True, False)))}
        yield Case("lax.dynamic_slice", (x, (i, j), sizes), negative)
        update = inputs.array(sizes, kind)
        yield Case("lax.dynamic_update_slice", (x, update, (i, j)))
        yield Case("lax.dynamic_update_slice", (x, update, (i, inputs.choice((0, -2, 3)))), negative)
        axis = inputs.choice((0, 1, -1, -2))
        yield Case("lax.dynamic_slice_in_dim", (x, i, 2, axis))
        yield Case("lax.dynamic_index_in_dim", (x, i, axis), {"keepdims": inputs.chance(0.5)})
        row = x[:1] if axis in (0, -2) else x[:, :1]
        yield Case("lax.dynamic_update_slice_in_dim", (x, row, i, axis))
        yield Case("lax.dynamic_update_index_in_dim", (x, inputs.choice((row, row.reshape(-1))), i, axis))
    x = inputs.array((4,), "float32")
    yield Case("lax.dynamic_slice", (x, (Weak(1),), (2,)))
    yield Case("lax.dynamic_slice", (x, (1.5,), (2,)))
    yield Case("lax.dynamic_slice", (x, (1,), (5,)))
    yield Case("lax.dynamic_slice", (x, (1, 2), (2,)))
    yield Case("lax.dynamic_slice", (np.float32(2), (), ()))
    yield Case("lax.dynamic_update_slice", (x, inputs.array((2,), "int32"), (1,)))
    yield Case("lax.dynamic_update_slice", (x, inputs.array((5,), "float32"), (0,)))
    yield Case("lax.dynamic_update_index_in_dim", (x, Weak(2.0), 1, 0))
    yield Case("lax.dynamic_update_index_in_dim", (x, 2.0, -1, -1))
    yield Case("lax.dynamic_update_slice", (np.int32(2), np.int32(3), ()))


def _numbers(kind: str, fields: tuple[Any, ...]) -> Callable[[ModuleType], Any]:
    return lambda lib: getattr(lib.lax, kind)(*fields)


def _gather(fields: tuple[Any, ...], sizes: tuple[int, ...], **kwargs: Any) -> Callable[[ModuleType], Any]:
    def made(lib: ModuleType) -> Any:
        numbers = lib.lax.GatherDimensionNumbers(*fields)
        return lambda x, i: lib.lax.gather(x, i, numbers, sizes, **kwargs)

    return made


def _gathers(inputs: Inputs) -> Iterator[Case]:
    for shape, indexed, fields, sizes in (*GATHERS, *BATCHED):
        for mode in (*MODES, inputs.choice(MODES)):
            bounds = {"low": 0, "high": 3} if mode == "promise_in_bounds" else {"low": -3, "high": 7}
            i = inputs.array(indexed, inputs.choice(("int32", "int32", "uint8", "int8")), **bounds)
            if mode == "promise_in_bounds" and i.size:
                limits = [shape[d] - sizes[d] for d in fields[2]]
                i = np.minimum(i, np.asarray(limits)).astype(i.dtype)
            make = _gather(fields, sizes, mode=mode)
            yield Case(f"lax.gather {fields} {sizes} {mode}", (inputs.array(shape, inputs.choice(SOME)), i), make=make)
    table = inputs.array((4, 5), "float32")
    row = GATHERS[2][2:]
    for fill in (0, 2.5, np.nan, -1):
        make = _gather(*row, mode="fill", fill_value=fill)
        yield Case(f"lax.gather fill {fill}", (table, np.asarray([[0], [7]], "int32")), make=make)
    for kind in ("int8", "uint8", "bool", "complex64"):
        make = _gather(*row, fill_value=1)
        yield Case("lax.gather fill 1", (inputs.array((4, 5), kind), np.asarray([[0], [7]], "int32")), make=make)
    make = _gather(*row, unique_indices=True, indices_are_sorted=True)
    yield Case("lax.gather sorted", (table, np.asarray([[0], [2]], "int32")), make=make)
    yield Case("lax.gather floats", (table, inputs.array((3, 1), "float32")), make=_gather(*row))
    yield Case("lax.gather sizes", (table, inputs.array((3, 1), "int32")), make=_gather(row[0], (1,)))
    yield Case("lax.gather mode", (table, inputs.array((3, 1), "int32")), make=_gather(*row, mode="wrap"))


def _scatter(name: str, fields: tuple[Any, ...], **kwargs: Any) -> Callable[[ModuleType], Any]:
    def made(lib: ModuleType) -> Any:
        numbers = lib.lax.ScatterDimensionNumbers(*fields)
        return lambda x, i, u: getattr(lib.lax, name)(x, i, u, numbers, **kwargs)

    return made


def _scatters(inputs: Inputs) -> Iterator[Case]:
    """The same dimension numbers as gathers, the other way round: the updates have a gather's result's shape."""
    for shape, indexed, fields, sizes in (*GATHERS, *BATCHED):
        offset, collapsed, start, *batching = fields
        inner = iter([n for d, n in enumerate(sizes) if d not in collapsed and d not in (batching or ((),))[0]])
        outer = iter(indexed[:-1])
        rank = len(offset) + len(indexed) - 1
        updated = tuple(next(inner) if d in offset else next(outer) for d in range(rank))
        for name in SCATTERS:
            kind = inputs.choice(SOME if name in ("scatter", "scatter_max", "scatter_min") else SOME[:2] + SOME[3:])
            kind = "float32" if kind == "complex64" and name in ("scatter_max", "scatter_min") else kind
            mode = inputs.choice(MODES)
            count = int(np.prod(indexed[:-1], dtype=int))
            # Which of several updates of one element wins is open, as are the extremum's derivatives where they tie.
            room = [shape[d] - sizes[d] + 1 for d in start]
            i = (
                np.stack(
                    [
                        inputs.random.permutation(max(count, r))[:count] % (r if mode == "promise_in_bounds" else 99)
                        for r in room
                    ],
                    -1,
                )
                if room
                else np.zeros((*indexed[:-1], 0))
            )
            overlap = any(sizes[d] > 1 for d in start) or (
                mode in ("clip", "promise_in_bounds") and count > min(room or [9])
            )
            if name == "scatter" and overlap:
                mode, i = None, i[:1].repeat(count, 0) * 0 + 90 * (np.arange(count)[:, None] > 0)
            i = i.reshape(indexed).astype(inputs.choice(("int32", "uint8")))
            x, u = inputs.array(shape, kind), inputs.array(updated, kind)
            make = _scatter(name, (offset, collapsed, start, *batching), mode=mode)
            yield Case(f"lax.{name} {fields} {mode}", (x, i, u), make=make)
    rows = ((1,), (0,), (0,))
    x, i, u = inputs.array((4, 3), "float32"), np.asarray([[1], [3]], "int32"), inputs.array((2, 3), "float32")
    for name in SCATTERS:
        for given in ({"indices_are_sorted": True, "unique_indices": True}, {"mode": "clip", "unique_indices": True}):
            yield Case(f"lax.{name} promises", (x, i, u), make=_scatter(name, rows, **given))
        yield Case(f"lax.{name} dtypes", (x, i, u.astype("int32")), make=_scatter(name, rows))
        yield Case(f"lax.{name} shapes", (x, i, u[:, :2]), make=_scatter(name, rows))
        yield Case(f"lax.{name} empty", (x, i[:0], u[:0]), make=_scatter(name, rows))
        yield Case(
            f"lax.{name} twice",
            (x, i * 0, u),
            make=_scatter(name, rows),
            modes=("call", "jit") if name != "scatter" else (),
        )
    for unique in (True, False):

        def applied(lib: ModuleType, unique: bool = unique) -> Any:
            numbers = lib.lax.ScatterDimensionNumbers(*rows)
            keywords = {"update_shape": (2, 3), "unique_indices": unique}
            return lambda x, i: lib.lax.scatter_apply(x, i, lambda v: v * 2 + 1, numbers, **keywords)

        yield Case(f"lax.scatter_apply {unique}", (x, i), make=applied, modes=("call", "jit", "vmap"))
        yield Case(f"lax.scatter_apply {unique}", (x, i * 9), make=applied, modes=("call", "jit"))
