"""``lax``: collectives, along an axis that ``vmap`` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import Inputs

ALL = ("call", "jit", "jvp", "vjp", "vmap")
KINDS = ("float32", "bfloat16", "int32", "complex64", "bool", "uint8")
Made = Callable[[ModuleType], Any]


def cases(inputs: Inputs) -> Iterator[Case]:
    for part in (_sums, _moves, _names, _nested):
        yield from part(inputs)


def _along(name: str, *rest: Any, **kwargs: Any) -> Made:
    return lambda lib: lib.vmap(lambda x: getattr(lib.lax, name)(x, "i", *rest, **kwargs), axis_name="i")


def _plus(name: str, *rest: Any, **kwargs: Any) -> Made:
    """With elementwise work around, and what is not mapped beside it."""

    def made(lib: ModuleType) -> Any:
        return lib.vmap(lambda x: x * getattr(lib.lax, name)(lib.numpy.sin(x), "i", *rest, **kwargs), axis_name="i")

    return made


def _unmapped(name: str) -> Made:
    return lambda lib: lambda x, y: lib.vmap(lambda v: v + getattr(lib.lax, name)(y, "i"), axis_name="i")(x)


def _of_two(name: str) -> Made:
    return lambda lib: lib.vmap(lambda x: x * getattr(lib.lax, name)(2, "i"), axis_name="i")


def _unbound(name: str) -> Made:
    return lambda lib: lambda x: getattr(lib.lax, name)(x, "nothing")


def _sums(inputs: Inputs) -> Iterator[Case]:
    for name in ("psum", "pmean", "pmax", "pmin"):
        for kind in KINDS:
            x = inputs.array(inputs.choice(((4,), (4, 2), (3, 2), (1, 2), (4, 0))), kind)
            yield Case(f"lax.{name}", (x,), make=_along(name))
        yield Case(f"lax.{name} around", (inputs.array((4, 2), "float32"),), make=_plus(name), modes=ALL)
        x = inputs.array((4, 2), "float32")
        groups = [[0, 1], [2, 3]]
        yield Case(f"lax.{name} groups", (x,), make=_along(name, axis_index_groups=groups))
        yield Case(f"lax.{name} tree", ({"a": x, "b": (x[:, 0], None)},), make=_along(name))
        yield Case(f"lax.{name} nan", (np.asarray([1, np.nan, np.inf], "float32"),), make=_along(name))
        yield Case(f"lax.{name} unmapped", (x, inputs.array((2,), "float32")), make=_unmapped(name))
        yield Case(f"lax.{name} number", (x,), make=_of_two(name))
        yield Case(f"lax.{name} unbound", (x,), make=_unbound(name))
    row = np.asarray([[3, 1], [3, 5], [0, 1]], "float32")
    yield Case("lax.psum int", (np.asarray([100, 100], "int8"),), make=_along("psum"))
    yield Case("lax.pmean ints", (np.asarray([1, 2, 4], "int32"),), make=_along("pmean"))
    yield Case("lax.pmax ties", (row,), make=_along("pmax"))


def _moves(inputs: Inputs) -> Iterator[Case]:
    for kind in KINDS:
        x = inputs.array((4, 4, 2), kind)
        axis, tiled = inputs.choice((0, 1, 2, -1)), inputs.chance(0.5)
        yield Case(
            f"lax.all_gather {axis} {tiled}",
            (x,),
            make=_along("all_gather", axis=min(axis, 1) if tiled else axis, tiled=tiled),
        )
        split, concat = inputs.choice(((0, 0), (0, 1), (0, -1)))
        yield Case(f"lax.all_to_all {split} {concat}", (x,), make=_along("all_to_all", split, max(concat, 0)))
        tiles = _along("all_to_all", split, max(concat, 0), tiled=True)
        yield Case(f"lax.all_to_all tiled {split} {concat}", (x,), make=tiles)
        for perm in ([(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 2)], []):
            yield Case(f"lax.ppermute {perm}", (x,), make=_along("ppermute", perm))
        yield Case("lax.pshuffle", (x,), make=_along("pshuffle", [int(i) for i in inputs.random.permutation(4)]))
        yield Case("lax.pswapaxes", (x,), make=_along("pswapaxes", 0))
        source = inputs.choice((0, 3))
        yield Case(f"lax.pbroadcast {source}", (x,), make=_along("pbroadcast", source))
        if kind != "bool":
            for tiled in (False, True):
                yield Case(
                    f"lax.psum_scatter {tiled}", (x,), make=_along("psum_scatter", scatter_dimension=0, tiled=tiled)
                )
    x = inputs.array((4, 4, 2), "float32")
    groups = [[0, 1], [2, 3]]
    yield Case("lax.all_gather groups", (x,), make=_along("all_gather", axis_index_groups=groups))
    yield Case("lax.psum_scatter groups", (x[:, :2],), make=_along("psum_scatter", axis_index_groups=groups))
    yield Case(
        "lax.all_gather around",
        (x,),
        make=lambda lib: lib.vmap(lambda v: (lib.lax.all_gather(lib.numpy.sin(v), "i") * v).sum(0), axis_name="i"),
    )
    yield Case("lax.ppermute around", (x,), make=_plus("ppermute", [(0, 1), (1, 0), (2, 3)]))
    yield Case("lax.ppermute tree", ((x, {"a": x[:, 0, 0]}),), make=_along("ppermute", [(0, 3), (3, 0)]))
    yield Case("lax.psum_scatter second", (x.swapaxes(1, 2).copy(),), make=_along("psum_scatter", scatter_dimension=1))
    yield Case("lax.psum_scatter sizes", (x[:, :3],), make=_along("psum_scatter"))
    yield Case("lax.all_to_all sizes", (x[:, :3],), make=_along("all_to_all", 0, 0))
    yield Case("lax.ppermute twice", (x,), make=_along("ppermute", [(0, 1), (0, 2)]))
    yield Case("lax.pshuffle wrong", (x,), make=_along("pshuffle", [0, 0, 1, 2]))


def _names(inputs: Inputs) -> Iterator[Case]:
    x = inputs.array((3, 2), "float32")

    def index(lib: ModuleType) -> Any:
        return lib.vmap(
            lambda v: (v * lib.lax.axis_index("i"), lib.lax.axis_index("i"), lib.lax.axis_size("i")), axis_name="i"
        )

    def two(lib: ModuleType) -> Any:
        inner = lambda v: (lib.lax.psum(v, ("i", "j")), lib.lax.axis_index(("i", "j")), lib.lax.axis_size(("j", "i")))
        return lib.vmap(lib.vmap(inner, axis_name="j"), axis_name="i")

    def size(lib: ModuleType) -> Any:
        return lambda: lib.vmap(lambda: lib.lax.axis_index("i"), axis_name="i", axis_size=4)()

    def unbound(lib: ModuleType) -> Any:
        return lambda x: x * lib.lax.axis_index("k")

    yield Case("lax.axis_index", (x,), make=index)
    yield Case("lax.axis_index two", (x,), make=two)
    yield Case("lax.axis_index alone", (), make=size)
    yield Case("lax.axis_index unbound", (x,), make=unbound)
    yield Case(
        "lax.psum one",
        (Weak(2.0), x),
        make=lambda lib: lambda y, x: lib.vmap(lambda v: v * lib.lax.psum(y, "i"), axis_name="i")(x),
    )


def _nested(inputs: Inputs) -> Iterator[Case]:
    """Two named axes, derivatives inside, control flow inside."""
    x, y = inputs.array((2, 3), "float32"), inputs.array((3, 2, 2), "float32")

    def outer(name: str) -> Made:
        def made(lib: ModuleType) -> Any:
            return lib.vmap(lib.vmap(lambda v: getattr(lib.lax, name)(v, "i"), axis_name="j"), axis_name="i")

        return made

    def grads(lib: ModuleType) -> Any:
        return lib.vmap(lib.grad(lambda v: lib.lax.psum(lib.numpy.sin(v) * v, "i")), axis_name="i")

    def scanned(lib: ModuleType) -> Any:
        step = lambda c, x: (lib.lax.pmean(c + x, "i"), c)
        return lib.vmap(lambda xs: lib.lax.scan(step, lib.numpy.zeros((2,)), xs), axis_name="i")

    def normalized(lib: ModuleType) -> Any:
        return lib.vmap(
            lambda v: v / lib.numpy.sqrt(lib.lax.pmean(v * v, "i") + 1), axis_name="i", in_axes=1, out_axes=1
        )

    def jitted(lib: ModuleType) -> Any:
        return lib.vmap(lib.jit(lambda v: lib.lax.all_gather(v, "i").sum(0) + v), axis_name="i")

    for name in ("psum", "pmax", "all_gather", "pmean"):
        yield Case(f"lax.{name} outer", (x,), make=outer(name))
    yield Case("lax.psum gradient", (x,), make=grads)
    yield Case("lax.pmean scanned", (y,), make=scanned)
    yield Case("lax.pmean normalized", (x,), make=normalized)
    yield Case("lax.all_gather jitted", (x,), make=jitted)
