"""What a function gives without running it: `eval_shape` for types, `make_jaxpr` for the whole program."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Literal, overload

from nxjax.errors import DtypeError, ParameterError
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.boundary import entry
from nxjax.trace.program import Program
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.trace.wrapping import wraps
from nxjax.transforms.jit import jit


def eval_shape(fun: Callable[..., Any], *args: PyTree, **kwargs: PyTree) -> PyTree:
    """The results of ``fun`` as `ShapeDtypeStruct`; nothing is computed.

    Args:
        fun: function of pytrees. A `ShapeDtypeStruct` in its result stays one.
        **args, **kwargs: arrays or `ShapeDtypeStruct`.

    Raises:
        ParameterError: not a function.

    >>> eval_shape(lambda x: x.sum(0), nx.ShapeDtypeStruct((3, 4), nx.float32))
    ShapeDtypeStruct(shape=(4,), dtype=float32)
    """
    if not callable(fun):
        raise ParameterError("eval_shape: needs a function", got=type(fun).__name__)
    types: dict[int, ShapeDtypeStruct] = {}

    @wraps(fun)
    def own(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = tree.flatten(fun(*args, **kwargs))
        types.update({i: x for i, x in enumerate(leaves) if isinstance(x, ShapeDtypeStruct)})
        return tree.unflatten(treedef, [0 if i in types else x for i, x in enumerate(leaves)])

    with _errors_name("eval_shape"):
        found = jit(own).eval_shape(*args, **kwargs)
    if not types:
        return found
    leaves, treedef = tree.flatten(found)
    return tree.unflatten(treedef, [types.get(i, x) for i, x in enumerate(leaves)])


@contextmanager
def _errors_name(name: str) -> Generator[None]:
    """Errors about arguments name what was called, not the `jit` below it."""
    try:
        yield
    except DtypeError as error:
        if not error.what.startswith("jit: argument"):
            raise
        what = name + error.what.removeprefix("jit")
        raise DtypeError(what, got=error.got, expected=error.expected, fix=error.fix, source=error.source) from None


@overload
def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Any = None,
    return_shape: Literal[False] = False,
    abstracted_axes: Any = None,
) -> Callable[..., Program]: ...
@overload
def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Any = None,
    *,
    return_shape: Literal[True],
    abstracted_axes: Any = None,
) -> Callable[..., tuple[Program, Any]]: ...
@entry
def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[str, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: PyTree = None,
) -> Callable[..., Any]:
    """A function that returns the `Program` of ``fun`` for its arguments' types.

    Args:
        static_argnums: arguments that stay Python values.
        return_shape: return ``(program, results as ShapeDtypeStruct)``.

    Raises:
        ParameterError: not a function.

    >>> make_jaxpr(lambda x: nx.sin(x) * 2.0)(1.0)
    { lambda ; a:f32[]*. let
        b:f32[]* = sin a
        c:f32[]* = mul b 2.0:f32[]*
      in (c,) }
    """
    if not callable(fun):
        raise ParameterError("make_jaxpr: needs a function", got=type(fun).__name__)
    given: Any = static_argnums
    static: tuple[Any, ...] = (given,) if isinstance(given, Integral) else tuple(given)
    if not all(isinstance(i, Integral) for i in static):
        raise TypeError("static_argnums are integers")
    jitted = jit(fun, static_argnums=static)

    @wraps(fun)
    def program_of(*args: Any, **kwargs: Any) -> Program | tuple[Program, Any]:
        with _errors_name("make_jaxpr"):
            traced = jitted.trace(*args, **kwargs)
        return (traced.program, traced.out_info) if return_shape else traced.program

    return program_of
