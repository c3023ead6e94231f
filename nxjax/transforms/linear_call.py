"""`linear_call`: a linear function whose transpose the user gives. The transpose of the call is a call of that one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.errors import GradientError, TreeError
from nxjax.ops.base import check_count, move_batch, zeros
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of
from nxjax.transforms.call import ProgramCall
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.nested import Thread, batch_to_front
from nxjax.transforms.subprograms import not_none_mask
from nxjax.transforms.vmap import batch_program

# Gives the program (consts..., residuals..., cotangents...) -> cotangents of the linear operands, and its consts.
Back = Callable[[], tuple[Program, Arrays]]


@final
class LinearCall(ProgramCall):
    """Call of ``program`` on consts, residuals and linear operands; ``back`` gives its transpose."""

    name = "linear_call"
    aliases = {"callee": "program", "num_callee_consts": "num_consts"}

    def infer(
        self, *types: ArrayType, program: Program, num_consts: int, num_res: int, back: Back
    ) -> tuple[ArrayType, ...]:
        check_count(self, "num_consts", num_consts, len(types))
        check_count(self, "num_res", num_res, len(types) - num_consts)
        return super().infer(*types, program=program)

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, program: Program, num_consts: int, num_res: int, back: Back
    ) -> tuple[Any, Any]:
        n = num_consts + num_res
        if any(t is not None for t in tangents[:n]):
            raise GradientError(
                "linear_call: a residual is being differentiated",
                got="a function that is known to be linear in its other arguments only",
                fix="use nx.lax.stop_gradient on residuals, or nx.custom_vjp",
            )
        params = {"program": program, "num_consts": num_consts, "num_res": num_res, "back": back}
        y = self(*primals, **params)
        filled = [zeros(x.type.strong()) if t is None else t for x, t in zip(primals[n:], tangents[n:], strict=True)]
        return y, self(*primals[:n], *filled, **params)

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        return super().with_token({**params, "num_consts": params["num_consts"] + 1}, thread)

    def transpose(
        self, cts: Tangents, *args: Any, program: Program, num_consts: int, num_res: int, back: Back
    ) -> Tangents:
        n = num_consts + num_res
        pulled, consts = back()
        filled = [zeros(t.strong()) if ct is None else ct for ct, t in zip(cts, program.out_types, strict=True)]
        found = self(
            *consts,
            *args[num_consts:n],
            *filled,
            program=pulled,
            num_consts=len(consts),
            num_res=num_res,
            back=_Known(program, args[:num_consts]),
        )
        return [*(None,) * n, *found]

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        program: Program,
        num_consts: int,
        num_res: int,
        back: Back,
    ) -> tuple[Any, Any]:
        n = num_consts + num_res
        front = batch_to_front(args, dims, size)
        front[n:] = [move_batch(x, d, size) for x, d in zip(args[n:], dims[n:], strict=True)]
        mask = (*not_none_mask(dims[:n]), *(True,) * (len(args) - n))
        mapped, _ = batch_program(program, size, mask, (True,) * len(program.outputs), axis_name)
        hoisted, consts = mapped.hoist_consts()
        lifted = _BatchedBack(back, size, mask[num_consts:n], axis_name)
        ys = self(*consts, *front, program=hoisted, num_consts=len(consts) + num_consts, num_res=num_res, back=lifted)
        return ys, (0,) * len(ys)


linear_call_op = LinearCall()


@final
class _Known:
    """The transpose of a transpose: what it was made from."""

    def __init__(self, program: Program, consts: Arrays) -> None:
        self.program = program
        self.consts = tuple(consts)

    def __call__(self) -> tuple[Program, Arrays]:
        return self.program, self.consts


@final
class _BatchedBack:
    """``back`` for every element of a batch; residuals are batched where ``mask`` says so, cotangents everywhere."""

    def __init__(self, back: Back, size: int, mask: Sequence[bool], axis_name: Any) -> None:
        self.back = back
        self.size = size
        self.mask = tuple(mask)
        self.axis_name = axis_name

    def __call__(self) -> tuple[Program, Arrays]:
        program, consts = self.back()
        cts = len(program.inputs) - len(consts) - len(self.mask)
        dims = (*(False,) * len(consts), *self.mask, *(True,) * cts)
        mapped, _ = batch_program(program, self.size, dims, (True,) * len(program.outputs), self.axis_name)
        hoisted, more = mapped.hoist_consts()
        return hoisted, (*more, *consts)


@final
class _UserBack:
    """The user's transpose, traced when it is needed."""

    def __init__(self, flat: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str) -> None:
        self.flat = flat
        self.types = types
        self.__qualname__ = name

    def __call__(self) -> tuple[Program, Arrays]:
        return stage(self.flat, self.types, self.__qualname__).hoist_consts()


def linear_call(
    fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any, linear_args: Any
) -> Any:
    """``fun(residual_args, linear_args)``, with ``fun_transpose`` as its transpose in reverse mode.

    Args:
        fun: linear in its second argument.
        fun_transpose: ``fun_transpose(residual_args, cotangent)`` returns the cotangent of ``linear_args``; linear in
            its second argument, with ``fun`` as its transpose.
        residual_args: a tree of arrays that is not differentiated.
        linear_args: a tree of arrays.

    Raises:
        TypeError: the transpose returns another structure than that of ``linear_args``; residuals are differentiated.
        TreeError: the transpose returns another structure than that of the linear arguments.

    >>> f = lambda x: linear_call(lambda r, x: x / r, lambda r, ct: ct / r, 4.0, x)
    >>> float(nx.linear_transpose(f, 1.0)(2.0)[0])
    0.5
    """
    residuals, r_def = tree.flatten(residual_args)
    linear, l_def = tree.flatten(linear_args)
    xs = [as_value(x, "linear_call") for x in (*residuals, *linear)]
    n = len(residuals)
    flat = FlatFunction(fun, tree.structure((residual_args, linear_args)))
    name = name_of(fun)
    program, consts = stage(flat, [x.type for x in xs], name).hoist_consts()

    def flat_back(*values: Array) -> Sequence[Any]:
        found = fun_transpose(tree.unflatten(r_def, values[:n]), tree.unflatten(flat.out_def, values[n:]))
        cts, ct_def = tree.flatten(found)
        if ct_def != l_def:
            raise TreeError("linear_call: the transpose gives another structure", got=ct_def, expected=l_def)
        return cts

    types = [*(x.type for x in xs[:n]), *(t.strong() for t in program.out_types)]
    back = _UserBack(flat_back, types, f"transpose of {name}")
    ys = linear_call_op(*consts, *xs, program=program, num_consts=len(consts), num_res=n, back=back)
    return tree.unflatten(flat.out_def, ys)
