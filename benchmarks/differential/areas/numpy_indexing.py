"""``numpy``: reading by index in all forms, ``.at[index]`` and its updates, functions that take or find indices."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import NUMBERS, REAL, Inputs

# Of an array of shape (2, 3, 4).
PLAIN: tuple[Any, ...] = (
    *(0, -1, 5, -9, np.int8(1), np.s_[0, 1], np.s_[0, 1, 2], np.s_[-1, -1, -1], np.s_[0, 9], ...),
    *(None, np.s_[None, ..., None], np.s_[..., 1], np.s_[1:, ::2], np.s_[::-1], np.s_[:, ::-2, 1:-1], np.s_[5:], ()),
    *(np.s_[:, None, 1], np.s_[-2:9, 3:0:-1], np.s_[0:0], np.s_[None, 0, ..., None, 1], np.s_[:, :, :], np.s_[..., :1]),
    *(True, False, np.s_[True, 0], np.s_[0, :, ::3], np.s_[-100:100:5], np.s_[1::-1, None], np.s_[2:1, 0], np.s_[1.5]),
    *(np.s_[0, 0, 0, 0], np.s_[..., ...], "x", np.s_[:, 0:2, [1]]),
)
LISTS: tuple[Any, ...] = (
    *([0, 1], [0, -1, 5], np.s_[:, [0, 2]], np.s_[[0, 1], [2, -1]], np.s_[[0, 1], :, [1, 3]], np.s_[..., [3, 3, 0]]),
    *(np.asarray([[0, 1], [1, 0]]), np.s_[np.asarray([1, 0]), 1:], np.s_[0, [0, 1], 0], [], np.zeros((0, 2), int)),
    *(
        np.s_[[[0], [1]], [0, 2, 1]],
        np.s_[None, [0, 1]],
        np.s_[:, np.int16([2, 0]), None],
        np.s_[np.uint8([1]), ..., 0],
    ),
    *([True, False], np.asarray([False, False]), np.s_[:, [True, False, True]], np.s_[[True, True], [0, 1]]),
    *(np.s_[0, [True, False, True]], np.ones((2, 3), bool), np.s_[..., [True, False, False, True]], np.s_[[True], 0]),
    *(np.s_[np.ones((2, 3), bool), 1], np.s_[[1, 0], None, [2, 0]], np.s_[np.asarray(1), [2, 0]], np.asarray(True)),
    *(np.s_[:, -1, [-9, 9]], np.s_[[0, 1], [0, 1, 2]], np.s_[np.asarray([0.5])]),
)
TRACED: tuple[str, ...] = (
    "x[i]",
    "x[:, i]",
    "x[i, 0]",
    "x[..., i]",
    "x[i, ..., j]",
    "x[i, j]",
    "x[None, i]",
    "x[i, 1:, j]",
)
UPDATES = ("set", "add", "subtract", "multiply", "mul", "divide", "div", "power", "pow", "min", "max")
MODES = (None, "drop", "clip", "fill", "promise_in_bounds", "wrap")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _read(inputs)
    yield from _got(inputs)
    yield from _updated(inputs)
    yield from _taken(inputs)
    yield from _put(inputs)
    yield from _found(inputs)


def _reader(index: Any) -> Any:
    return lambda lib: lambda x: x[index]


def _read(inputs: Inputs) -> Iterator[Case]:
    for index in PLAIN + LISTS:
        x = inputs.array((2, 3, 4), NUMBERS)
        yield Case(f"x[{index!r}]", (x,), make=_reader(index))
    for index in (0, (), ..., None, True, np.asarray(True), [0], np.s_[0:1], np.s_[..., None]):
        yield Case(f"0-d x[{index!r}]", (inputs.array((), NUMBERS),), make=_reader(index))
        yield Case(f"weak x[{index!r}]", (Weak(1.5),), make=lambda lib, i=index: lambda x: lib.numpy.asarray(x)[i])
    for index in (0, -1, [], [0], np.s_[::-1], np.s_[2:], np.s_[:, 1], np.zeros((0, 3), bool)):
        yield Case(f"x[{index!r}] of (0, 3)", (inputs.array((0, 3), NUMBERS),), make=_reader(index))
    for text in TRACED:
        made = eval(f"lambda lib: lambda x, i, j: {text}")
        for shape in ((), (2,), (2, 1), (0,)):
            kind = inputs.choice(("int32", "int8", "uint8", "uint32", "int16"))
            i, j = (inputs.array(shape, kind, low=-4, high=6) for _ in range(2))
            yield Case(text, (inputs.array((2, 3, 4), NUMBERS), i, j), make=made)
    i = inputs.array((2, 3), "bool")
    yield Case("x[bool array]", (inputs.array((2, 3, 4)), i), make=lambda lib: lambda x, i: x[i], modes=("call", "jit"))


def _got(inputs: Inputs) -> Iterator[Case]:
    indices = (
        0,
        7,
        -9,
        [0, 5, -1],
        np.s_[:, [1, 8]],
        np.s_[[0, 9], [2, -7]],
        np.s_[1:, ::-1],
        np.s_[..., 9],
        [True, False],
    )
    for index in indices:
        for mode in MODES:
            kind = inputs.choice(NUMBERS)
            options = {"mode": mode, "unique_indices": inputs.chance(0.2), "indices_are_sorted": inputs.chance(0.2)}
            if mode in ("fill", None):
                options["fill_value"] = inputs.choice((None, 0, 7, -1))
            made = lambda lib, i=index, o=options: lambda x: x.at[i].get(**o)
            text = f"x.at[{index!r}].get({options})"
            yield Case(text, (inputs.array((2, 3, 4), kind),), make=made)
    made = lambda lib: lambda x: x.at[np.asarray([-1, 5])].get(mode="fill", wrap_negative_indices=False)
    yield Case("x.at[[-1, 5]].get(wrap_negative_indices=False)", (inputs.array((3,), "float32"),), make=made)


def _fitting(kind: str) -> tuple[str, ...]:
    """What can be written into ``kind``: JAX casts complex numbers, and warns that it soon will not."""
    return NUMBERS if kind == "complex64" else REAL


def _updated(inputs: Inputs) -> Iterator[Case]:
    indices = (
        0,
        [0, 5, -1],
        np.s_[:, [1, 2]],
        np.s_[[0, 1, 0], [2, -1, 2]],
        np.s_[1:, ::-1],
        np.s_[..., 9],
        [True, False],
        (),
    )
    for name in UPDATES:
        for index in indices:
            kind = inputs.choice(NUMBERS)
            x = inputs.array((2, 3, 4), kind)
            arrays = inputs.array((4,)[: int(index != ())], _fitting(kind)), inputs.array((), _fitting(kind))
            value = inputs.choice((2, -1.5, True, np.float32(2), *arrays))
            repeats = name in ("multiply", "mul", "divide", "div", "power", "pow") and index == indices[3]
            options = {"mode": inputs.choice(MODES[:5])} if inputs.chance(0.5) else {}
            if inputs.chance(0.2) and not repeats and index != indices[3]:
                options["unique_indices"] = True
            text = f"x.at[{index!r}].{name}(y, {options})"

            def made(lib: ModuleType, i: Any = index, n: str = name, o: Any = options) -> Any:
                return lambda v, w: getattr(v.at[i], n)(w, **o)

            modes = ("call", "jit", "vmap") if repeats else ("call", "jit", "jvp", "vjp", "vmap")
            yield Case(text, (x, value), make=made, modes=modes)

        def traced(lib: ModuleType, n: str = name) -> Any:
            return lambda v, at, w: getattr(v.at[at], n)(w)

        for shape in ((), (3,)):
            i = inputs.array(shape, ("int32", "uint8"), low=-5, high=5)
            x, y = inputs.array((4, 2), "complex64"), inputs.array((*shape, 2)[-1:], NUMBERS)
            x = x if inputs.chance(0.3) or y.dtype.kind == "c" else inputs.array((4, 2), REAL)
            yield Case(f"x.at[i].{name}(y)", (x, i, y), make=traced, modes=("call", "jit", "vmap"))
        yield Case(
            f"x.at[i].{name}(y)", (inputs.array((4, 2)), np.asarray([2, 0]), inputs.array((2, 2), REAL)), make=traced
        )

        def masked(lib: ModuleType, n: str = name) -> Any:
            return lambda v, at, w: getattr(v.at[at], n)(w)

        mask = inputs.array((4, 2), "bool")
        yield Case(f"x.at[mask].{name}(y)", (inputs.array((4, 2)), mask, Weak(inputs.choice((2, 0.5)))), make=masked)
        yield Case(
            f"0-d x.at[()].{name}(y)",
            (inputs.array(()), inputs.array((), REAL)),
            make=lambda lib, n=name: lambda v, w: getattr(v.at[()], n)(w),
        )
    for index in (0, [0, 1], np.s_[::2], [True, False, True], np.s_[5]):
        made = lambda lib, i=index: lambda x: x.at[i].apply(lib.numpy.sin)
        yield Case(
            f"x.at[{index!r}].apply(sin)", (inputs.array((3, 2), "float32"),), make=made, modes=("call", "jit", "vmap")
        )


def _taken(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        x = inputs.array((3, 4), kind)
        index = inputs.array(inputs.choice(((), (2,), (2, 2), (0,))), ("int32", "uint8", "int8"), low=-6, high=6)
        options = {"axis": inputs.choice((None, 0, 1, -1)), "mode": inputs.choice((None, "clip", "wrap", "fill"))}
        yield Case("numpy.take", (x, index), options)
        yield Case("numpy.take", (x, [0, -1], 1), {"mode": "fill", "fill_value": inputs.choice((7, None))})
        yield Case("numpy.take", (x, 9), {"unique_indices": True, "indices_are_sorted": True})
        axis = inputs.choice((0, 1, -1, None))
        shape = (5,) if axis is None else inputs.choice(((3, 4), (1, 4), (3, 1), (2, 4) if axis == 0 else (3, 2)))
        index = inputs.array(shape, ("int32", "int16"), low=-5, high=5)
        mode = inputs.choice((None, "clip", "fill", "promise_in_bounds"))
        yield Case("numpy.take_along_axis", (x, index, axis), {"mode": mode})
        yield Case("numpy.compress", ([True, False, True], x), {"axis": inputs.choice((0, 1, None))})
        fill = {"size": 3, "fill_value": 9}
        yield Case("numpy.compress", (inputs.array((3,), "bool"), x), {"axis": 0, **fill})
        yield Case("numpy.extract", (inputs.array((3, 4), "bool"), x), modes=("call",))
        yield Case("numpy.extract", (inputs.array((3, 4), ("bool", "int32")), x), fill)
        yield Case("numpy.ix_", (inputs.array((2,), "int32"), inputs.array((3,), "bool")), modes=("call",))
        yield Case(
            "numpy.diagonal", (inputs.array((2, 3, 4), kind), inputs.choice((0, 1, -1)), inputs.choice((0, -1)), 1)
        )
        yield Case("numpy.unravel_index", (inputs.array((3,), ("int32", "uint8"), low=-14, high=14), (3, 4)))
        multi = tuple(inputs.array((3,), "int32", low=-1, high=4) for _ in range(2))
        yield Case("numpy.ravel_multi_index", (multi, (3, 4)), {"mode": inputs.choice(("clip", "wrap")), "order": "F"})
    yield Case("numpy.ix_", ([0, 2], [1, 0, 3], [2]))
    yield Case("numpy.ix_", (inputs.array((2, 2), "int32"),))
    yield Case("numpy.take", (inputs.array((0,)), np.asarray([0])))
    yield Case("numpy.take", (inputs.array((3,)), np.asarray([0.5], "float32")))
    yield Case("numpy.take_along_axis", (inputs.array((3, 4)), np.asarray([1, 2]), 0))
    yield Case("numpy.compress", (inputs.array((5,), "bool"), inputs.array((3,))), modes=("call",))


def _put(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        x, y = inputs.array((3, 4), kind), inputs.array(inputs.choice(((2,), (), (1,), (5,))), _fitting(kind))
        index = inputs.array((3,), ("int32", "uint8"), low=-5, high=9)
        index[1] = index[0] + 1 if index[0] != 254 else 0
        index[2] = index[0] + 2
        mode = inputs.choice((None, "clip", "wrap"))
        yield Case("numpy.put", (x, index, y), {"mode": mode, "inplace": False})
        index = inputs.random.permutation(3)[: inputs.choice((1, 2, 3))].astype("int32")[:, None] * np.ones(
            (1, 4), "int32"
        )
        value = inputs.choice((2, 1.5, inputs.array((4,), _fitting(kind)), inputs.array(index.shape, _fitting(kind))))
        yield Case("numpy.put_along_axis", (x, index, value, 0), {"inplace": False})
        mask = inputs.array((3, 4), "bool")
        yield Case("numpy.place", (x, mask, inputs.array(inputs.choice(((2,), (12,), (1,))), kind)), {"inplace": False})
        value = inputs.choice((7, 1.5, inputs.array((2,), _fitting(kind)), inputs.array((), _fitting(kind))))
        yield Case("numpy.fill_diagonal", (x, value), {"inplace": False, "wrap": inputs.chance(0.5)})
    for shape in ((5, 2), (3, 3, 3), (2, 3), (3,)):
        yield Case("numpy.fill_diagonal", (inputs.array(shape), 7), {"inplace": False, "wrap": inputs.chance(0.5)})
    yield Case("numpy.put", (inputs.array((3,)), [0, 1], [5, 6]), {"inplace": False})
    yield Case("numpy.put", (inputs.array((3,)), 0, 1))
    yield Case("numpy.place", (inputs.array((3,)), [True, False, True], [5, 6, 7]), {"inplace": False})


def _found(inputs: Inputs) -> Iterator[Case]:
    modes = ("call", "jit", "jvp", "vjp")  # a map would be over a reversed array too, which is not sorted
    for kind in NUMBERS:
        x = np.sort(inputs.array((5,), kind))
        y = inputs.array(dtypes=inputs.choice((kind, kind, inputs.choice(NUMBERS))), odd=0.1)
        side, method = inputs.choice(("left", "right")), inputs.choice(("scan", "sort", "compare_all", "scan_unrolled"))
        yield Case("numpy.searchsorted", (x, y), {"side": side, "method": method}, modes=modes)
        yield Case("numpy.searchsorted", (x, inputs.choice((2, 0.5, -1))), modes=modes)
        order = inputs.random.permutation(5).astype("int32")
        sorter = np.argsort(order).astype("int32")
        yield Case("numpy.searchsorted", (x[order], y, side, sorter), modes=modes)
        options = {"right": inputs.chance(0.5), "method": inputs.choice((None, "sort"))}
        yield Case("numpy.digitize", (y, x), options, modes=modes)
        yield Case("numpy.digitize", (y, x[::-1].copy()), {"right": inputs.chance(0.5)}, modes=modes)
        z = inputs.array((2, 3), kind, odd=0.2) * inputs.array((2, 3), "bool").astype(kind)
        for name in ("nonzero", "argwhere", "flatnonzero"):
            yield Case(f"numpy.{name}", (z,), modes=("call",))
            yield Case(
                f"numpy.{name}", (z,), {"size": inputs.choice((0, 3, 8)), "fill_value": inputs.choice((None, -1))}
            )
    for name in ("nonzero", "argwhere", "flatnonzero"):
        for shape in ((), (0,), (2, 0)):
            yield Case(f"numpy.{name}", (inputs.array(shape),), modes=("call",))
    nan = np.asarray([1.0, np.nan, -np.inf, 5.0], "float32")
    yield Case("numpy.searchsorted", (np.asarray([-1.0, 1.0, np.inf, np.nan], "float32"), nan))
    yield Case("numpy.searchsorted", (inputs.array((0,)), inputs.array((2,))))
    yield Case("numpy.searchsorted", (inputs.array((2, 2)), 1))
    yield Case("numpy.digitize", (nan, inputs.array((0,), "float32")))
