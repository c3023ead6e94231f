"""`lax.composite`: a call of a program that is one unit with a name. It runs and batches as the program does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, final

from nxjax.errors import ParameterError
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Arrays, Op, Tangents
from nxjax.trace.stage import stage
from nxjax.transforms.call import ProgramCall
from nxjax.transforms.has_aux import FlatFunction


@final
class Composite(ProgramCall):
    """Call of ``program``; ``name``, ``version`` and ``attributes`` identify it."""

    name = "composite"
    any_params = True
    call_for_transforms = False  # a device may have an op of that name

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> NoReturn:
        raise ParameterError(
            f"composite {params['name']}: has no derivative",
            got="a composite that is being differentiated",
            fix="wrap the call in a function with nx.custom_jvp or nx.custom_vjp",
        )

    transpose = Op.transpose  # pyright: ignore[reportAssignmentType]


composite_op = Composite()


def composite_call(
    function: Callable[..., Any], args: tuple[Any, ...], name: str, version: int, attributes: dict[str, Any]
) -> Any:
    """``function(*args)`` as one equation."""
    leaves, in_def = tree.flatten(args)
    xs = [as_value(x, f"composite {name}") for x in leaves]
    flat = FlatFunction(function, in_def)
    program, consts = stage(flat, [x.type for x in xs], name).hoist_consts()
    shown = tuple((key, repr(value)) for key, value in sorted(attributes.items()))
    ys = composite_op(*consts, *xs, program=program, name=name, version=version, attributes=shown)
    return tree.unflatten(flat.out_def, ys)
