"""``jit`` and staging, ``checkpoint`` and its policies, callbacks, ``ops.segment_*`` and ``dtypes``.

Each case is a small program of both libraries, called as it stands and where that has a meaning under ``jit`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.areas.transforms import BOTH, program_case
from benchmarks.differential.case import Case
from benchmarks.differential.inputs import INTS, NUMBERS, Inputs


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _jit(inputs)
    yield from _checkpoint(inputs)
    yield from _callbacks(inputs)
    yield from _segments(inputs)
    yield from _dtypes(inputs)


def _jit(inputs: Inputs) -> Iterator[Case]:
    x = inputs.array((3,), "float32")
    programs = (
        lambda lib, x: lib.jit(lambda x, n: x * n, static_argnums=1)(x, 3),
        lambda lib, x: lib.jit(lambda x, n: x * n, static_argnums=(1,))(x, n=3),
        lambda lib, x: lib.jit(lambda x, n: x * n, static_argnames="n")(x, n=3),
        lambda lib, x: lib.jit(lambda x, n: x * n, static_argnames=("n",))(x, 3),
        lambda lib, x: lib.jit(lambda x, n: x if n else -x, static_argnums=-1)(x, True),
        lambda lib, x: lib.jit(lambda x, n: x, static_argnums=1)(x, [1]),
        lambda lib, x: lib.jit(lambda x: x, static_argnums=3)(x),
        lambda lib, x: lib.jit(lambda x, m="a": x if m == "a" else -x, static_argnames=["m"])(x, m="b"),
        lambda lib, x: lib.jit(lambda x: x + 1, donate_argnums=0)(x * 1),
        lambda lib, x: lib.jit(lambda x: x + 1, donate_argnames="x")(x * 1),
        lambda lib, x: lib.jit(lambda x, y: x + 1, keep_unused=True)(x, x),
        lambda lib, x: lib.jit(lambda x: x + 1, inline=True)(x),
        lambda lib, x: lib.jit(static_argnames="n")(lambda x, n: x * n)(x, n=2),
        lambda lib, x: lib.jit(lambda x: {"a": x, "b": (None, 3, 2.5, True)})(x),
        lambda lib, x: lib.jit(lambda t: t["a"] + t["b"][0])({"a": x, "b": [2]}),
        lambda lib, x: lib.jit(lambda x: x if x.sum() > 0 else -x)(x),
        lambda lib, x: lib.jit(lambda s: s)("text"),
        lambda lib, x: lib.jit(lambda x: "text")(x),
        lambda lib, x: lib.jit(lambda a, b: a * b)(x, 2),
        lambda lib, x: lib.jit(lambda a, b: (a + b, b))(2, 2.5),
        lambda lib, x: lib.jit(lambda *a, **k: a[0] + k["y"])(x, y=x),
        lambda lib, x: lib.jit(lambda x: x.shape[0] * x.ndim)(x),
        lambda lib, x: lib.jit(lib.numpy.sum, static_argnames="axis")(x, axis=0),
        lambda lib, x: lib.named_call(lambda x: x * 2, name="twice")(x),
        lambda lib, x: lib.jit(lambda x: x * 2).lower(x).compile()(x),
        lambda lib, x: lib.jit(lambda x: x * 2).trace(x).out_info.shape,
        lambda lib, x: lib.jit(lambda x: x * 2).eval_shape(x).dtype.name,
        lambda lib, x: lib.numpy.asarray(lib.block_until_ready({"a": x})["a"]),
        lambda lib, x: lib.device_get(lib.device_put({"a": x, "b": 1.5}))["b"].dtype.name,
    )
    for program in programs:
        yield program_case("jit", program, x, modes=("call",))
    shaped = lambda s: [(v.shape, v.dtype.name, bool(v.weak_type)) for v in s]
    shapes = (
        lambda lib, x: lib.eval_shape(lambda x: (x @ x, x * 2), x),
        lambda lib, x: lib.eval_shape(lambda x: x + 1.5, lib.ShapeDtypeStruct((2, 3), "int32")),
        lambda lib, x: lib.eval_shape(lambda x: (x, 2.0, 1), 3),
        lambda lib, x: lib.eval_shape(lambda x: {"k": x.astype("bfloat16")}, x),
        lambda lib, x: lib.eval_shape(lambda k: lib.random.split(k), lib.ShapeDtypeStruct((2,), "uint32")),
        lambda lib, x: lib.make_jaxpr(lambda x: (x.sum(), 1), return_shape=True)(x)[1],
        lambda lib, x: lib.eval_shape(lambda x, y: x @ y, x, lib.numpy.ones((4, 2))),
    )
    for program in shapes:
        told = lambda lib, x, p=program: shaped(lib.tree.leaves(p(lib, x)))
        yield program_case("eval_shape", told, x, modes=("call",))
    yield program_case(
        "make_jaxpr", lambda lib, x: len(lib.make_jaxpr(lambda x: x * 2)(x).out_avals), x, modes=("call",)
    )
    made = lambda lib, x: lib.make_jaxpr(lambda x, n: x * n, static_argnums=1)(x, 3).in_avals[0].shape
    yield program_case("make_jaxpr", made, x, modes=("call",))
    yield program_case(
        "ShapeDtypeStruct",
        lambda lib: [(s := lib.ShapeDtypeStruct((2, 3), "int8")).shape, s.ndim, s.size],
        modes=("call",),
    )
    yield program_case(
        "typeof",
        lambda lib, x: (lib.typeof(x).shape, lib.typeof(x).dtype, lib.typeof(1.0).weak_type),
        x,
        modes=("call",),
    )


def _checkpoint(inputs: Inputs) -> Iterator[Case]:
    x = inputs.array((3,), "float32")
    names = (
        "everything_saveable",
        "nothing_saveable",
        "dots_saveable",
        "checkpoint_dots",
        "dots_with_no_batch_dims_saveable",
    )

    def named(lib: ModuleType, x: Any) -> Any:
        return lib.numpy.sin(lib.ad_checkpoint.checkpoint_name(lib.numpy.cos(x), "c")).sum()

    for wrap in ("checkpoint", "remat"):
        take = lambda lib, w=wrap: getattr(lib, w)
        yield program_case(wrap, lambda lib, x, t=take: lib.grad(t(lib)(lambda x: lib.numpy.sin(x).sum()))(x), x)
        yield program_case(
            wrap, lambda lib, x, t=take: lib.grad(t(lib)(lambda x, n: (x**n).sum(), static_argnums=(1,)))(x, 3), x
        )
        yield program_case(
            wrap, lambda lib, x, t=take: lib.grad(t(lib)(lambda x: (x**2).sum(), prevent_cse=False))(x), x
        )
        yield program_case(wrap, lambda lib, x, t=take: lib.hessian(t(lib)(lambda x: lib.numpy.exp(x).sum()))(x), x)
        yield program_case(wrap, lambda lib, x, t=take: lib.vmap(t(lib)(lambda x: {"k": x * 2}))(x), x)
    for name in names:
        saved = lambda lib, x, n=name: lib.grad(
            lib.checkpoint(lambda x: named(lib, x), policy=getattr(lib.checkpoint_policies, n))
        )(x)
        yield program_case(f"checkpoint_policies.{name}", saved, x)
    for name in ("save_only_these_names", "save_any_names_but_these", "save_anything_except_these_names"):
        saved = lambda lib, x, n=name: lib.grad(
            lib.checkpoint(lambda x: named(lib, x), policy=getattr(lib.checkpoint_policies, n)("c"))
        )(x)
        yield program_case(f"checkpoint_policies.{name}", saved, x)


def _callbacks(inputs: Inputs) -> Iterator[Case]:
    x = inputs.array((3,), "float32")
    like = lambda lib, x: lib.ShapeDtypeStruct(x.shape, x.dtype)
    for method in ("sequential", "expand_dims", "broadcast_all", None, "nothing"):
        called = lambda lib, x, m=method: lib.vmap(lambda v: lib.pure_callback(np.sin, like(lib, v), v, vmap_method=m))(
            x
        )
        yield program_case("pure_callback", called, x)
    pair = lambda lib, x: lib.pure_callback(lambda v, k: {"a": v * k}, {"a": like(lib, x)}, x, k=np.float32(2))
    yield program_case("pure_callback", pair, x)
    yield program_case(
        "pure_callback", lambda lib, x: lib.grad(lambda v: lib.pure_callback(np.sin, like(lib, v), v).sum())(x), x
    )
    yield program_case(
        "pure_callback", lambda lib, x: lib.pure_callback(lambda v: v[:2], like(lib, x), x), x, modes=("call",)
    )
    for ordered in (False, True):
        seen = lambda lib, x, o=ordered: _seen(lib, x, lambda see: lib.debug.callback(see, x, ordered=o))
        yield program_case("debug.callback", seen, x, modes=("call",))
        io = lambda lib, x, o=ordered: lib.experimental.io_callback(np.cos, like(lib, x), x, ordered=o)
        yield program_case("experimental.io_callback", io, x)
    each = lambda lib, x: _seen(lib, x, lambda see: lib.vmap(lambda v: lib.debug.callback(see, v))(x))
    yield program_case("debug.callback", each, x, modes=("call",))


def _seen(lib: ModuleType, x: Any, run: Callable[..., Any]) -> Any:
    seen: list[float] = []
    run(lambda v: seen.append(float(np.sum(v))))
    lib.effects_barrier()
    return lib.numpy.asarray(sorted(seen), dtype="float32")


def _segments(inputs: Inputs) -> Iterator[Case]:
    for name in ("segment_sum", "segment_prod", "segment_max", "segment_min"):
        for dtype in NUMBERS:
            data = inputs.array(inputs.choice(((5,), (5, 2), (0, 2))), dtype)
            ids = inputs.array(data.shape[:1], inputs.choice(INTS), low=0, high=4)
            yield Case(
                f"ops.{name}",
                (data, ids),
                {"num_segments": inputs.choice((3, 4, 6))},
                modes=("call", "jit", "jvp", "vjp"),
            )
        data, ids = inputs.array((5, 2), "float32"), inputs.array((5,), "int32", low=-2, high=6)
        for kwargs in (
            {},
            {"num_segments": 0},
            {"bucket_size": 2},
            {"mode": "clip"},
            {"mode": "drop"},
            {"mode": "nothing"},
        ):
            yield Case(f"ops.{name}", (data, ids), {"num_segments": 4, **kwargs})
        kwargs = {"num_segments": 5, "indices_are_sorted": True}
        yield Case(f"ops.{name}", (data, np.sort(np.abs(ids))), {**kwargs, "unique_indices": False}, modes=BOTH)
        yield Case(f"ops.{name}", (data, np.abs(ids)), modes=("call",))
        yield Case(f"ops.{name}", (data, ids[:2]), modes=("call",))
        yield Case(f"ops.{name}", (data, ids.astype("float32")), modes=("call",))


def _dtypes(inputs: Inputs) -> Iterator[Case]:
    names = (*NUMBERS, "float64", "int64", "complex128", "uint64", "float8_e4m3fn", "int4")
    told = lambda f: lambda lib, *args: f(lib, *args)
    for name in names:
        yield program_case(
            "dtypes.canonicalize_dtype",
            told(lambda lib, n: str(np.dtype(lib.dtypes.canonicalize_dtype(n)))),
            name,
            modes=("call",),
        )
        yield program_case(
            "dtypes.scalar_type_of",
            told(lambda lib, n: lib.dtypes.scalar_type_of(lib.numpy.zeros(2, n))),
            name,
            modes=("call",),
        )
        yield program_case(
            "dtypes.itemsize_bits",
            told(lambda lib, n: lib.dtypes.itemsize_bits(lib.numpy.dtype(n))),
            name,
            modes=("call",),
        )
        info = told(
            lambda lib, n: [
                str(getattr(lib.dtypes.finfo(n), k)) for k in ("bits", "eps", "max", "min", "tiny", "dtype", "nmant")
            ]
        )
        yield program_case("dtypes.finfo", info, name, modes=("call",))
        info = told(lambda lib, n: [str(getattr(lib.dtypes.iinfo(n), k)) for k in ("bits", "max", "min", "dtype")])
        yield program_case("dtypes.iinfo", info, name, modes=("call",))
        for kind in (
            "floating",
            "integer",
            "inexact",
            "number",
            "signedinteger",
            "complexfloating",
            "bool_",
            "generic",
        ):
            sub = told(lambda lib, n, k: lib.dtypes.issubdtype(lib.numpy.dtype(n), getattr(lib.numpy, k)))
            yield program_case("dtypes.issubdtype", sub, name, kind, modes=("call",))
        other = inputs.choice(names)
        yield program_case(
            "dtypes.result_type",
            told(lambda lib, a, b: str(lib.dtypes.result_type(lib.numpy.dtype(a), b))),
            name,
            other,
            modes=("call",),
        )
        weak = told(
            lambda lib, n: [
                str(v) for v in lib.dtypes.result_type(lib.numpy.zeros(2, n), 1.0, return_weak_type_flag=True)
            ]
        )
        yield program_case("dtypes.result_type", weak, name, modes=("call",))
    key = told(
        lambda lib: [
            lib.dtypes.issubdtype(lib.random.key(0).dtype, k) for k in (lib.dtypes.prng_key, lib.dtypes.extended)
        ]
    )
    yield program_case("dtypes.prng_key", key, modes=("call",))
    yield program_case(
        "dtypes.extended", told(lambda lib: lib.dtypes.issubdtype("float32", lib.dtypes.extended)), modes=("call",)
    )
    yield program_case(
        "dtypes.float0", told(lambda lib: (str(lib.dtypes.float0), lib.dtypes.bfloat16.__name__)), modes=("call",)
    )
