"""Reverse mode's first half: compute the value now and stage the tangent program beside it.

Tangents are what partial evaluation does not know (`partial_eval`): forward mode whose tangents live in a
`PartialTrace` splits a function into its value and its linear part; values that the linear part needs are captured as
consts, the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.config import config
from nxjax.errors import needs_function
from nxjax.trace import dtypes, leaks, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, current_trace, run_in_trace
from nxjax.trace.program import Program
from nxjax.trace.tree_partial import Partial
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.jvp import JVPTrace, checked_tangent, zero_tangent
from nxjax.transforms.nested import jvp_program
from nxjax.transforms.partial_eval import PartialEvalResult, PartialTrace, partial_eval
from nxjax.transforms.subprograms import Mask


def linearize_flat(
    function: Callable[..., Sequence[Any]], primals: Arrays, varying: Sequence[bool]
) -> tuple[list[Array], Program, list[bool]]:
    """Value, linear program and which results vary.

    The program maps tangents of the ``varying`` inputs to tangents of the varying results; its consts are residuals,
    which belong to the current trace.
    """
    tangent_trace = PartialTrace(current_trace(), "tangent")
    trace = JVPTrace(tangent_trace)
    xs = [
        trace.join(x, tangent_trace.input(x.type.strong())) if v else x for x, v in zip(primals, varying, strict=True)
    ]
    ys = run_in_trace(trace, lambda: [as_value(y, "linearize") for y in function(*xs)])
    pairs = [trace.split(y) for y in ys]
    if config.check_tracer_leaks:
        del xs, ys
        leaks.check(trace, "the function under nx.grad")
    varies = [t is not None for _, t in pairs]
    return [y for y, _ in pairs], tangent_trace.finish([t for _, t in pairs if t is not None]), varies


def linearize_program(program: Program, varying: Mask) -> tuple[PartialEvalResult, Mask]:
    """The program on values and tangents, cut between them, and which results vary.

    The known half maps inputs to results and residuals, the unknown one residuals and the ``varying`` inputs' tangents
    to tangents of the varying results.
    """
    pushed, varies = jvp_program(program, varying)
    late = (*(False,) * len(varies), *(True,) * sum(varies))
    known = (*(True,) * len(varying), *(False,) * sum(varying))
    return partial_eval(pushed, known, unknown_out=late), varies


def linearize(fun: Callable[..., Any], *primals: PyTree, has_aux: bool = False) -> Any:
    """Value of ``fun(*primals)`` and the linear map from tangents of the arguments to the tangent of the result.

    You can call the map many times without evaluating ``fun`` again. The map is a tree of the arrays that it keeps.

    Args:
        fun: function of pytrees of float or complex arrays.
        primals: its arguments, the point of linearization.
        has_aux: ``fun`` returns ``(y, aux)``; the result is ``(y, f_jvp, aux)``.

    >>> y, f_jvp = linearize(lambda x: x * x, 3.0)
    >>> float(y), float(f_jvp(1.0))
    (9.0, 6.0)
    """
    needs_function("linearize", fun, "linearize(f, x), not linearize(f(x))")
    leaves, treedef = tree.flatten(primals)
    names = tree.path_names(primals, "primals")
    xs = [as_value(x, "linearize") for x in leaves]
    varying = [dtypes.is_differentiable(x.dtype) for x in xs]
    flat = FlatFunction(fun, treedef, has_aux)
    ys, program, varies = linearize_flat(flat, xs, varying)
    y_def, n = flat.out_def, flat.count
    ys, aux = ys[:n], ys[n:]
    in_types, out_types = [x.type for x in xs], [y.type for y in ys]
    linear, residuals = program.hoist_consts()
    kept = len(residuals)

    def apply(*args: Any) -> Any:
        flat_ts = tree.flatten_up_to(treedef, args[kept:], "linearize: tangents")
        ts = [checked_tangent(kind, t, name) for kind, t, name in zip(in_types, flat_ts, names, strict=True)]
        given = [zero_tangent(kind) if t is None else t for t, kind, v in zip(ts, in_types, varying, strict=True) if v]
        found = iter(linear(*args[:kept], *given))
        moved = [next(found) if v else None for v in varies][:n]
        return tree.unflatten(
            y_def, [zero_tangent(k) if t is None else t for t, k in zip(moved, out_types, strict=True)]
        )

    y = tree.unflatten(y_def, ys)
    f_jvp = Partial(apply, *residuals)
    return (y, f_jvp, flat.aux(aux)) if has_aux else (y, f_jvp)
