"""The op `jit` binds: a call of a program, compiled as a whole when it is reached by the outermost trace.

Each transform of the call is the call of the transformed program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.ops.base import NDArray, fits
from nxjax.trace.core import Array, Linear, Op, current_trace, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, run
from nxjax.trace.types import ArrayType
from nxjax.transforms.linearize import TangentTrace, linearized, without_forwarded
from nxjax.transforms.nested import Nested, jvp_program, present, to_front
from nxjax.transforms.partial import split_program
from nxjax.transforms.transpose import transposed
from nxjax.transforms.vmap import batched


@final
class JitCall(Nested):
    """Call of ``program``, which has no consts."""

    name = "jit"
    aliases = {"jaxpr": "program"}

    def infer(self, *types: ArrayType, program: Program, name: str) -> tuple[ArrayType, ...]:
        fits(self, types, program)
        return program.out_types

    def eval(self, *xs: NDArray, program: Program, name: str) -> tuple[NDArray, ...]:
        return tuple(evaluate(program, xs))

    def expand(self, *xs: Array, program: Program, name: str) -> tuple[Array, ...]:
        return tuple(run(program, xs))

    def jvp(
        self, primals: Sequence[Array], tangents: Sequence[Array | None], *, program: Program, name: str
    ) -> tuple[Any, Any]:
        varying = tuple(t is not None for t in tangents)
        pushed, varies = jvp_program(program, varying)
        pushed, consts = pushed.close_over()
        out = self(*consts, *primals, *(t for t in tangents if t is not None), program=pushed, name=f"jvp({name})")
        n = len(program.outputs)
        rest = iter(out[n:])
        return out[:n], tuple(next(rest) if v else None for v in varies)

    def linearize(
        self, primals: Sequence[Array], tangents: Sequence[Array | None], *, program: Program, name: str
    ) -> tuple[Any, Any]:
        value, tangent, varies = linearized(program, present(tangents))
        n = len(program.outputs)
        value, sources = without_forwarded(value, n)
        value, consts = value.close_over()
        out = self(*consts, *primals, program=value, name=name)
        made = iter(out[n:])
        residuals = [next(made) if i is None else primals[i] for i in sources]
        trace = current_trace()
        assert isinstance(trace, TangentTrace)
        given = [*residuals, *(t for t in tangents if t is not None)]
        pushed = iter(trace.write(self, given, {"program": tangent, "name": f"tangent({name})"}) if any(varies) else ())
        return out[:n], tuple(next(pushed) if v else None for v in varies)

    def split(self, trace: TangentTrace, args: Sequence[Array], unknown: Sequence[bool], params: dict[str, Any]) -> Any:
        """Compute now what depends on known arguments only, stage the rest."""
        return split_call(self, trace, args, unknown, params)

    def transpose(self, cts: Sequence[Array | None], *args: Any, program: Program, name: str) -> Sequence[Array | None]:
        linear = tuple(isinstance(x, Linear) for x in args)
        nonzero = tuple(ct is not None for ct in cts)
        back = transposed(program, linear, nonzero)
        known = [x for x, l in zip(args, linear, strict=True) if not l]
        opened, consts = back.close_over()
        found = iter(
            self(*consts, *known, *(ct for ct in cts if ct is not None), program=opened, name=f"transpose({name})")
        )
        return [next(found) if l else None for l in linear]

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        program: Program,
        name: str,
    ) -> tuple[Any, Any]:
        mapped, out = batched(program, size, present(dims), name=axis_name)
        mapped, consts = mapped.close_over()
        ys = self(*consts, *to_front(args, dims, size), program=mapped, name=f"vmap({name})")
        return ys, tuple(0 if b else None for b in out)

    def stablehlo(self, b: Any, out: Any, *xs: Any, program: Program, name: str) -> Any:
        return b.call(program, xs, name)


def split_call(
    op: Op, trace: TangentTrace, args: Sequence[Array], unknown: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Bind the known half of a call in the parent trace and stage the unknown half (see `split_program`)."""
    program: Program = params["program"]
    known_half, unknown_half, from_known, n_residuals = split_program(program, tuple(unknown))
    assert trace.parent is not None
    known_args = [x for x, u in zip(args, unknown, strict=True) if not u]
    with use(trace.parent):
        out = op(*known_args, **{**params, "program": known_half})
    residuals, known_out = out[:n_residuals], iter(out[n_residuals:])
    rest = [*residuals, *(x for x, u in zip(args, unknown, strict=True) if u)]
    unknown_out = iter(trace.write(op, rest, {**params, "program": unknown_half}))
    return tuple(next(known_out) if k else next(unknown_out) for k in from_known)


jit_call = JitCall()
