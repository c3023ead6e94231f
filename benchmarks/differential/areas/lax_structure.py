"""``lax``: what makes arrays, changes their shape, joins, cuts and pads them, and sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import FLOATS, NUMBERS, REAL, Inputs, dtype

DATA = ("call", "jit", "vjp", "vmap")  # movements of data are their own tangents
FIXED = ("call", "jit")
SOME = ("float32", "float32", "bool", "int8", "uint32", "bfloat16", "float16", "complex64", "int32")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _made(inputs)
    yield from _shapes(inputs)
    yield from _axes(inputs)
    yield from _joined(inputs)
    yield from _padded(inputs)
    yield from _sorted(inputs)
    yield from _bits(inputs)


def _made(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        yield Case("lax.iota", (kind, inputs.choice((0, 1, 5))), modes=FIXED)
        yield Case("lax.broadcasted_iota", (kind, (2, 3), inputs.choice((0, 1))), modes=FIXED)
        yield Case(
            "lax.full", ((2, 0, 3)[: inputs.choice((0, 1, 3))], inputs.choice((1, 0.5, True)), kind), modes=FIXED
        )
        yield Case("lax.full_like", (inputs.array(dtypes=kind), inputs.choice((0, 2, 0.5, True))))
        yield Case("lax.full_like", (inputs.array((2,), "float32"), 3, kind))
        yield Case("lax.full", ((2,), inputs.array((), kind)))
        yield Case("lax.empty", ((2, 0), kind), modes=FIXED)
    for made in (int, float, complex, bool, "int8", None):
        yield Case("lax.iota", (made, 3), modes=FIXED)
        yield Case("lax.full", ((2,), 1.5, made), modes=FIXED)
        yield Case("lax.full", ((2,), Weak(2), made), modes=FIXED)
        yield Case("lax.full_like", (Weak(0.5), 2, made), modes=FIXED)
        yield Case("lax.full_like", (inputs.array((2,), "int32"), Weak(0.5), made))
    yield Case("lax.full_like", (inputs.array((2, 3), "bfloat16"), 1), {"shape": (4,)})
    yield Case("lax.full_like", (inputs.array((2, 3), "int8"), 300))
    yield Case("lax.full", (3, 1.0), modes=FIXED)
    yield Case("lax.full", ((2,), np.zeros(2, "float32")))
    yield Case("lax.full", ((-1,), 1.0))
    for dimension in (0, 1, -1, 2):
        yield Case("lax.broadcasted_iota", ("int32", (2, 0), dimension), modes=FIXED)
    yield Case("lax.iota", ("int32", -1))
    yield Case("lax.iota", ("float32", 2.5))
    for shape in ((), (2,), (2, 0, 3)):
        yield Case("lax.shape_as_value", (shape,), modes=FIXED)
    for shapes in (((2, 1), (3,)), ((0,), (1,)), ((), (2, 3)), ((2,), (3,)), ((2, 3),), (), ((1, 3), (2, 1), (3,))):
        yield Case("lax.broadcast_shapes", shapes, modes=("call",))


def _shapes(inputs: Inputs) -> Iterator[Case]:
    for kind in SOME:
        x = inputs.array((2, 3), kind)
        yield Case("lax.broadcast", (x, inputs.choice(((), (2,), (0, 2), (1,)))), modes=DATA)
        shape, dims = inputs.choice(
            (((2, 4, 3), (0, 2)), ((3, 2), (1, 0)), ((2, 3), (0, 1)), ((5, 2, 3), (1, 2)), ((2, 3, 0), (0, 1)))
        )
        yield Case("lax.broadcast_in_dim", (x, shape, dims), modes=DATA)
        yield Case("lax.broadcast_in_dim", (x[:1], (4, 3), (0, 1)), modes=DATA)
        yield Case("lax.broadcast_to_rank", (x, inputs.choice((2, 3, 4, 1))), modes=DATA)
        yield Case("lax.broadcast_like", (x, inputs.array(inputs.choice(((2, 3), (4, 2, 3), (3,))), SOME)), modes=DATA)
        sizes = inputs.choice(((6,), (3, 2), (1, 6), (-1,), (2, -1), (2, 3, 1), (4,), (-1, -1), (-1, 4)))
        yield Case("lax.reshape", (x, sizes), modes=DATA)
        yield Case("lax.reshape", (x, (6,), inputs.choice(((1, 0), (0, 1), None))), modes=DATA)
        y = inputs.array((1, 2, 1, 3), kind)
        yield Case("lax.squeeze", (y, inputs.choice(((0,), (2,), (-2,), (0, 2), (), (1,), (0, -4), (4,)))), modes=DATA)
        yield Case(
            "lax.expand_dims", (x, inputs.choice(((0,), (2,), (-1,), (0, 3), (), (1, -1), (-3,), (5,)))), modes=DATA
        )
        yield Case(
            "lax.collapse",
            (y, *inputs.choice(((0,), (1, 3), (0, 4), (2, 2), (-2,), (1, -1), (3, 1), (0, 9)))),
            modes=DATA,
        )
        yield Case("lax.tile", (x, inputs.choice(((2, 1), (1, 3), (0, 2), (2,), (1, 1, 2), (2, -1)))), modes=DATA)
    empty = inputs.array((0, 3), "float32")
    for sizes in ((0,), (3, 0), (-1, 3), (-1,), (0, -1), (1,)):
        yield Case("lax.reshape", (empty, sizes), modes=DATA)
    for number in (Weak(2.0), 2.0, np.float32(3), np.int8(3), True):
        yield Case("lax.broadcast", (number, (2,)))
        yield Case("lax.broadcast_in_dim", (number, (2, 3), ()))
        yield Case("lax.reshape", (number, (1, 1)))
        yield Case("lax.expand_dims", (number, (0,)))
        yield Case("lax.broadcast_to_rank", (number, 2))
        yield Case("lax.broadcast_like", (number, inputs.array((2,), "int32")))
        yield Case("lax.stop_gradient", (number,))
        yield Case("lax.optimization_barrier", (number,))
    yield Case("lax.broadcast_in_dim", (inputs.array((2, 3), "float32"), (2, 3), (1, 0)), modes=DATA)
    yield Case("lax.broadcast_in_dim", (inputs.array((3, 2), "float32"), (2, 3), (1, 0)), modes=DATA)
    yield Case("lax.broadcast_in_dim", (inputs.array((2,), "float32"), (2, 3), (-2,)), modes=DATA)
    yield Case("lax.broadcast_in_dim", (inputs.array((2,), "float32"), (2, 3), (0, 1)), modes=DATA)
    yield Case("lax.reshape", (inputs.array((2, 3), "float32"), 6), modes=DATA)
    yield Case("lax.squeeze", (inputs.array((1, 3), "float32"), 0), modes=DATA)


def _axes(inputs: Inputs) -> Iterator[Case]:
    for kind in SOME:
        x = inputs.array((2, 1, 3), kind)
        yield Case(
            "lax.transpose",
            (x, inputs.choice(((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 1), (2, 1, -3), (0, 0, 1)))),
            modes=DATA,
        )
        yield Case("lax.rev", (x, inputs.choice(((0,), (0, 2), (), (-1,), (1,), (0, 0), (3,)))), modes=DATA)
    for permutation in ([1, 0], np.asarray([1, 0]), (-1, -2), ()):
        yield Case(
            "lax.transpose", (inputs.array((2, 3), "float32"),), make=_with("transpose", permutation), modes=DATA
        )
    yield Case("lax.transpose", (Weak(1.0), ()))
    yield Case("lax.rev", (inputs.array((0, 3), "float32"), (0, 1)), modes=DATA)
    yield Case("lax.rev", (Weak(1.0), ()))


def _with(name: str, *rest: Any, **kwargs: Any) -> Callable[[ModuleType], Any]:
    """A function of one array, whose other arguments are parts of the function even if they are arrays."""
    return lambda lib: lambda x: getattr(lib.lax, name)(x, *rest, **kwargs)


def _joined(inputs: Inputs) -> Iterator[Case]:
    for kind in SOME:
        x, y = inputs.array((2, 3), kind), inputs.array((2, 2), kind)
        yield Case("lax.concatenate", ([x, y], 1), modes=DATA)
        yield Case("lax.concatenate", ((x, x, x[:0]), inputs.choice((0, -2, 1))), modes=DATA)
        yield Case("lax.stack", ([x, x + x], inputs.choice((0, 1, 2, -1, -3))), modes=DATA)
        yield Case(
            "lax.split",
            (x, inputs.choice(((1, 2), (3,), (1, 0, 2), (1, 1), (4, -1))), inputs.choice((1, -1))),
            modes=DATA,
        )
        yield Case("lax.unstack", (x, inputs.choice((0, 1, -1, -2, 2))), modes=DATA)
    x = inputs.array((3,), "float32")
    yield Case("lax.concatenate", ([x, inputs.array((2,), "int32")], 0))
    yield Case("lax.concatenate", ([x, inputs.array((2,), "bfloat16")], 0))
    yield Case("lax.concatenate", ([x], 0), modes=DATA)
    yield Case("lax.concatenate", ([], 0))
    yield Case("lax.concatenate", (inputs.array((2, 3), "float32"), 0), modes=DATA)
    yield Case("lax.concatenate", ([inputs.array((), "float32")] * 2, 0))
    yield Case("lax.concatenate", ([x, inputs.array((1, 3), "float32")], 0))
    yield Case("lax.stack", ([Weak(1.0), Weak(2.0)],))
    yield Case("lax.stack", ([x, inputs.array((3,), "int32")],))
    yield Case("lax.stack", ([],))
    yield Case("lax.split", (x, (1, 2)), modes=DATA)
    yield Case("lax.unstack", (inputs.array((0, 2), "float32"),), modes=DATA)
    yield Case("lax.unstack", (inputs.array((2, 0), "float32"),), modes=DATA)


def _padded(inputs: Inputs) -> Iterator[Case]:
    for kind in SOME:
        x = inputs.array((2, 3), kind)
        for _ in range(3):
            pick = inputs.random.integers
            config = tuple((int(pick(-2, 3)), int(pick(-2, 3)), int(pick(0, 3))) for _ in range(2))
            yield Case("lax.pad", (x, inputs.array((), kind), config), modes=("call", "jit", "jvp", "vjp", "vmap"))
        number = {"b": True, "i": 1, "u": 1}.get(dtype(kind).kind, 0.5)
        yield Case("lax.pad", (x, inputs.choice((Weak(number), number)), ((1, 0, 0), (0, 1, 1))))
    yield Case("lax.pad", (inputs.array((2,), "float32"), 0, [(1, 1, 0)]))
    yield Case("lax.pad", (inputs.array((2,), "int32"), 0.5, [(1, 1, 0)]))
    yield Case("lax.pad", (inputs.array((2,), "float32"), np.int32(1), [(1, 1, 0)]))
    yield Case("lax.pad", (inputs.array((0,), "float32"), Weak(1.0), [(1, 2, 3)]))
    yield Case("lax.pad", (inputs.array((2,), "float32"), 0.0, [(-2, -1, 0)]))
    yield Case("lax.pad", (inputs.array((3,), "float32"), 0.0, [(1, 1, -1)]))
    yield Case("lax.pad", (inputs.array((2,), "float32"), 0.0, []))
    yield Case("lax.pad", (Weak(2.0), 0.0, ()))


def _sorted(inputs: Inputs) -> Iterator[Case]:
    for kind in (*NUMBERS, "float32", "int32"):
        x = inputs.array(inputs.choice(((5,), (2, 4), (0,), (3, 0), (6,))), kind, odd=0.3)
        yield Case("lax.sort", (x,))
        yield Case("lax.sort", (x,), {"dimension": inputs.axis(x.ndim), "is_stable": inputs.chance(0.5)})
        keys = inputs.array((6,), kind, low=-2, high=2)
        values = inputs.array((6,), SOME)
        yield Case("lax.sort_key_val", (keys, values))
        yield Case(
            "lax.sort",
            ((keys, inputs.array((6,), REAL, low=0, high=3), values),),
            {"num_keys": inputs.choice((1, 2, 3))},
        )
        y = inputs.array((2, 3), kind, low=-3, high=3)
        pair = (y, inputs.array((2, 3), FLOATS))
        yield Case("lax.sort_key_val", pair, {"dimension": inputs.choice((0, 1, -1, -2))})
        yield Case("lax.sort", (list(pair), inputs.choice((0, 1)), True, 1))
        if kind != "complex64":
            for axis in (-1, 0):
                z = inputs.array((3, 4), kind, odd=0.2)
                yield Case("lax.top_k", (z, inputs.choice((0, 1, 2, 3))), {"axis": axis})
            yield Case("lax.top_k", (inputs.array((5,), kind), 2))
        if kind in FLOATS:
            for name in ("approx_max_k", "approx_min_k"):
                w = inputs.array((3, 6), kind)
                yield Case(f"lax.{name}", (w, 2))
                axis = {"reduction_dimension": inputs.choice((0, 1, -2)), "aggregate_to_topk": inputs.chance(0.5)}
                yield Case(f"lax.{name}", (w, 3), {**axis, "recall_target": 0.9})
    yield Case("lax.sort", (Weak(1.0),))
    yield Case("lax.sort", (inputs.array((3,), "float32"), 1))
    yield Case("lax.sort", ((),))
    yield Case("lax.sort", ((inputs.array((3,), "float32"),), -1, True, 2))
    yield Case("lax.sort", ((inputs.array((3,), "float32"), inputs.array((2,), "float32")),))
    yield Case("lax.top_k", (inputs.array((3,), "float32"), 4))
    yield Case("lax.top_k", (inputs.array((3,), "float32"), -1))
    yield Case("lax.top_k", (inputs.array((3,), "complex64"), 1))
    yield Case("lax.top_k", (np.asarray([-0.0, 0.0, np.nan, np.inf, -np.inf], "float32"), 5), modes=("call", "jit"))
    yield Case("lax.sort", (np.asarray([-0.0, 0.0, np.nan, np.inf, -np.inf, -0.0], "float32"),))


def _bits(inputs: Inputs) -> Iterator[Case]:
    for algorithm in ("RNG_DEFAULT", "RNG_PHILOX", "RNG_THREE_FRY"):
        for kind in ("uint32", "uint8", "uint16", "int32"):
            shape = inputs.choice(((), (3,), (2, 3), (0, 2), (5,)))
            key = inputs.array((4,), "uint32", low=0, high=2**31)
            yield Case("lax.rng_bit_generator", (key,), make=_generator(shape, kind, algorithm), modes=FIXED)
    key = inputs.array((4,), "uint32", low=0, high=2**31)
    yield Case("lax.rng_bit_generator", (key, (3,)), modes=FIXED)
    yield Case("lax.rng_bit_generator", (key[:3], (3,)), modes=FIXED)
    for kind in ("float32", "int32", "bfloat16"):
        drawn = (inputs.array((), kind, low=0, high=1), inputs.array((), kind, low=4, high=9))
        yield Case("lax.rng_uniform", drawn, make=_within, modes=FIXED)


def _generator(shape: tuple[int, ...], kind: str, algorithm: str) -> Callable[[ModuleType], Any]:
    return lambda lib: (
        lambda key: lib.lax.rng_bit_generator(key, shape, kind, algorithm=getattr(lib.lax.RandomAlgorithm, algorithm))
    )


def _within(lib: ModuleType) -> Any:
    """The numbers are others at each call: their shape and bounds are not."""

    def made(a: Any, b: Any) -> Any:
        drawn = lib.lax.rng_uniform(a, b, (2, 3))
        return drawn * 0 + 1, (drawn >= a).all() & (drawn < b).all()

    return made
