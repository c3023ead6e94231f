"""`lax.composite`: a call of a program that is one unit with a name. It runs and batches as the program does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

from nxjax.errors import ParameterError
from nxjax.ops.base import NDArray, check_operands
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.nested import Nested, batch_to_front, not_none_mask
from nxjax.transforms.vmap import batch_program


@final
class Composite(Nested):
    """Call of ``program``; ``name``, ``version`` and ``attributes`` say what it stands for."""

    name = "composite"
    any_params = True
    aliases = {"jaxpr": "program"}

    def infer(self, *types: ArrayType, program: Program, **_: Any) -> tuple[ArrayType, ...]:
        check_operands(self, types, program)
        return program.out_types

    def eval(self, *xs: NDArray, program: Program, **_: Any) -> tuple[NDArray, ...]:
        return tuple(evaluate(program, xs))

    def expand(self, *xs: Array, program: Program, **_: Any) -> tuple[Array, ...]:
        return tuple(run(program, xs))

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> NoReturn:
        raise ParameterError(
            f"composite {params['name']}: has no derivative",
            got="a composite that is being differentiated",
            fix="wrap the call in a function with nx.custom_jvp or nx.custom_vjp",
        )

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        mapped, out = batch_program(params["program"], size, not_none_mask(dims), name=axis_name)
        mapped, consts = mapped.close_over()
        ys = self(*consts, *batch_to_front(args, dims, size), **{**params, "program": mapped})
        return ys, tuple(0 if b else None for b in out)

    def stablehlo(self, b: Any, out: Any, *xs: Any, program: Program, **_: Any) -> Any:
        return tuple(b.program(program, xs))


composite_op = Composite()


def composite_call(
    function: Callable[..., Any], args: tuple[Any, ...], name: str, version: int, attributes: dict[str, Any]
) -> Any:
    """``function(*args)`` as one equation."""
    leaves, in_def = tree.flatten(args)
    xs = [as_value(x, f"composite {name}") for x in leaves]
    out_defs: list[tree.TreeDef] = []

    def flat(*values: Array) -> Sequence[Any]:
        ys, out_def = tree.flatten(function(*tree.unflatten(in_def, values)))
        out_defs.append(out_def)
        return ys

    program, consts = stage(flat, [x.type for x in xs], name).close_over()
    shown = tuple((key, repr(value)) for key, value in sorted(attributes.items()))
    ys = composite_op(*consts, *xs, program=program, name=name, version=version, attributes=shown)
    return tree.unflatten(out_defs[0], ys)
