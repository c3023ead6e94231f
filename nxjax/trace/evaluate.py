"""What a program means in NumPy: its equations by their `eval`, one after the other. Knows ops by that rule only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from nxjax.config.named_tuple import NamedTuple
from nxjax.trace.program import Equation, Literal, Program, Var

NDArray = np.ndarray[Any, Any]


class Perturbation(NamedTuple):
    """What becomes of each value that an equation gives, also in programs that ops hold.

    Attributes:
        each_use: every equation that reads a value has another one, as where it is computed several times.
    """

    of: Callable[[NDArray], NDArray]
    each_use: bool = False


perturbation: ContextVar[Perturbation | None] = ContextVar("perturbation", default=None)


def evaluate(
    program: Program, args: Sequence[NDArray], instead: Mapping[Equation, Callable[..., Any]] | None = None
) -> list[NDArray]:
    """The results of ``program``; it runs without traces, and nothing is compiled.

    ``instead``: what computes these equations, if not their ops' ``eval``; called as that is.
    """
    perturb = perturbation.get()
    env: dict[Var, NDArray] = dict(zip(program.inputs, args, strict=True))
    env.update((v, x.numpy()) for v, x in zip(program.constvars, program.values, strict=True))

    def value(a: Var | Literal) -> NDArray:
        return env[a] if isinstance(a, Var) else a.value.numpy()

    made: set[Var | Literal] = set()
    read = value
    if perturb and perturb.each_use:
        read = lambda a: perturb.of(value(a)) if a in made else value(a)
    for e, dead in zip(program.equations, program.last_use, strict=True):
        meaning = instead[e] if instead and e in instead else e.op.eval
        y = meaning(*[read(a) for a in e.inputs], **e.params)
        # NumPy gives scalars where it could give arrays without dimensions.
        if e.op.multi:
            env.update(zip(e.outputs, map(np.asarray, y), strict=True))
        else:
            env[e.outputs[0]] = y if type(y) is np.ndarray else np.asarray(y)
        if perturb:
            made.update(e.outputs)
            if not perturb.each_use:
                env.update((v, perturb.of(env[v])) for v in e.outputs)
        for v in dead:
            env.pop(v, None)
    return [value(a) for a in program.outputs]
