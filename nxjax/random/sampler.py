"""What all samplers share: docstrings, checking of keys, shapes and dtypes, and compilation of what is drawn."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from nxjax.errors import DtypeError, SamplerDtypeError, ShapeError
from nxjax.lax.sharding import with_out_sharding
from nxjax.numpy import promotion
from nxjax.numpy.promotion import broadcast_to_shape as broadcast_parameter
from nxjax.numpy.promotion import common_shape, convert
from nxjax.random.keys import as_key
from nxjax.trace import dtypes
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Trace, current_trace
from nxjax.trace.dtypes import DType
from nxjax.trace.scope import NOWHERE, current_scope, replaying
from nxjax.trace.stage import StageTrace
from nxjax.trace.types import Shape
from nxjax.transforms.jit import jit

F = TypeVar("F", bound=Callable[..., Any])


def jit_sampler(function: F) -> F:
    """``function`` of arrays, with the keyword-only parameters ``shape``, ``dtype``, ... static, compiled as a whole.

    While a program is being staged nothing is left of the call but its equations; under `vmap` and `grad` of concrete
    values it stays one compiled call, so that the same numbers come out as without them.
    """
    parameters = inspect.signature(function).parameters.values()
    static = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    @functools.wraps(function)
    def unlined(*args: Any, **kwargs: Any) -> Any:
        # It is staged once for many callers: their own lines, not the first one's.
        with replaying(current_scope(), NOWHERE):
            return function(*args, **kwargs)

    whole = jit(unlined, static_argnames=static)
    inlined = jit(unlined, static_argnames=static, inline=True)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        trace: Trace | None = current_trace()
        while trace is not None:
            if type(trace) is StageTrace:
                return inlined(*args, **kwargs)
            trace = trace.parent
        return whole(*args, **kwargs)

    return call  # type: ignore[return-value]


def sampler(
    *lines: str, kind: str = "float", of: str = "the parameters", raises: Sequence[str] = (), sharded: bool = True
) -> Callable[[F], F]:
    """Decorator for samplers: what all of them take and raise comes before the example of their docstrings.

    Args:
        lines: one for each parameter of the distribution, or for several that are alike; and for ``shape`` and
            ``dtype`` where they mean something else than usual.
        kind: of the dtypes that are taken.
        of: what has the default shape, where several parameters are described.
        raises: errors that others do not raise, or not for this reason.
        sharded: whether they take ``out_sharding``, as in JAX.
    """
    article, default = ("an", "int32") if kind == "integer" else ("a", "float32")
    names = [line.split(":")[0] for line in lines]
    of = f"``{names[0]}``" if len(names) == 1 and "," not in names[0] else of

    def complete(function: F) -> F:
        says, _, example = inspect.cleandoc(function.__doc__ or "").partition(">>> ")
        parameters = inspect.signature(function).parameters
        takes = {"key": "key: a single key.", "shape": "shape: of the result."}
        errors = {"KeyTypeError": "KeyTypeError: ``key`` is not a single key."}
        if "dtype" in parameters:
            takes["dtype"] = f"dtype: {article} {kind} dtype; {default} by default."
            errors["DtypeError"] = f"DtypeError: ``dtype`` is not {article} {kind} dtype."
        if "shape" in parameters and parameters["shape"].default is None:
            takes["shape"] = f"shape: of the result; that of {of} by default."
            errors["ShapeError"] = "ShapeError: the parameters do not broadcast to ``shape``."
        takes |= dict(zip(names, lines, strict=True))
        errors |= {line.split(":")[0]: line for line in raises}
        order = list(parameters)
        rows = [takes[name] for name in sorted(takes, key=lambda name: order.index(name.split(",")[0]))]
        sections = (f"{t}:\n    " + "\n    ".join(x) for t, x in (("Args", rows), ("Raises", errors.values())))
        function.__doc__ = "\n\n".join([says.rstrip(), *sections, f">>> {example}\n"])
        return placed(function) if sharded else keyed(function)

    return complete


def keyed(sampler: F) -> F:
    """``sampler``, which is given a single typed key, with any key that users have."""
    name = sampler.__name__

    @functools.wraps(sampler)
    def call(key: Any, *args: Any, **kwargs: Any) -> Any:
        return sampler(as_key(name, key)[0], *args, **kwargs)

    return call  # type: ignore[return-value]


def placed(sampler: F) -> F:
    """As `keyed`, and with JAX's keyword ``out_sharding``: how the numbers are laid out over devices."""
    signature, name = inspect.signature(sampler), sampler.__name__
    more = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="ShardingLike")

    @functools.wraps(sampler)
    def call(key: Any, *args: Any, out_sharding: Any = None, **kwargs: Any) -> Any:
        y = sampler(as_key(name, key)[0], *args, **kwargs)
        return with_out_sharding(y, out_sharding)

    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def as_shape(where: str, shape: Any) -> Shape:
    return promotion.as_shape(f"random.{where}", shape)


def _dtype_of(kind: str, default: type, allowed: frozenset[DType], where: str, dtype: Any) -> DType:
    """A dtype of a kind; None is the default."""
    found = dtypes.as_dtype(default if dtype is None else dtype)
    if found not in allowed:
        raise SamplerDtypeError(f"random.{where}: dtype must be {kind} dtype", got=dtypes.short_name(found))
    return found


float_dtype = functools.partial(_dtype_of, "a float", float, dtypes.FLOAT)
inexact_dtype = functools.partial(_dtype_of, "a float or complex", float, dtypes.INEXACT)
int_dtype = functools.partial(_dtype_of, "an integer", int, dtypes.INTEGER)


def as_dtype_value(where: str, x: Any, dtype: DType) -> Array:
    """A parameter of a distribution, by value in ``dtype``."""
    value = as_value(x, f"random.{where}")
    if value.dtype not in dtypes.NUMERIC:
        raise DtypeError(f"random.{where}: parameters are numbers", got=value.type)
    if value.dtype in dtypes.COMPLEX and dtype not in dtypes.COMPLEX:
        raise DtypeError(f"random.{where}: parameters are real numbers", got=value.type)
    return convert(value, dtype)


def checked_shape(where: str, shape: Any, *parameters: Any) -> Shape:
    """``shape``, or for None the shape the parameters broadcast to; they must broadcast to it."""
    shapes = [tuple(np.shape(p)) if not isinstance(p, Array) else p.shape for p in parameters]
    common = broadcast_shapes(where, *shapes)
    if shape is None:
        return common
    wanted = as_shape(where, shape)
    if broadcast_shapes(where, wanted, common) != wanted:
        raise ShapeError(
            f"random.{where}: the parameters do not fit the shape",
            got=f"parameters of shape {common}",
            expected=f"shapes that broadcast to {wanted}",
        )
    return wanted


def broadcast_shapes(where: str, *shapes: Shape) -> Shape:
    return common_shape(f"random.{where}", *shapes)


@jit_sampler
def _parametric(key: Array, *parameters: Array, draw: Any, shape: Shape) -> Array:
    return draw(key, shape, parameters[0].dtype, *(broadcast_parameter(v, shape) for v in parameters))


def sample_parametric(
    name: str, draw: Callable[..., Array], key: Any, parameters: Sequence[Any], shape: Any, dtype: Any
) -> Array:
    """A sampler whose parameters broadcast to its shape."""
    found = float_dtype(name, dtype)
    full = checked_shape(name, shape, *parameters)
    values = tuple(as_dtype_value(name, v, found) for v in parameters)
    return _parametric(key, *values, draw=draw, shape=full)
