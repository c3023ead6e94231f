"""`jax.core`'s names: types, programs, and the interpreter that a program's own interpreters start from.

What JAX calls a jaxpr, closed or not, is a `Program` here; the classes of this file make one of the parts that JAX's
constructors take, and every Program is an instance of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nxjax.runtime import ensure_compile_time_eval
from nxjax.trace import dtypes
from nxjax.trace.array import as_value
from nxjax.trace.core import EVAL, Array, Trace, Tracer, use
from nxjax.trace.program import Atom, Program, Var, run
from nxjax.trace.program import Equation as JaxprEqn
from nxjax.trace.program import Literal as Literal
from nxjax.trace.types import ArrayType

AbstractValue = ArrayType
# A class -> what gives the type of its values. Libraries copy the entry of NumPy's arrays; it decides nothing here.
pytype_aval_mappings: dict[type, Callable[[Any], ArrayType]] = {np.ndarray: lambda x: as_value(x, "aval").type}
ParamDict = dict[str, Any]
Value = Any

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "ParamDict",
    "Program",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Value",
    "Var",
    "ensure_compile_time_eval",
    "eval_context",
    "eval_jaxpr",
    "max_dim",
    "min_dim",
    "pytype_aval_mappings",
]


class _OfType(type):
    """``isinstance(x, ShapedArray)`` holds for every type."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ArrayType)


class ShapedArray(metaclass=_OfType):
    """The type of a value, from a shape and any name of a dtype.

    >>> ShapedArray((2, 3), "float32")
    f32[2,3]
    """

    def __new__(cls, shape: Iterable[int], dtype: Any, weak_type: bool = False, **_: Any) -> Any:
        return ArrayType(tuple(shape), dtypes.as_dtype(dtype), weak_type)


class _OfProgram(type):
    """``isinstance(x, Jaxpr)`` holds for every program."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Program)


class Jaxpr(metaclass=_OfProgram):
    """A program from its parts, without the values of its consts.

    >>> p = nx.make_jaxpr(nx.sin)(1.0).jaxpr
    >>> Jaxpr(p.constvars, p.invars, p.outvars, p.eqns)
    { lambda ; a:f32[]*. let
        b:f32[]* = sin a
      in (b,) }
    """

    def __new__(
        cls,
        constvars: Sequence[Var],
        invars: Sequence[Var],
        outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn],
        effects: Any = (),
        debug_info: Any = None,
        **_: Any,
    ) -> Any:
        return Program(invars, eqns, outvars, constvars)


class ClosedJaxpr(metaclass=_OfProgram):
    """A program and the values of its consts.

    >>> p = nx.make_jaxpr(nx.sin)(1.0)
    >>> float(nx.extend.core.jaxpr_as_fun(ClosedJaxpr(p.jaxpr, p.consts))(0.0)[0])
    0.0
    """

    def __new__(cls, jaxpr: Program, consts: Sequence[Any] = ()) -> Any:
        values = [as_value(x, "ClosedJaxpr") for x in consts]
        return Program(jaxpr.inputs, jaxpr.equations, jaxpr.outputs, jaxpr.constvars, values, jaxpr.name)


def eval_jaxpr(jaxpr: Program, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Array]:
    """The results of a program, by its ops; inside a transform they are traced.

    Args:
        jaxpr: the program.
        consts: values of its ``constvars``.
        *args: values of its ``invars``.

    Raises:
        ProgramError: another number of arguments than it takes.

    >>> p = nx.make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> eval_jaxpr(p.jaxpr, p.consts, 4.0)[0].tolist()
    8.0
    """
    hoisted, _ = jaxpr.hoist_consts()
    return run(hoisted, [as_value(x, "eval_jaxpr") for x in (*consts, *args)])


@contextmanager
def eval_context() -> Iterator[None]:
    """Inside, ops are computed at once, as outside of every transform.

    >>> with eval_context():
    ...     float(nx.sin(0.0))
    0.0
    """
    with use(EVAL):
        yield


def max_dim(d1: Any, d2: Any) -> Any:
    """The greater of two dimensions.

    >>> max_dim(2, 3)
    3
    """
    return max(d1, d2)


def min_dim(d1: Any, d2: Any) -> Any:
    """The smaller of two dimensions.

    >>> min_dim(2, 3)
    2
    """
    return min(d1, d2)
