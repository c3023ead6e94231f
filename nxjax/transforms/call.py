"""The op `jit` binds: a call of a program, compiled as a whole when it is reached by the outermost trace.

Each transform of the call is the call of the transformed program.
"""

from __future__ import annotations

from typing import Any, final

from nxjax.ops.base import NDArray, check_operands
from nxjax.trace.core import Array, Arrays, Dims, Linear, Tangents
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, run
from nxjax.trace.types import ArrayType
from nxjax.transforms.nested import Mask, Nested, batch_to_front, jvp_program, not_none_mask
from nxjax.transforms.partial_eval import PartialTrace, partial_eval_call
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program


@final
class JitCall(Nested):
    """Call of ``program``, which has no consts."""

    name = "jit"
    plain_call = True
    aliases = {"jaxpr": "program"}

    def infer(self, *types: ArrayType, program: Program, name: str) -> tuple[ArrayType, ...]:
        check_operands(self, types, program)
        return program.out_types

    def eval(self, *xs: NDArray, program: Program, name: str) -> tuple[NDArray, ...]:
        return tuple(evaluate(program, xs))

    def expand(self, *xs: Array, program: Program, name: str) -> tuple[Array, ...]:
        return tuple(run(program, xs))

    def jvp(self, primals: Arrays, tangents: Tangents, *, program: Program, name: str) -> tuple[Any, Any]:
        varying = tuple(t is not None for t in tangents)
        pushed, varies = jvp_program(program, varying)
        pushed, consts = pushed.close_over()
        out = self(*consts, *primals, *(t for t in tangents if t is not None), program=pushed, name=f"jvp({name})")
        n = len(program.outputs)
        rest = iter(out[n:])
        return out[:n], tuple(next(rest) if v else None for v in varies)

    def partial_eval(self, trace: PartialTrace, args: Arrays, known: Mask, **params: Any) -> Any:
        return partial_eval_call(self, trace, args, known, params)

    def transpose(self, cts: Tangents, *args: Any, program: Program, name: str) -> Tangents:
        linear = tuple(isinstance(x, Linear) for x in args)
        nonzero = tuple(ct is not None for ct in cts)
        back = transpose_program(program, linear, nonzero)
        known = [x for x, l in zip(args, linear, strict=True) if not l]
        opened, consts = back.close_over()
        found = iter(
            self(*consts, *known, *(ct for ct in cts if ct is not None), program=opened, name=f"transpose({name})")
        )
        return [next(found) if l else None for l in linear]

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, program: Program, name: str
    ) -> tuple[Any, Any]:
        mapped, out = batch_program(program, size, not_none_mask(dims), name=axis_name)
        mapped, consts = mapped.close_over()
        ys = self(*consts, *batch_to_front(args, dims, size), program=mapped, name=f"vmap({name})")
        return ys, tuple(0 if b else None for b in out)

    def stablehlo(self, b: Any, out: Any, *xs: Any, program: Program, name: str) -> Any:
        return b.call(program, xs, name)


jit_call = JitCall()
