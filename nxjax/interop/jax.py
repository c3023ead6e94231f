"""Functions written for JAX as functions of nxjax, and functions of nxjax as functions of JAX.

The only file of nxjax that imports `jax`, inside functions: JAX traces its own functions, and StableHLO is what both
sides read and write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any, cast, final

import numpy as np

from nxjax.config import config
from nxjax.errors import LoweringError, MissingExtraError, ParameterError, StaticArgumentError
from nxjax.ops.convert import convert_element_type
from nxjax.ops.random import random_unwrap, random_wrap
from nxjax.random.keys import wrap_key_data
from nxjax.stablehlo.function import StablehloFunction
from nxjax.stablehlo.tokens import without_tokens
from nxjax.stablehlo.walk import CALLBACK
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, readonly, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType, ShapeDtypeStruct
from nxjax.trace.wrapping import wraps
from nxjax.transforms.callback import debug_callback, io_callback, pure_callback
from nxjax.transforms.custom_vjp import custom_vjp
from nxjax.transforms.jit import jit
from nxjax.transforms.jit_options import static_key


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise MissingExtraError(
            "interop: JAX is not installed", got=str(error), expected="the extra 'jax'", fix="pip install 'nxjax[jax]'"
        ) from None
    return jax


@api_boundary
def from_jax(
    fun: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    derivative: str = "nxjax",
) -> FromJax:
    """A function written for JAX (`jax.numpy`, flax, equinox, haiku, ...) as a function of nxjax.

    Called, it is traced by JAX once per structure and types of the arguments, and what JAX would compile is imported as
    by `from_stablehlo`: nxjax's `jit`, `grad`, `vmap`, `quantize` and `compile` work on it. Arguments and results are
    the same pytrees; containers registered with JAX are taken as they are. Random keys are keys on both sides.

    Args:
        fun: what `jax.jit` takes. Parameters are best arguments of it: those that it closes over become constants.
        static_argnums, static_argnames: arguments that are no arrays, as in `jax.jit`.
        derivative: "nxjax" differentiates what was imported. It does not know derivatives that the function defines for
            itself (`jax.custom_vjp`, `jax.custom_jvp`); "jax" asks JAX for the reverse derivative and imports that.

    Python callbacks (`jax.pure_callback`, `jax.experimental.io_callback`, `jax.debug`) become those of nxjax: they are
    called with JAX's arrays.

    Raises:
        MissingExtraError: jax or jaxlib is not installed.
        LoweringError: the function runs on several devices.
        StaticArgumentError: a static argument that is not hashable.

    >>> import jax.numpy as jnp
    >>> f = from_jax(lambda p, x: jnp.tanh(x @ p["w"]).sum())
    >>> p = {"w": nx.ones((3, 2))}
    >>> nx.grad(f)(p, nx.zeros((1, 3)))["w"].tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    if not callable(fun):
        raise ParameterError("from_jax: needs a function", got=type(fun).__name__)
    if derivative not in ("nxjax", "jax"):
        raise ParameterError("from_jax: derivative", got=repr(derivative), expected="'nxjax' or 'jax'")
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return FromJax(fun, nums, names, derivative)


@final
class FromJax:
    """What `from_jax` gives."""

    def __init__(self, fun: Callable[..., Any], nums: tuple[int, ...], names: tuple[str, ...], derivative: str) -> None:
        self.jax: Any = _jax()
        self.fun = fun
        self._nums = nums
        self._names = names
        self._derivative = derivative
        self._known: dict[Any, _Imported] = {}
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        jax = self.jax
        fixed = {i % len(args) for i in self._nums if -len(args) <= i < len(args)} if args else set[int]()
        statics = tuple((i, args[i]) for i in sorted(fixed))
        static_names = tuple((k, kwargs[k]) for k in self._names if k in kwargs)
        dynamic = (
            tuple(a for i, a in enumerate(args) if i not in fixed),
            {k: v for k, v in kwargs.items() if k not in self._names},
        )
        leaves, treedef = jax.tree_util.tree_flatten(dynamic)
        values = [_value(jax, x, self.__name__) for x in leaves]
        types = tuple(x.type for x in values)
        x64 = _wide(jax, types)
        try:
            exact = static_key((statics, static_names))
            found = self._known.get(key := (treedef, types, statics, static_names, exact, x64))
        except TypeError as error:
            raise StaticArgumentError(
                f"from_jax: a static argument of {self.__name__} is not hashable", got=str(error)
            ) from None
        if found is None:
            specs = [_spec(jax, t) for t in types]
            positional, named = jax.tree_util.tree_unflatten(treedef, specs)
            rest = iter(positional)
            given = [args[i] if i in fixed else next(rest) for i in range(len(args))]
            named = {**named, **dict(static_names)}
            found = self._known[key] = self._imported(given, named, treedef, x64)
        ys = found.call(values)
        return jax.tree_util.tree_unflatten(found.out_tree, ys)

    def _imported(self, args: Sequence[Any], kwargs: dict[str, Any], treedef: Any, x64: bool) -> _Imported:
        jax = self.jax
        with _x64(jax, x64):
            jitted = jax.jit(self.fun, static_argnums=self._nums, static_argnames=self._names or None, keep_unused=True)
            traced = jitted.trace(*args, **kwargs)
            plain = _Imported(jax, traced, self.__name__)
            if self._derivative == "nxjax":
                return plain
            return _WithVjp(jax, plain, self._flat(args, kwargs, treedef), self.__name__)

    def _flat(self, args: Sequence[Any], kwargs: dict[str, Any], treedef: Any) -> Callable[..., Any]:
        """The function of its dynamic leaves, for JAX."""
        jax, fixed = self.jax, {i % len(args) for i in self._nums} if args else set[int]()

        def flat(*leaves: Any) -> tuple[Any, ...]:
            positional, named = jax.tree_util.tree_unflatten(treedef, leaves)
            rest = iter(positional)
            given = [args[i] if i in fixed else next(rest) for i in range(len(args))]
            statics = {k: v for k, v in kwargs.items() if k in self._names}
            return tuple(jax.tree_util.tree_leaves(self.fun(*given, **named, **statics)))

        return flat

    def __repr__(self) -> str:
        return f"from_jax({self.__name__})"


def _value(jax: Any, x: Any, name: str) -> Array:
    """An argument as a value of nxjax; JAX's arrays and keys are taken too."""
    if isinstance(x, Array):
        return x
    own = getattr(x, "dtype", None)
    if own is not None and isinstance(x, jax.Array) and jax.dtypes.issubdtype(own, jax.dtypes.prng_key):
        return wrap_key_data(as_value(np.asarray(jax.random.key_data(x)), name))
    if isinstance(x, (jax.Array, np.ndarray, np.generic)) and getattr(x, "dtype", None) in dtypes.NUMERIC:
        # 64-bit arrays say so themselves.

        data = np.asarray(x)
        return wrap(readonly(data))
    return as_value(x, f"from_jax: an argument of {name}")


def _wide(jax: Any, types: Sequence[ArrayType]) -> bool:
    """Whether JAX has to trace with 64-bit types."""
    wide = (dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.complex128)
    return config.enable_x64 or bool(jax.config.jax_enable_x64) or any(t.dtype in wide for t in types)


def _x64(jax: Any, on: bool) -> Any:
    return jax.enable_x64(True) if on and not jax.config.jax_enable_x64 else nullcontext()


def _spec(jax: Any, t: ArrayType) -> Any:
    """The argument as JAX's tracing takes it."""
    if t.dtype == dtypes.key:
        one = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
        return jax.ShapeDtypeStruct(t.shape, one.dtype)
    return jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak)


def _function(jax: Any, traced: Any) -> StablehloFunction:
    """What JAX would compile, imported. Its Python callbacks become calls of a list that the importer gets."""
    from nxjax.backends.xla.read import read_parsed

    names = ("callback", "debugging", "interpreters.mlir")
    callbacks, debugging, mlir = (cast(Any, import_module(f"jax._src.{n}")) for n in names)
    found: list[Callable[..., Any]] = []
    wide = bool(jax.config.jax_enable_x64)

    def lowered(make: Callable[..., Callable[..., Any]]) -> Callable[..., Any]:
        def lower(ctx: Any, *args: Any, **params: Any) -> Any:
            found.append(make(wide, **params))
            types = [mlir.aval_to_ir_type(ctx.module_context, a) for a in ctx.avals_out]
            call = mlir.custom_call(
                CALLBACK, result_types=types, operands=args, backend_config=str(len(found) - 1), has_side_effect=True
            )
            # The order of effects is that of the program.
            ctx.set_tokens_out(ctx.tokens_in)
            return call.results

        return lower

    def pure(wide: bool, *, callback: Any, vmap_method: str | None, **_: Any) -> Callable[..., Any]:
        host = _Host(jax, callback, wide)
        return lambda types, *xs: pure_callback(host, types, *xs, vmap_method=vmap_method)

    def io(wide: bool, *, callback: Any, ordered: bool, **_: Any) -> Callable[..., Any]:
        host = _Host(jax, callback, wide)
        return lambda types, *xs: io_callback(host, types, *xs, ordered=ordered)

    def shown(primitive: Any) -> Callable[..., Callable[..., Any]]:
        def debug(wide: bool, **params: Any) -> Callable[..., Any]:
            ordered = bool(params.get("ordered", isinstance(params.get("effect"), debugging.OrderedDebugEffect)))
            host = _Host(jax, functools.partial(primitive.impl, **params), wide)

            def call(_: Any, *xs: Array) -> tuple[()]:
                debug_callback(host, *xs, ordered=ordered)
                return ()

            return call

        return debug

    prints = (debugging.debug_callback_p, debugging.debug_print_p)
    makers = [(callbacks.pure_callback_p, pure), (callbacks.io_callback_p, io), *((p, shown(p)) for p in prints)]
    parameters = mlir.LoweringParameters(tuple((p, lowered(make)) for p, make in makers))
    module = traced.lower(lowering_platforms=("cpu",), _private_parameters=parameters).compiler_ir("stablehlo")
    read = read_parsed(module)
    return StablehloFunction(without_tokens(read) if found else read, "main", None, found)


@final
class _Host:
    """A callback of JAX on arrays of nxjax."""

    def __init__(self, jax: Any, callback: Callable[..., Any], wide: bool) -> None:
        self._jax, self._callback, self._wide = jax, callback, wide
        self.__qualname__ = str(getattr(callback, "__qualname__", "callback"))

    def __call__(self, *xs: Array) -> Any:
        jax = self._jax
        with _x64(jax, self._wide):
            ys = self._callback(*(jax.numpy.asarray(x.numpy()) for x in xs))
            return tuple(np.asarray(y) for y in jax.tree_util.tree_leaves(ys))


class _Imported:
    """One tracing: the imported function, and the structure and kinds of its results."""

    def __init__(self, jax: Any, traced: Any, name: str) -> None:
        try:
            self.function = _function(jax, traced)
        except NotImplementedError as error:
            raise LoweringError(f"from_jax: JAX cannot lower {name}", got=str(error)[:500]) from error
        self.out_tree = jax.tree_util.tree_structure(traced.out_info)
        self.outs: list[Any] = jax.tree_util.tree_leaves(traced.out_info)
        self.keys = [bool(jax.dtypes.issubdtype(o.dtype, jax.dtypes.prng_key)) for o in self.outs]
        self.function.__name__ = self.function.__qualname__ = name

    def call(self, values: Sequence[Array]) -> list[Array]:
        return self.marked(self.function.flat(values))

    def marked(self, ys: Sequence[Array]) -> list[Array]:
        """Results with what StableHLO does not say: which are keys, and which are weak."""
        found: list[Array] = []
        for y, out, key in zip(ys, self.outs, self.keys, strict=True):
            if key:
                y = random_wrap(y)
            elif getattr(out, "weak_type", False) and y.dtype in dtypes.NUMERIC:
                y = convert_element_type(y, dtype=y.dtype, weak=True)
            found.append(y)
        return found


@final
class _WithVjp(_Imported):
    """As `_Imported`, with the reverse derivative that JAX gives."""

    def __init__(self, jax: Any, plain: _Imported, flat: Callable[..., Any], name: str) -> None:
        self.out_tree, self.outs, self.keys, self.function = plain.out_tree, plain.outs, plain.keys, plain.function
        smooth = [i for i, t in enumerate(plain.function.in_types) if t.dtype in dtypes.INEXACT]
        varies = [i for i, o in enumerate(self.outs) if not self.keys[i] and o.dtype in dtypes.INEXACT]
        state: list[StablehloFunction] = []

        def backward(args: Sequence[Any], cts: Sequence[Any]) -> Any:
            """Cotangents of the smooth arguments, for JAX: computed again from the arguments."""

            def part(*xs: Any) -> tuple[Any, ...]:
                given = list(args)
                for i, x in zip(smooth, xs, strict=True):
                    given[i] = x
                ys = flat(*given)
                return tuple(ys[i] for i in varies)

            _, pull = jax.vjp(part, *(args[i] for i in smooth))
            return pull(tuple(cts))

        specs = [_spec(jax, t) for t in self._types(plain)]
        cts = [jax.ShapeDtypeStruct(self.outs[i].shape, self.outs[i].dtype) for i in varies]
        wide = bool(jax.config.jax_enable_x64)

        def pulled() -> StablehloFunction:
            if not state:
                with _x64(jax, wide):
                    state.append(_function(jax, jax.jit(backward, keep_unused=True).trace(specs, cts)))
            return state[0]

        @custom_vjp
        def apply(*xs: Array) -> tuple[Array, ...]:
            return self.function.flat(xs)

        def forward(*xs: Array) -> tuple[Any, Any]:
            return self.function.flat(xs), xs

        def back(xs: Sequence[Array], given: Sequence[Any]) -> tuple[Any, ...]:
            found = iter(pulled().flat([*xs, *(given[i] for i in varies)]))
            return tuple(next(found) if i in smooth else None for i in range(len(xs)))

        apply.defvjp(forward, back)
        self._apply = apply

    @staticmethod
    def _types(plain: _Imported) -> tuple[ArrayType, ...]:
        return plain.function.in_types

    def call(self, values: Sequence[Array]) -> list[Array]:
        raw = [random_unwrap(v) if v.dtype == dtypes.key else v for v in values]
        return self.marked(self._apply(*raw))


@api_boundary
def to_jax(fun: Callable[..., Any], *, derivatives: int = 1) -> Callable[..., Any]:
    """A function of nxjax as a function of JAX: it runs under `jax.jit`, and `jax.grad` differentiates it.

    It is exported once per structure and types of the arguments (`nx.export`) and called as JAX calls what
    `jax.export` wrote. Arguments and results are pytrees of arrays.

    Args:
        fun: a function of nxjax.
        derivatives: how many orders of reverse derivatives go with it.

    Raises:
        MissingExtraError: jax or jaxlib is not installed.
        LoweringError: the function calls back into Python.

    >>> import jax
    >>> g = to_jax(lambda x: nx.sin(x) * x)
    >>> float(jax.grad(g)(2.0)) == float(jax.grad(lambda x: jax.numpy.sin(x) * x)(2.0))
    True
    """
    if not callable(fun):
        raise ParameterError("to_jax: needs a function", got=type(fun).__name__)
    jax = _jax()
    from nxjax.export import export as exporter
    from nxjax.export import serialization

    jitted: Any = jit(fun)
    known: dict[Any, Any] = {}

    @wraps(fun)
    def called(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = jax.tree_util.tree_flatten((args, kwargs))
        arrays = [jax.numpy.asarray(x) for x in leaves]
        types = tuple((x.shape, np.dtype(x.dtype)) for x in arrays)
        found = known.get((treedef, types))
        if found is None:
            specs = [ShapeDtypeStruct(*t) for t in types]
            positional, named = jax.tree_util.tree_unflatten(treedef, specs)
            jax_export: Any = import_module("jax.export")
            exported: Any = exporter(jitted)(*positional, **named)

            blob = serialization.serialize(exported, derivatives if exported.has_vjp() else 0)
            found = known[treedef, types] = jax_export.deserialize(bytearray(blob))
        positional, named = jax.tree_util.tree_unflatten(treedef, arrays)
        return found.call(*positional, **named)

    return called
