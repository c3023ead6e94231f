"""`jax.lax`'s functions about how programs are staged: composites, choices by platform, tokens, what must be kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, final

import numpy as np

from nxjax.errors import LoweringError, ParameterError, UnexpectedTracerError
from nxjax.ops.identity import optimization_barrier
from nxjax.runtime import default_backend
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike, PyTree
from nxjax.trace.array import as_value, type_of
from nxjax.trace.core import Array, Tracer
from nxjax.transforms.callback import debug_callback
from nxjax.transforms.composite import composite_call

T = TypeVar("T")


@final
class Token:
    """What orders effects: no data, one kind.

    >>> isinstance(nx.lax.create_token(), Token)
    True
    """

    def __repr__(self) -> str:
        return "Token()"


def dtype(x: object) -> dtypes.DType:
    """The dtype of a value, or of a Python or NumPy type.

    >>> dtype(1.0).name, dtype(int).name
    ('float32', 'int32')
    """
    if x is None:
        raise ParameterError("dtype: None has no dtype", expected="a value or a type")
    if isinstance(x, (type, np.dtype, str)):
        return dtypes.canonical(dtypes.as_dtype(x))
    return type_of(x, "dtype").dtype


def stage(x: ArrayLike, /) -> Array:
    """``x`` as an array; while a program is written, as a value of that program.

    >>> stage(1.0).shape
    ()
    """
    return optimization_barrier(as_value(x, "stage"))[0]


def create_token(_: object = None) -> PyTree:
    """A token for `after_all` and ordered effects.

    >>> create_token()
    Token()
    """
    return Token()


def after_all(*operands: PyTree) -> PyTree:
    """One token for all of ``operands``.

    Raises:
        TypeError: an operand is not a token.

    >>> after_all(create_token(), create_token())
    Token()
    """
    for x in operands:
        if not isinstance(x, Token):
            raise ParameterError(
                "after_all: operands must be tokens", got=type(x).__name__, expected="what create_token gives"
            )
    return Token()


def dce_sink(val: PyTree, *, prevent_mlir_dce: bool = False) -> None:
    """Keep the computation of ``val``, a tree of arrays, even if nothing uses it.

    >>> dce_sink(1.0)
    """
    leaves = [x for x in tree.leaves(val) if isinstance(x, Tracer)]
    if leaves:
        debug_callback(_ignore, *leaves)


def _ignore(*_: Any) -> None:
    return None


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """A function as one named unit that computes ``decomposition``.

    Args:
        decomposition: function of arrays, by position, and attributes, by keyword.
        name: of the unit: `nx.make_jaxpr` shows it.
        version: of its meaning.

    Raises:
        UnexpectedTracerError: an attribute is being traced.
        ValueError: the call is differentiated; add a rule with `nx.custom_jvp`.

    >>> tangent = composite(lambda x: nx.sin(x) / nx.cos(x), "my.tangent")
    >>> float(nx.jit(tangent)(0.0))
    0.0
    """

    @functools.wraps(decomposition)
    def called(*args: Any, **kwargs: Any) -> Any:
        for key, value in kwargs.items():
            if any(isinstance(leaf, Tracer) for leaf in tree.leaves(value)):
                raise UnexpectedTracerError(
                    f"composite {name}: attribute {key!r} is being traced",
                    got=repr(value),
                    expected="a value that is known when the program is written",
                    fix="pass it as an argument by position",
                )
        return composite_call(functools.partial(decomposition, **kwargs), args, name, version, kwargs)

    return called


def platform_dependent(*args: PyTree, default: Callable[..., T] | None = None, **per_platform: Callable[..., T]) -> T:
    """Call the function for the platform that programs run on, which is chosen during tracing.

    Args:
        *args: trees of arrays, for every function.
        default: for platforms that are not named.
        **per_platform: functions by platform: ``cpu``, ``cuda``, ``rocm``, ``tpu``.

    Raises:
        TypeError: not a function.
        ValueError: ``gpu``, which is ``cuda`` or ``rocm``.
        NotImplementedError: no function for the platform.

    >>> platform_dependent(1.0, cpu=lambda x: x + 1.0, default=lambda x: x)
    2.0
    """
    for platform, function in (*per_platform.items(), *(() if default is None else (("default", default),))):
        if not callable(function):
            raise ParameterError(
                f"platform_dependent: {platform} is not a function", got=type(function).__name__, expected="a function"
            )
        if platform == "gpu":
            raise ParameterError("platform_dependent: 'gpu' is two platforms", expected="cuda or rocm")
    here = default_backend()
    chosen = per_platform.get("cuda" if here == "gpu" else here, default)
    if chosen is None:
        raise LoweringError(
            f"platform_dependent: no function for {here}", got=sorted(per_platform), fix="give it one, or a default"
        )
    return chosen(*args)
