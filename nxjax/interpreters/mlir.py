"""`jax.interpreters.mlir`: how compiled programs compute a primitive that a program defines itself.

A primitive is lowered by the functions of nxjax that it is made of, as `lower_fun` says; without that, compiled
programs call its implementation back. Rules that write MLIR by hand have no meaning here: most executors never see any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from nxjax.errors import LoweringError
from nxjax.transforms.primitive import Primitive

__all__ = ["lower_fun", "register_lowering"]


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
    >>> import nxjax as nx
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
        rule: what `lower_fun` gives.
        platform: JAX's; one rule serves all devices here.
        inline, cacheable: JAX's; nothing depends on them here.

    Raises:
        NotImplementedError: a rule that writes MLIR by hand.
    """
    if not isinstance(rule, _Lowered):
        raise LoweringError(
            f"register_lowering: {prim.name} has a rule that writes MLIR",
            got=getattr(rule, "__qualname__", type(rule).__name__),
            expected="mlir.lower_fun(function)",
            fix="leave it out, and def_impl's function is called back; or make a function of it for mlir.lower_fun",
        )
    prim.lowered = rule.function
