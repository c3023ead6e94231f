"""Ops that call a program, such as the one of `jit`, which is compiled as a whole when the outermost trace reaches it.

A transform of a call is the call of the transformed program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.ops.base import check_operands
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.program import Program
from nxjax.trace.types import ArrayType
from nxjax.transforms.nested import NestedCall, Thread, batch_to_front, jvp_program, pvary_inputs
from nxjax.transforms.partial_eval import PartialTrace, partial_eval_call
from nxjax.transforms.subprograms import Mask, expand_by_mask, not_none_mask
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program


class ProgramCall(NestedCall):
    """Call of ``program``, which has no consts."""

    call_for_transforms = True
    aliases = {"jaxpr": "program"}

    def infer(self, *types: ArrayType, program: Program, **_: Any) -> tuple[ArrayType, ...]:
        check_operands(self, types, program)
        return program.out_types

    def called(self, *args: Any, program: Program, **_: Any) -> tuple[Program, Sequence[Any]]:
        return program, args

    def pvary_operands(self, args: Arrays, params: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        return args, {**params, "program": pvary_inputs(params["program"], [x.type.vma for x in args])}

    def derived(self, transform: str, program: Program, args: Arrays, params: dict[str, Any]) -> Sequence[Array]:
        """The call of ``program``, which ``transform`` made of the one called; the values that it holds come first."""
        hoisted, consts = program.hoist_consts()
        return self(*consts, *args, program=hoisted, **params)

    def jvp(self, primals: Arrays, tangents: Tangents, *, program: Program, **params: Any) -> tuple[Any, Any]:
        pushed, varies = jvp_program(program, not_none_mask(tangents))
        out = self.derived("jvp", pushed, [*primals, *(t for t in tangents if t is not None)], params)
        n = len(program.outputs)
        return out[:n], tuple(expand_by_mask(out[n:], varies))

    def transpose(self, cts: Tangents, *args: Any, program: Program, **params: Any) -> Tangents:
        linear = tuple(isinstance(x, UndefinedPrimal) for x in args)
        back = self.transposed(program, linear, not_none_mask(cts))
        known = [x for x, l in zip(args, linear, strict=True) if not l]
        return expand_by_mask(
            self.derived("transpose", back, [*known, *(ct for ct in cts if ct is not None)], params), linear
        )

    def transposed(self, program: Program, linear: Mask, given: Mask) -> Program:
        """The transposed program, from what is known and the cotangents that are ``given``."""
        return transpose_program(program, linear, given)

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, program: Program, **params: Any
    ) -> tuple[Any, Any]:
        mapped, out = batch_program(program, size, not_none_mask(dims), name=axis_name)
        return self.derived("vmap", mapped, batch_to_front(args, dims, size), params), tuple(
            0 if b else None for b in out
        )

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        return {**params, "program": thread(params["program"])}, 0, 0


@final
class JitCall(ProgramCall):
    """Call of a jitted function."""

    name = "jit"
    plain_call = True

    def infer(self, *types: ArrayType, program: Program, name: str) -> tuple[ArrayType, ...]:
        return super().infer(*types, program=program)

    def derived(self, transform: str, program: Program, args: Arrays, params: dict[str, Any]) -> Sequence[Array]:
        return super().derived(transform, program, args, {"name": f"{transform}({params['name']})"})

    def partial_eval(self, trace: PartialTrace, args: Arrays, known: Mask, **params: Any) -> Any:
        return partial_eval_call(self, trace, args, known, params)

    def stablehlo(self, b: Any, out: Any, *xs: Any, program: Program, name: str) -> Any:
        return b.call(program, xs, name)


jit_call = JitCall()
