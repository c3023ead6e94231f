"""``numpy``: order, sets and where elements are that are not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import NUMBERS, REAL, Inputs

UNIQUES = ("unique_all", "unique_counts", "unique_inverse", "unique_values")
PAIRS = ("intersect1d", "union1d", "setdiff1d", "setxor1d")
WHERE = ("nonzero", "flatnonzero", "argwhere")
EAGER = ("call",)  # the size of what comes out hangs on the values
NANS = np.asarray([np.nan, 1.0, -0.0, np.nan, 0.0, np.inf, -np.inf, 1.0], "float32")


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random)


def _cases(inputs: Inputs) -> Iterator[Case]:
    yield from _sorts(inputs)
    yield from _partitions(inputs)
    yield from _uniques(inputs)
    yield from _pairs(inputs)
    yield from _members(inputs)
    yield from _places(inputs)


def _few(inputs: Inputs, shape: Any = None, dtypes: Any = NUMBERS) -> np.ndarray:
    """An array in which the same values come again."""
    x = inputs.array(shape, dtypes, low=-2, high=3)
    return (
        x
        if x.dtype.kind in "biu"
        else np.round(x.astype("complex64" if x.dtype.kind == "c" else "float32")).astype(x.dtype)
    )


def _sorts(inputs: Inputs) -> Iterator[Case]:
    for name in ("sort", "argsort"):
        for dtype in NUMBERS:
            for x in (inputs.array(dtypes=dtype, odd=0.2), _few(inputs, (2, 4), dtype)):
                kwargs: dict[str, Any] = {"axis": inputs.axis(x.ndim) if x.ndim and inputs.chance(0.7) else None}
                if inputs.chance(0.5):
                    kwargs["descending"] = True
                if inputs.chance(0.3):
                    kwargs["stable"] = False
                if kwargs.get("stable") is False and name == "argsort":
                    kwargs["stable"] = True  # of equal elements any may come first
                yield Case(f"numpy.{name}", (x,), kwargs)
        for x in (inputs.array((2, 3), "float32"), NANS, [3, 1, 2], Weak(1.0), [0.5, -1.0], np.zeros((0,), "int8")):
            yield Case(f"numpy.{name}", (x,))
            yield Case(f"numpy.{name}", (x,), {"descending": True})
        yield Case(f"numpy.{name}", (inputs.array((3, 0), "float32"), 0))
        yield Case(f"numpy.{name}", (inputs.array((3, 2), "float32"), 2))
        yield Case(f"numpy.{name}", (inputs.array((3, 2), "float32"),), {"kind": "mergesort"})
        yield Case(f"numpy.{name}", (inputs.array((3, 2), "float32"),), {"order": "x"})
        yield Case(f"numpy.{name}", (inputs.array((2, 600), "float32"),), {"axis": inputs.choice((0, 1))})
    yield Case("numpy.argsort", (inputs.array((5,), "float32"),), {"dtype": inputs.choice(("int8", "uint32", int))})
    for dtype in NUMBERS:
        yield Case("numpy.sort_complex", (inputs.array((4,), dtype, odd=0.2),))
        keys = [_few(inputs, (5,), dtype), _few(inputs, (5,)), _few(inputs, (5,))]
        yield Case("numpy.lexsort", (keys,), modes=("call", "jit", "vmap"))
        yield Case("numpy.lexsort", (_few(inputs, (2, 3, 4), dtype),), {"axis": inputs.choice((0, 1, -1))})
    yield Case("numpy.sort_complex", (inputs.array((2, 3), "complex64"),))
    for keys in (
        [NANS, NANS[::-1].copy()],
        [np.zeros((0,), "float32")],
        [],
        (np.asarray(1, "int8"),),
        ([1, 0], [0, 0]),
    ):
        yield Case("numpy.lexsort", (keys,))
    yield Case("numpy.lexsort", ([np.zeros(2, "int32"), np.zeros(3, "int32")],))

    def method(name: str) -> Any:
        return lambda lib: lambda x, **kwargs: getattr(x, name)(**kwargs)

    for name in ("sort", "argsort"):
        yield Case(f"Array.{name}", (inputs.array((2, 3), REAL),), {"axis": 0}, make=method(name))
        yield Case(f"Array.{name}", (inputs.array((2, 3), REAL),), {"descending": True}, make=method(name))


def _partitions(inputs: Inputs) -> Iterator[Case]:
    for name in ("partition", "argpartition"):
        for dtype in NUMBERS:
            x = inputs.array(inputs.choice(((5,), (2, 4), (1,), (3, 1, 2))), dtype, odd=0.1)
            axis = inputs.axis(x.ndim)
            kth = int(inputs.random.integers(-x.shape[axis], x.shape[axis]))
            yield Case(f"numpy.{name}", (x, kth), {"axis": axis})
        for x in (NANS, [3, 1, 2], np.arange(7, dtype="int32")[::-1].copy(), _few(inputs, (3, 6), "int32")):
            yield Case(f"numpy.{name}", (x, 2))
        for kth in (0, -1, 9, 1.0, [0, 1]):
            yield Case(f"numpy.{name}", (inputs.array((4,), "float32"), kth))
        yield Case(f"numpy.{name}", (np.asarray(2.0, "float32"), 0))
        yield Case(f"numpy.{name}", (np.zeros((0,), "float32"), 0))

    def method(name: str) -> Any:
        return lambda lib: lambda x, kth: getattr(x, name)(kth)

    yield Case("Array.argpartition", (inputs.array((6,), "float32"), 3), make=method("argpartition"))


def _uniques(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = _few(inputs, dtypes=dtype)
        flags = {f"return_{what}": True for what in ("index", "inverse", "counts") if inputs.chance(0.5)}
        axis = inputs.axis(x.ndim) if x.ndim and inputs.chance(0.6) else None
        yield Case("numpy.unique", (x,), {**flags, "axis": axis}, modes=EAGER)
        sized = {**flags, "axis": axis, "size": inputs.choice((1, 3, 6))}
        if inputs.chance(0.5):
            sized["fill_value"] = inputs.choice((7, 0.5, -1, np.asarray(9, "int32")))
        yield Case("numpy.unique", (x,), sized)
        for name in UNIQUES:
            yield Case(f"numpy.{name}", (_few(inputs, dtypes=dtype),), modes=EAGER)
            given = {"size": inputs.choice((1, 4, 0)), **({"fill_value": 5} if inputs.chance(0.5) else {})}
            yield Case(f"numpy.{name}", (_few(inputs, dtypes=dtype),), given, modes=("call", "jit", "vmap"))
    for x in (NANS, [1, 2, 1], Weak(2), np.zeros((0,), "float32"), np.zeros((0, 3), "int32"), np.zeros((2, 0), "int8")):
        yield Case("numpy.unique", (x,), modes=EAGER)
        yield Case("numpy.unique", (x,), {"return_inverse": True, "return_counts": True}, modes=EAGER)
        yield Case("numpy.unique", (x,), {"size": 3, "return_index": True})
    for equal in (True, False):
        yield Case("numpy.unique", (NANS,), {"equal_nan": equal, "return_counts": True}, modes=EAGER)
        yield Case("numpy.unique", (np.stack([NANS, NANS]),), {"equal_nan": equal, "axis": 0}, modes=EAGER)
        yield Case("numpy.unique", (NANS,), {"equal_nan": equal, "size": 6, "return_inverse": True})
    yield Case("numpy.unique", (inputs.array((3,), "float32"),), {"sorted": False}, modes=EAGER)
    yield Case("numpy.unique", (inputs.array((3, 2), "float32"),), {"axis": 3}, modes=EAGER)
    yield Case("numpy.unique", (_few(inputs, (4, 3), "int32"),), {"axis": 0, "size": 3, "return_inverse": True})


def _pairs(inputs: Inputs) -> Iterator[Case]:
    for name in PAIRS:
        for dtype in NUMBERS:
            x, y = _few(inputs, dtypes=dtype), _few(inputs, dtypes=inputs.choice((dtype, "int32", "float32")))
            yield Case(f"numpy.{name}", (x, y), modes=EAGER)
            sized: dict[str, Any] = {"size": inputs.choice((1, 4, 7))}
            if inputs.chance(0.5):
                sized["fill_value"] = inputs.choice((7, -1, 0.5))
            yield Case(f"numpy.{name}", (x, y), sized, modes=("call", "jit", "vmap"))
        for pair in (
            (NANS, NANS[:3]),
            ([1, 2], [2, 3]),
            (np.zeros((0,), "float32"), np.ones(2, "float32")),
            (2, [1, 2]),
        ):
            yield Case(f"numpy.{name}", pair, modes=EAGER)
            yield Case(f"numpy.{name}", pair, {"size": 3})
        if name == "union1d":
            continue
        x, y = np.arange(5, dtype="int32"), np.asarray([7, 3, 1], "int32")
        yield Case(f"numpy.{name}", (x, y), {"assume_unique": True}, modes=EAGER)
        yield Case(f"numpy.{name}", (x, y), {"assume_unique": True, "size": 4})
    for _ in range(6):
        x, y = _few(inputs, (5,), ("int32", "float32")), _few(inputs, (4,), ("int32", "float32"))
        yield Case("numpy.intersect1d", (x, y), {"return_indices": True}, modes=EAGER)
        yield Case("numpy.intersect1d", (x, y), {"return_indices": True, "size": inputs.choice((2, 6))})
        x, y = np.unique(x), np.unique(y)
        yield Case("numpy.intersect1d", (x, y), {"return_indices": True, "assume_unique": True}, modes=EAGER)


def _members(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x, y = _few(inputs, dtypes=dtype), _few(inputs, dtypes=inputs.choice((dtype, "int32", "float32", "bool")))
        yield Case("numpy.isin", (x, y), {"invert": inputs.chance(0.4)})
        yield Case("numpy.isin", (x, y), {"method": inputs.choice(("auto", "compare_all", "binary_search", "sort"))})
    for pair in ((NANS, NANS), ([1, 2], 2), (Weak(2), [1, 2]), (np.zeros((0, 2), "float32"), 1), (3, [])):
        yield Case("numpy.isin", pair)
    yield Case("numpy.isin", (np.arange(4), np.asarray([2, 3])), {"assume_unique": True})


def _places(inputs: Inputs) -> Iterator[Case]:
    for name in WHERE:
        for dtype in NUMBERS:
            x = _few(inputs, dtypes=dtype)
            yield Case(f"numpy.{name}", (x,), modes=EAGER)
            sized: dict[str, Any] = {"size": inputs.choice((0, 2, 5))}
            if inputs.chance(0.6):
                sized["fill_value"] = inputs.choice((-1, 7, np.asarray(3, "int8"), 1.5))
            yield Case(f"numpy.{name}", (x,), sized, modes=("call", "jit", "vmap"))
        for x in (NANS, [0, 1], Weak(2), np.zeros((0, 2), "float32"), np.asarray(3), np.asarray(0)):
            yield Case(f"numpy.{name}", (x,), modes=EAGER)
            yield Case(f"numpy.{name}", (x,), {"size": 3})
        yield Case(f"numpy.{name}", (inputs.array((2, 3), "bool"),), {"size": 4, "fill_value": (5, 6)})
    for dtype in NUMBERS:
        x = _few(inputs, (2, 3), dtype)
        yield Case("numpy.where", (x,), modes=EAGER)
        yield Case("numpy.where", (x,), {"size": 4, "fill_value": inputs.choice((None, 1, -2))})
        yield Case("numpy.extract", (x, inputs.array((2, 3))), modes=EAGER)
        yield Case("numpy.extract", (x, inputs.array((2, 3))), {"size": 4, "fill_value": inputs.choice((0, 2, 0.5))})
        axis = inputs.choice((None, 0, 1, -1))
        condition = inputs.array((2,), "bool")
        yield Case("numpy.compress", (condition, x, axis), modes=EAGER)
        yield Case("numpy.compress", (condition, x, axis), {"size": 3, "fill_value": 1})
    yield Case("numpy.compress", ([True, False, True], inputs.array((2,), "float32")), modes=EAGER)
    yield Case("numpy.compress", ([0, 1, 2], [0.5, 1.0, 2.0]), modes=EAGER)
    yield Case("numpy.compress", (np.ones((2, 2), bool), np.ones((2, 2), "float32")), modes=EAGER)

    def method(name: str, **kwargs: Any) -> Callable[[ModuleType], Any]:
        return lambda lib: lambda x: getattr(x, name)(**kwargs)

    yield Case("Array.nonzero", (_few(inputs, (2, 3)),), make=method("nonzero"), modes=EAGER)
    yield Case("Array.nonzero", (_few(inputs, (2, 3)),), make=method("nonzero", size=2))
    x = inputs.array((3, 2), "float32")
    yield Case("Array.compress", (x,), make=method("compress", condition=[True, False, True], axis=0))
