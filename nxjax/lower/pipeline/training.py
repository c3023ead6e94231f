"""Forward and backward programs of the stages of a loss, and the gradients that they add up to.

Knows programs; who runs them, where and when, is for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from nxjax.errors import ParameterError
from nxjax.lower.pipeline.stages import Stages, nbytes
from nxjax.ops.arithmetic import add
from nxjax.ops.base import zeros
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.transforms.linearize import linearize_program
from nxjax.transforms.transpose import transpose_program

Run = Callable[[Program, Sequence[Any]], Sequence[Any]]


@final
@dataclass(frozen=True, eq=False)
class Half:
    """The two directions of a stage.

    Attributes:
        forward: (inputs...) -> (outputs..., stash...).
        backward: (stash..., inputs that it reads again..., cotangents of `returned`...) -> cotangents of `wanted`.
        outputs: how many outputs the forward has before its stash.
        again: positions of the inputs that the backward reads: they are kept, not copied.
        wanted: positions of the inputs that get a cotangent.
        returned: positions of the outputs whose cotangent is taken.
        stash: bytes that one micro-batch in flight keeps: the forward's extra results.
    """

    forward: Program
    backward: Program
    outputs: int
    again: tuple[int, ...]
    wanted: tuple[int, ...]
    returned: tuple[int, ...]
    stash: int


def halves(stages: Stages, varying: Sequence[bool], recompute: bool = False) -> list[Half]:
    """Forward and backward of every stage.

    Args:
        stages: of a program whose first result is the loss, a scalar.
        varying: which inputs of the whole program are differentiated.
        recompute: keep a stage's inputs only, and run its forward again before its backward.

    Raises:
        ParameterError: the first result is not a float scalar.
    """
    loss = stages.outputs[0]
    t = stages.stages[loss.stage].program.outputs[loss.index].type
    if t.shape != () or t.dtype not in dtypes.INEXACT:
        raise ParameterError("pipeline: the first result must be the loss", got=t, expected="a float scalar")
    depends: list[list[bool]] = []
    found: list[Half] = []
    for s in stages.stages:
        mask = tuple(
            (varying[x.index] if x.kind == "input" else depends[x.stage][x.index]) and dtypes.is_differentiable(t.dtype)
            for x, t in zip(s.sources, s.program.in_types, strict=True)
        )
        half, varies = _half(s.program, mask, recompute)
        depends.append(varies)
        found.append(half)
    return found


def _half(program: Program, mask: tuple[bool, ...], recompute: bool) -> tuple[Half, list[bool]]:
    halves, varies = linearize_program(program, mask)
    kept, source = halves.known, halves.sources
    n = len(program.outputs)
    wanted = tuple(i for i, m in enumerate(mask) if m)
    returned = tuple(i for i, v in enumerate(varies) if v)
    linear = (False,) * len(source) + (True,) * len(wanted)
    back = transpose_program(halves.unknown, linear, (True,) * len(returned))
    if recompute:
        again = tuple(range(len(program.inputs)))

        def flat(*xs: Array) -> Sequence[Array]:
            inputs, cts = xs[: len(again)], xs[len(again) :]
            return back(*halves.residuals(inputs, kept(*inputs)), *cts)

        cts = [program.outputs[i].type.strong() for i in returned]
        backward = stage(flat, [*program.in_types, *cts], f"backward({program.name})")
        return Half(program, backward, n, again, wanted, returned, 0), list(varies)
    again = tuple(dict.fromkeys(i for i in source if i is not None))
    stash = kept.outputs[n:]

    def from_stash(*xs: Array) -> Sequence[Array]:
        stashed = iter(xs[: len(stash)])
        inputs = dict(zip(again, xs[len(stash) : len(stash) + len(again)], strict=True))
        residuals = [next(stashed) if i is None else inputs[i] for i in source]
        return back(*residuals, *xs[len(stash) + len(again) :])

    types = [a.type for a in stash] + [program.in_types[i] for i in again]
    cts = [program.outputs[i].type.strong() for i in returned]
    backward = stage(from_stash, [*types, *cts], f"backward({program.name})")
    size = sum(nbytes(a.type) for a in stash)
    return Half(kept, backward, n, again, wanted, returned, size), list(varies)


@final
class Micro:
    """One micro-batch on its way through the stages: what each stage left, and the cotangents that come back.

    Attributes:
        gradients: input of the whole program -> its cotangent so far.
    """

    def __init__(self, stages: Stages, halves: Sequence[Half], inputs: Sequence[Any]) -> None:
        self._stages = stages
        self._halves = halves
        self._inputs = list(inputs)
        self._outputs: list[list[Any]] = [[] for _ in halves]
        self._stash: list[list[Any]] = [[] for _ in halves]
        self._cts: list[dict[int, Any]] = [{} for _ in halves]
        self.gradients: dict[int, Any] = {}

    def _arguments(self, k: int) -> list[Any]:
        sources = self._stages.stages[k].sources
        return [self._inputs[s.index] if s.kind == "input" else self._outputs[s.stage][s.index] for s in sources]

    def forward(self, k: int, run: Run) -> None:
        """Stage ``k``, whose inputs are there."""
        half = self._halves[k]
        made = list(run(half.forward, self._arguments(k)))
        self._outputs[k], self._stash[k] = made[: half.outputs], made[half.outputs :]

    def results(self) -> list[Any]:
        return [self._outputs[s.stage][s.index] for s in self._stages.outputs]

    def backward(self, k: int, run: Run, seed: Any) -> None:
        """Stage ``k``, when all later ones are done; ``seed`` is the loss's cotangent."""
        half = self._halves[k]
        loss = self._stages.outputs[0]
        if loss.stage == k:
            self._add(k, loss.index, seed)
        cts = [self._cts[k].get(i) for i in half.returned]
        types = [half.forward.outputs[i].type for i in half.returned]
        given = [zeros(t.strong()) if ct is None else ct for ct, t in zip(cts, types, strict=True)]
        arguments = self._arguments(k)
        found = run(half.backward, [*self._stash[k], *(arguments[i] for i in half.again), *given])
        self._stash[k] = []
        for i, ct in zip(half.wanted, found, strict=True):
            s = self._stages.stages[k].sources[i]
            if s.kind == "input":
                held = self.gradients.get(s.index)
                self.gradients[s.index] = ct if held is None else add(held, ct)
            else:
                self._add(s.stage, s.index, ct)

    def _add(self, stage: int, index: int, ct: Any) -> None:
        held = self._cts[stage].get(index)
        self._cts[stage][index] = ct if held is None else add(held, ct)
