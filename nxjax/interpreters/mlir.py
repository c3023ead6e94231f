"""`jax.interpreters.mlir`: how compiled programs compute a primitive that a program defines itself.

A primitive is lowered by the functions of nxjax that it is made of, as `lower_fun` says; without that, compiled
programs call its implementation back. So they do where a rule writes MLIR by hand: most executors never see any MLIR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.transforms.primitive import Primitive

__all__ = ["lower_fun", "register_lowering"]
__getattr__ = _refusing(__name__)


@final
class _Lowered:
    """What `lower_fun` gives to `register_lowering`."""

    def __init__(self, function: Callable[..., Any], several: bool) -> None:
        self.function = function
        self.several = several


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Any:
    """A lowering rule: the primitive is computed as ``fun``, which is made of functions of nxjax.

    >>> from nxjax.extend.core import Primitive
    >>> p = Primitive("thrice")
    >>> _ = p.def_abstract_eval(lambda x: x)
    >>> register_lowering(p, lower_fun(lambda x: 3 * x, multiple_results=False))
    >>> float(nx.jit(p.bind)(2.0))
    6.0
    """
    return _Lowered(fun, multiple_results)


def register_lowering(
    prim: Primitive, rule: Any, platform: str | None = None, inline: Any = True, cacheable: bool = True
) -> None:
    """Set how compiled programs compute ``prim``.

    Args:
        prim: a primitive of the program's own.
        rule: what `lower_fun` gives. Another rule writes MLIR, which is not read: the primitive's `def_impl` is called.
        platform: JAX's; one rule serves all devices here.
        inline, cacheable: JAX's; nothing depends on them here.
    """
    if isinstance(rule, _Lowered):
        prim.lowered = rule.function
