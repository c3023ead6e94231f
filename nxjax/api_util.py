"""`jax.api_util`: flat functions of functions of trees, as libraries make them before they trace.

Knows trees and `linear_util`; nothing of how anything is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from nxjax.trace import tree
from nxjax.trace.array import type_of
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.trace.types import ArrayType
from nxjax.transforms.linear_util import WrappedFun, transformation_with_aux, wrap_init

__all__ = [
    "argnums_partial",
    "debug_info",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "safe_map",
    "safe_zip",
    "shaped_abstractify",
]
__getattr__ = _refusing(__name__)

T = TypeVar("T")


class DebugInfo(NamedTuple):
    """What a function is called in messages.

    Attributes:
        traced_for: the name of the transformation.
        func_src_info: of the function.
    """

    traced_for: str
    func_src_info: str


def debug_info(traced_for: str, fun: Callable[..., Any], args: Any = (), kwargs: Any = None, **_: Any) -> DebugInfo:
    """What ``fun`` is called in messages; ``args`` and ``kwargs`` tell nothing here.

    >>> debug_info("scan", max)
    DebugInfo(traced_for='scan', func_src_info='max')
    """
    return DebugInfo(traced_for, getattr(fun, "__name__", type(fun).__name__))


@transformation_with_aux
def flatten_fun(in_tree: tree.TreeDef, *leaves: Any) -> Generator[Any, Any, None]:
    """A flat function of a function of ``(args, kwargs)``, and a function that gives the tree of its results.

    >>> flat, out_tree = flatten_fun(wrap_init(lambda x, y: {"sum": x + y}), tree.flatten(((1, 2), {}))[1])
    >>> flat.call_wrapped(3, 4), out_tree()
    ([7], PyTreeSpec({'sum': *}))
    """
    args, kwargs = tree.unflatten(in_tree, leaves)
    yield tree.flatten((yield args, kwargs))


@transformation_with_aux
def flatten_fun_nokwargs(in_tree: tree.TreeDef, *leaves: Any) -> Generator[Any, Any, None]:
    """As `flatten_fun`, of a function of ``args`` alone.

    >>> flat, out_tree = flatten_fun_nokwargs(wrap_init(lambda x: (x, 2 * x)), tree.flatten((1,))[1])
    >>> flat.call_wrapped(3), out_tree()
    ([3, 6], PyTreeSpec((*, *)))
    """
    yield tree.flatten((yield tree.unflatten(in_tree, leaves), {}))


def argnums_partial(
    fun: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], **_: Any
) -> tuple[WrappedFun, tuple[Any, ...]]:
    """``fun`` with all positional arguments but ``dyn_argnums`` held, and those.

    >>> held, dynamic = argnums_partial(wrap_init(lambda x, y: x - y), 1, (10, 3))
    >>> dynamic, held.call_wrapped(4)
    ((3,), 6)
    """
    numbers = [dyn_argnums] if isinstance(dyn_argnums, int) else list(dyn_argnums)
    numbers = [n % len(args) for n in numbers]

    def held(*dynamic: Any, **kwargs: Any) -> Any:
        given = list(args)
        for n, x in zip(numbers, dynamic, strict=True):
            given[n] = x
        return fun.call_wrapped(*given, **kwargs)

    return wrap_init(held), tuple(args[n] for n in numbers)


def shaped_abstractify(x: Any) -> ArrayType:
    """The type of an array, a number or a `ShapeDtypeStruct`.

    >>> shaped_abstractify(1.0)
    f32[]*
    """
    return type_of(x, "shaped_abstractify")


def safe_map(fun: Callable[..., T], *args: Iterable[Any]) -> list[T]:
    """``map`` as a list, over arguments of one length.

    Raises:
        ValueError: of several.

    >>> safe_map(max, [1, 5], [4, 2])
    [4, 5]
    """
    return [fun(*xs) for xs in zip(*args, strict=True)]


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """``zip`` as a list, of arguments of one length.

    Raises:
        ValueError: of several.

    >>> safe_zip([1, 2], "ab")
    [(1, 'a'), (2, 'b')]
    """
    return list(zip(*args, strict=True))
