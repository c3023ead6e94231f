"""Ops that hold programs: what they share, and the derived programs that their rules need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.ops.base import NDArray, move_batch
from nxjax.ops.collectives import as_varying, pvary
from nxjax.trace.core import Array, Arrays, Dims, Op, current_trace
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, Var, run
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.transforms.jvp import jvp_flat
from nxjax.transforms.subprograms import Mask, expand_by_mask, not_none_mask, select_by_mask

# thread(program, place among the inputs, place among the results): the program with a token that orders its effects.
Thread = Callable[..., Program]


class Nested(Op):
    """Holds programs, gives a tuple, and is compiled as a whole when nothing is being traced."""

    multi = True
    nested = True

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        return self.batch_axis(None, size, args, dims, **params)

    @abstractmethod
    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        """As `batch`; collectives over ``axis_name`` in held programs are answered."""

    def pvary_operands(self, args: Arrays, params: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        """Operands and parameters of the op for ``args`` that may vary along more axes than its programs say."""
        return args, params


class NestedCall(Nested):
    """Runs one program as it stands; what else it holds is for its transforms."""

    @abstractmethod
    def called(self, *args: Any, **params: Any) -> tuple[Program, Sequence[Any]]:
        """The program whose results are those of the op, and what it takes of ``args``."""

    def eval(self, *xs: NDArray, **params: Any) -> tuple[NDArray, ...]:
        return tuple(evaluate(*self.called(*xs, **params)))

    def expand(self, *xs: Array, **params: Any) -> tuple[Array, ...]:
        return tuple(run(*self.called(*xs, **params)))

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        return tuple(b.program(*self.called(*xs, **params)))


def batch_to_front(args: Arrays, dims: Dims, size: int) -> list[Array]:
    """Batched arguments with their batch at dimension 0, the others as they are."""
    return [x if d is None else move_batch(x, d, size) for x, d in zip(args, dims, strict=True)]


def jvp_program(program: Program, varying: Mask) -> tuple[Program, Mask]:
    """The program (inputs..., varying tangents...) -> (results..., tangents of varying results...), kept with it."""

    def make() -> tuple[Program, Mask]:
        store: list[Mask] = []
        n = len(program.inputs)

        def flat(*xs: Array) -> Arrays:
            ys, ts = jvp_flat(program, xs[:n], expand_by_mask(xs[n:], varying))
            store[:] = [not_none_mask(ts)]
            return [*ys, *(t for t in ts if t is not None)]

        t_types = [t.strong() for t in select_by_mask(program.in_types, varying)]
        return stage(flat, [*program.in_types, *t_types], f"jvp({program.name})"), store[0]

    return program.derive(("jvp", varying), make)


def pvary_results(program: Program, vmas: Sequence[frozenset[Any]]) -> Program:
    """``program`` with results of types that vary along the mesh axes ``vmas`` too."""
    if all(t.vma >= vma for t, vma in zip(program.out_types, vmas, strict=True)):
        return program

    def flat(*xs: Array) -> list[Array]:
        return [as_varying(y, vma) for y, vma in zip(run(program, xs), vmas, strict=True)]

    return program.derive(("pvary results", tuple(vmas)), lambda: stage(flat, program.in_types, program.name))


def pvary_inputs(program: Program, vmas: Sequence[frozenset[Any]]) -> Program:
    """``program`` for inputs of types that vary along the mesh axes ``vmas`` too."""
    types = [t.with_vma(t.vma | vma) for t, vma in zip(program.in_types, vmas, strict=True)]
    if all(t.vma == u.vma for t, u in zip(types, program.in_types, strict=True)):
        return program
    return program.derive(("pvary inputs", tuple(vmas)), lambda: stage(_VaryingProgram(program), types, program.name))


@final
class _VaryingProgram:
    """``program`` on values that may vary along more axes than it says, the programs that its ops hold included."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __call__(self, *xs: Array) -> list[Array]:
        trace, env = current_trace(), dict(zip(self.program.inputs, xs, strict=True))
        env.update(zip(self.program.constvars, self.program.values, strict=True))
        for e in self.program.equations:
            args: Arrays = tuple([env[a] if isinstance(a, Var) else a.value for a in e.inputs])
            params = e.params
            if isinstance(e.op, Nested):
                args, params = e.op.pvary_operands(args, params)
            with replaying(e.scope, e.source):
                # What varies already is not made to: the transpose would add up cotangents once more.
                y = as_varying(args[0], params["axis_names"]) if e.op is pvary else trace.process(e.op, args, params)
            env.update(zip(e.outputs, y if e.op.multi else (y,), strict=True))
        return [env[a] if isinstance(a, Var) else a.value for a in self.program.outputs]
