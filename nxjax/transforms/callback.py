"""Calling Python from programs: `pure_callback`, `io_callback`, and `debug` callbacks and prints.

Each op has a method ``host`` that takes and returns NumPy arrays. The reference executor calls it. An executor that
cannot run Python within a program calls it back (on XLA by a custom call).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, final
from weakref import WeakValueDictionary

import numpy as np

from nxjax.errors import GradientError, ParameterError, ShapeError, TreeError
from nxjax.ops.base import NDArray, move_batch
from nxjax.ops.shape import reshape
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree, ShardingLike
from nxjax.trace.array import as_numpy, as_value, readonly, wrap
from nxjax.trace.core import EVAL, Array, Arrays, Dims, Op, Tangents, use
from nxjax.trace.types import ArrayType, ShapeDtypeStruct
from nxjax.transforms.control.scan import per_element

T = TypeVar("T")
VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


_made: WeakValueDictionary[Any, Any] = WeakValueDictionary()


def interned(kind: type[T], *args: Any) -> T:
    """``kind(*args)``, the same object for equal arguments while it is in use.

    Programs hold these by identity: the same call traced twice gives equal programs, which compile once.
    """
    try:
        found = _made.get((kind, args))
        if found is None:
            found = _made[kind, args] = kind(*args)
    except TypeError:  # a callback that does not hash
        return kind(*args)
    return found


class HashableByKey:
    """What programs hold: equal where its ``key`` is, so that equal calls compile once, and printed by ``qualname``."""

    def __init__(self, qualname: str, *key: Any) -> None:
        self.__qualname__ = qualname
        self._key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableByKey) and type(other) is type(self) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@final
class HostFunction(HashableByKey):
    """A user's function on the flat arguments it was called with."""

    def __init__(self, function: Callable[..., Any], in_def: tree.TreeDef) -> None:
        super().__init__(getattr(function, "__qualname__", type(function).__name__), function, in_def)
        self.function = function
        self.in_def = in_def

    def __hash__(self) -> int:
        return hash(self.in_def)  # the function may not hash

    def __call__(self, arrays: Sequence[NDArray]) -> Any:
        args, kwargs = tree.unflatten(self.in_def, [wrap(np.asarray(a)) for a in arrays])
        with use(EVAL):
            return self.function(*args, **kwargs)


class Callback(Op):
    """Runs ``callback`` on the host; ``result_types`` says what it gives."""

    multi = True
    any_params = True

    def infer(
        self, *types: ArrayType, result_types: tuple[ArrayType, ...], threaded: bool = False, **_: Any
    ) -> tuple[ArrayType, ...]:
        return (types[0], *result_types) if threaded else result_types

    def with_token(self, params: dict[str, Any], thread: Any) -> tuple[dict[str, Any], int, int]:
        """As `Nested.with_token`: the first operand is handed on as the first result."""
        return {**params, "threaded": True}, 0, 0

    def eval(self, *xs: NDArray, **params: Any) -> tuple[NDArray, ...]:
        return self.host(*xs, **params)

    def host(self, *xs: NDArray, threaded: bool = False, **params: Any) -> tuple[NDArray, ...]:
        """What the op gives on NumPy arrays."""
        return (xs[0], *self.call(xs[1:], **params)) if threaded else self.call(xs, **params)

    def call(
        self,
        xs: Sequence[NDArray],
        *,
        callback: HostFunction,
        result_types: tuple[ArrayType, ...],
        out_def: Any,
        **_: Any,
    ) -> tuple[NDArray, ...]:
        """What the callback gives, checked against ``result_types``."""
        leaves, found_def = tree.flatten(callback(xs))
        if found_def != out_def.structure:
            raise TreeError(
                f"{self.name}: {callback.__qualname__} gives another structure than it said",
                got=found_def,
                expected=out_def.structure,
            )
        return tuple(self._checked(y, t, callback) for y, t in zip(leaves, result_types, strict=True))

    def _checked(self, y: Any, type: ArrayType, callback: HostFunction) -> NDArray:
        data = y.numpy() if isinstance(y, Array) else as_numpy(y, self.name)
        if data.shape != type.shape:
            raise ShapeError(
                f"{self.name}: {callback.__qualname__} gives another shape than it said",
                got=f"shape {data.shape}",
                expected=type,
            )
        if data.dtype != type.dtype and not np.can_cast(data.dtype, type.dtype, "same_kind"):
            raise ShapeError(
                f"{self.name}: {callback.__qualname__} gives another dtype than it said",
                got=f"dtype {data.dtype}",
                expected=type,
            )
        # The user's memory, or that of an operand, which a later step may write over.
        return readonly(np.asarray(data, type.dtype))

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        raise GradientError(
            f"{self.name}: has no derivative",
            got=params["callback"].__qualname__,
            fix="pass nx.lax.stop_gradient(x), or give its caller a rule with nx.custom_jvp or nx.custom_vjp",
        )

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        if params["ordered"]:
            raise ParameterError(f"{self.name}: an ordered callback has no order under vmap", fix="pass ordered=False")
        return per_element(self, size, args, dims, params)


@final
class Structure(HashableByKey):
    """A pytree structure as an op parameter: prints alike in every process."""

    def __init__(self, structure: tree.TreeDef) -> None:
        super().__init__(str(structure), structure)
        self.structure = structure


@final
class PureCallback(Callback):
    """A function without side effects. It may be called any number of times, or not at all."""

    name = "pure_callback"

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        vmap_method: str | None = params["vmap_method"]
        if vmap_method is None:
            raise ParameterError(
                "pure_callback: vmap needs to know how to call the function on batches",
                got="vmap_method=None",
                expected=", ".join(VMAP_METHODS),
                fix='pass vmap_method="sequential" for one call per element',
            )
        if vmap_method.startswith("sequential"):
            unroll = size if vmap_method == "sequential_unrolled" else 1
            return per_element(self, size, args, dims, params, max(unroll, 1))
        values: list[Array] = []
        for x, d in zip(args, dims, strict=True):
            if d is not None or vmap_method == "broadcast_all":
                values.append(move_batch(x, d, size))
            elif vmap_method == "expand_dims":
                values.append(reshape(x, shape=(1, *x.shape)))
            else:
                values.append(x)
        types = tuple(t.with_shape((size, *t.shape)) for t in params["result_types"])
        return self(*values, **{**params, "result_types": types}), (0,) * len(types)


@final
class IoCallback(Callback):
    """A function with side effects. It is called exactly once each time the program gets to it."""

    name = "io_callback"
    effect = True


_muted: ContextVar[bool] = ContextVar("nxjax_muted", default=False)


@contextmanager
def callbacks_disabled() -> Generator[None]:
    """Inside, debug callbacks are not called, because a program runs again for a diagnosis."""
    token = _muted.set(True)
    try:
        yield
    finally:
        _muted.reset(token)


class Sink(Callback):
    """Reads values and has no results; derivatives skip it."""

    effect = True

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        return self(*primals, **params), ()

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Tangents:
        return (None,) * len(args)


@final
class DebugCallback(Sink):
    """Reads values: it changes nothing, has no results, and runs where the program computes its operands."""

    name = "debug_callback"

    def call(self, xs: Sequence[NDArray], *, callback: HostFunction, **_: Any) -> tuple[NDArray, ...]:
        if not _muted.get():
            callback(xs)
        return ()


pure_callback_op = PureCallback()
io_callback_op = IoCallback()
debug_callback_op = DebugCallback()


def _flat(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> tuple[HostFunction, list[Array]]:
    if not callable(function):
        raise ParameterError(f"{where}: needs a function", got=type(function).__name__)
    leaves, in_def = tree.flatten((args, kwargs))
    return interned(HostFunction, function, in_def), [as_value(x, where) for x in leaves]


def _results(result_shape_dtypes: Any, where: str) -> tuple[tuple[ArrayType, ...], Structure]:
    leaves, out_def = tree.flatten(result_shape_dtypes)
    types: list[ArrayType] = []
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise ParameterError(
                f"{where}: results are described by shape and dtype",
                got=f"{type(leaf).__name__}",
                expected="nx.ShapeDtypeStruct(shape, dtype), or arrays like the results",
            )
        struct = ShapeDtypeStruct(leaf.shape, leaf.dtype)
        types.append(ArrayType(struct.shape, struct.dtype))
    return tuple(types), interned(Structure, out_def)


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: ShardingLike = None,
    vmap_method: str | None = None,
    **kwargs: PyTree,
) -> PyTree:
    """Call a Python function without side effects from inside a program.

    Args:
        callback: takes arrays, returns a pytree of arrays (NumPy or nxjax).
        result_shape_dtypes: pytree of `ShapeDtypeStruct`, or of arrays, for the results.
        **args, **kwargs: pytrees passed to the callback.
        vmap_method: how `vmap` calls it: ``sequential`` (once per element), ``expand_dims`` (once, with a leading axis
            on every argument, of size 1 if it is shared), ``broadcast_all`` (once, with the axis repeated).

    Raises:
        ParameterError: an unknown ``vmap_method``.

    >>> import numpy as np
    >>> f = nx.jit(lambda x: nx.pure_callback(lambda v: np.square(v), nx.ShapeDtypeStruct((), nx.float32), x))
    >>> float(f(3.0))
    9.0
    """
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ParameterError("pure_callback: vmap_method", got=vmap_method, expected=", ".join(VMAP_METHODS))
    host, xs = _flat(callback, args, kwargs, "pure_callback")
    types, out_def = _results(result_shape_dtypes, "pure_callback")
    ys = pure_callback_op(*xs, callback=host, result_types=types, out_def=out_def, vmap_method=vmap_method)
    return tree.unflatten(out_def.structure, ys)


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function that may have side effects; it runs even if its results are not used.

    Args:
        callback, result_shape_dtypes, *args, **kwargs: as in `pure_callback`; ``None`` stands for no result.
        ordered: keep the order among ordered callbacks of the program.

    >>> f = nx.jit(lambda x: (io_callback(lambda v: print("saw", v), None, x), x + 1)[1])
    >>> float(f(1.0))
    saw 1.0
    2.0
    """
    host, xs = _flat(callback, args, kwargs, "io_callback")
    types, out_def = _results(result_shape_dtypes, "io_callback")
    ys = io_callback_op(*xs, callback=host, result_types=types, out_def=out_def, ordered=bool(ordered))
    return tree.unflatten(out_def.structure, ys)


def debug_callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> None:
    """Call ``callback(*args, **kwargs)`` with the values, each time the program computes them. `nx.debug.callback`.

    Args:
        callback: function of arrays; its result is ignored.
        args, kwargs: its arguments; trees of arrays.
        ordered: calls keep the order of the program.

    >>> f = nx.jit(lambda x: (nx.debug.callback(lambda v: print("value", v), x), x + 1)[1])
    >>> float(f(1.0))
    value 1.0
    2.0
    """
    host, xs = _flat(callback, args, kwargs, "debug.callback")
    debug_callback_op(
        *xs, callback=host, result_types=(), out_def=interned(Structure, tree.structure(None)), ordered=bool(ordered)
    )


@final
class _Printer(HashableByKey):
    """Prints a format string."""

    def __init__(self, fmt: str) -> None:
        super().__init__(f"print {fmt!r}", fmt)
        self.fmt = fmt

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        print(self.fmt.format(*args, **kwargs), flush=True)


def debug_print(
    fmt: str,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> None:
    """Print values while a program runs: ``nx.debug.print("x = {x}", x=x)``.

    Args:
        fmt: as for ``str.format``, not an f-string, which would show the traced value instead of the number.
        ordered: keep the order among ordered prints.

    Under `vmap` each element prints; under `grad` a value prints once.

    Raises:
        ParameterError: not a format string, or the arguments do not fit it.

    >>> f = nx.jit(lambda x: (nx.debug.print("x = {x}", x=x), x + 1)[1])
    >>> float(f(1.0))
    x = 1.0
    2.0
    """
    if not isinstance(fmt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError("debug.print: the format is a string", got=type(fmt).__name__)
    if not skip_format_check:
        _check_format(fmt, args, kwargs)
    debug_callback(interned(_Printer, fmt), *args, ordered=ordered, **kwargs)


def _check_format(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    fields = [name for _, name, _, _ in string.Formatter().parse(fmt) if name is not None]
    roots = [f.split(".")[0].split("[")[0] for f in fields]
    numbered = [int(r) for r in roots if r.isdigit()]
    used = max([len([r for r in roots if not r]), *(n + 1 for n in numbered)], default=0)
    missing = [r for r in roots if r and not r.isdigit() and r not in kwargs]
    unused = sorted(kwargs.keys() - set(roots))
    if missing or unused or used != len(args):
        raise ParameterError(
            "debug.print: format and arguments do not fit",
            got=f"{len(args)} positional, keywords {sorted(kwargs)}",
            expected=f"{used} positional, keywords {sorted({r for r in roots if r and not r.isdigit()})}",
            fix="write {} or {name} for each argument",
        )
