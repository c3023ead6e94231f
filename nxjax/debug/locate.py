"""Where a program first made a NaN or an infinity: found by running it again, op by op, by their NumPy meaning.

`locate` computes every value of a program and walks back from a bad result: an op whose operands are good has made it;
otherwise the walk goes on with the operand that it comes from, which is found by trying the op without the others' bad
elements. So a NaN that a `where` throws away is not blamed. Ops that hold programs are entered: calls, the first step
of a loop that goes wrong, the branch that was taken. Knows no trace and no executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.errors import Source
from nxjax.trace import dtypes
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.subprograms import clamped_branch

NDArray = np.ndarray[Any, Any]
Test = Callable[[NDArray], NDArray]


class Made(NamedTuple):
    """An op that made it.

    Attributes:
        equation, operands, result: what ran.
        variable: which result of it is bad.
        path: the programs that it is in, outermost first.
        source: the user's line: the op's own, or that of the innermost of those programs that has one.
    """

    equation: Equation
    operands: Sequence[NDArray]
    result: NDArray
    variable: Var
    source: Source | None
    path: tuple[str, ...] = ()

    def inside(self, what: str, source: Source | None) -> Made:
        return self._replace(path=(what, *self.path), source=self.source or source)


class Given(NamedTuple):
    """It came in: through input ``index``, or as a constant (-1)."""

    index: int
    value: NDArray


def is_bad(x: NDArray, test: Test) -> bool:
    """Whether an array of floats has an element for which ``test`` holds."""
    return x.dtype in dtypes.INEXACT and bool(test(x).any())


def locate(
    program: Program, args: Sequence[NDArray], test: Test, wanted: Sequence[int] | None = None
) -> Made | Given | None:
    """What made the first bad result of ``program``, among the results ``wanted``; None: none is bad."""
    return _Run(program, args, test).trace(wanted)


def absorbed(program: Program, args: Sequence[NDArray]) -> Made | Given | None:
    """What made the first NaN that an op of ``program`` takes for a number; None: there is none."""
    if not any(e.op.absorbs_nan for e in program.equations):
        return None
    run = _Run(program, args, np.isnan)
    taken = (a for e in program.equations if e.op.absorbs_nan for a in e.inputs)
    return next((run.back(a) for a in taken if run.bad(run.value(a))), None)


@final
class _Run:
    def __init__(self, program: Program, args: Sequence[NDArray], test: Test) -> None:
        self.program = program
        self.test = test
        self.env: dict[Var, NDArray] = dict(zip(program.inputs, args, strict=True))
        self.env.update((v, x.numpy()) for v, x in zip(program.consts, program.values, strict=True))
        self.maker: dict[Var, tuple[Equation, int]] = {}
        for e in program.equations:
            y = e.op.eval(*map(self.value, e.inputs), **e.params)
            for i, (v, x) in enumerate(zip(e.outputs, y if e.op.multi else (y,), strict=True)):
                self.env[v] = np.asarray(x)
                self.maker[v] = e, i

    def value(self, a: Atom) -> NDArray:
        return self.env[a] if isinstance(a, Var) else a.value.numpy()

    def bad(self, x: NDArray) -> bool:
        return is_bad(x, self.test)

    def trace(self, wanted: Sequence[int] | None) -> Made | Given | None:
        outputs = self.program.outputs
        for i in range(len(outputs)) if wanted is None else wanted:
            if self.bad(self.value(outputs[i])):
                return self.back(outputs[i])
        return None

    def back(self, atom: Atom) -> Made | Given:
        """Walk back from a bad value."""
        while isinstance(atom, Var) and atom in self.maker:
            e, place = self.maker[atom]
            xs = [self.value(a) for a in e.inputs]
            found = enter(e, xs, place, self.test)
            if isinstance(found, Made):
                return found
            k = found.index if isinstance(found, Given) and found.index >= 0 else self.source(e, xs, place)
            if k is None:
                return Made(e, xs, self.env[atom], atom, e.source)
            atom = e.inputs[k]
        if isinstance(atom, Var) and atom in self.program.inputs:
            return Given(self.program.inputs.index(atom), self.env[atom])
        return Given(-1, self.value(atom))

    def source(self, e: Equation, xs: Sequence[NDArray], place: int) -> int | None:
        """The operand that a bad result comes from; None: from the op itself."""
        bad = [i for i, x in enumerate(xs) if self.bad(x)]
        if not bad:
            return None

        def spoiled(kept: Sequence[int]) -> bool:
            ys = e.op.eval(*(x if i in kept else self.mended(x) for i, x in enumerate(xs)), **e.params)
            return self.bad(np.asarray(ys[place] if e.op.multi else ys))

        if spoiled(()):
            return None
        return next((i for i in bad if spoiled((i,))), bad[0])

    def mended(self, x: NDArray) -> NDArray:
        if not self.bad(x):
            return x
        y = x.copy()
        y[self.test(x)] = 1
        return y


def enter(e: Equation, xs: Sequence[NDArray], place: int, test: Test) -> Made | Given | None:
    """As `locate`, of result ``place`` of an op that holds programs; None: it holds none that can be entered."""
    p = e.params
    own = _ENTERED.get(e.op.name)
    if own is not None:
        return own(e, xs, place, test)
    program: Program | None = p.get("program")
    if not e.op.nested or program is None or len(program.inputs) != len(xs):
        return None
    found = locate(program, xs, test, [place] if place < len(program.outputs) else None)
    name = p.get("name") or program.name
    return found.inside(f"{e.op.name} of {name}" if name else e.op.name, e.source) if isinstance(found, Made) else found


def _scan(e: Equation, xs: Sequence[NDArray], test: Test) -> Made | Given | None:
    loop: LoopParams = e.params["loop"]
    x = loop.split(xs)
    state = x.carry
    for step in loop.step_indices():
        given = [*x.consts, *state, *(s[step, ...] for s in x.xs)]
        out = evaluate(loop.body, given)
        if any(is_bad(y, test) for y in out):
            found = locate(loop.body, given, test)
            if isinstance(found, Made):
                return found.inside(f"scan, step {step} of {loop.length}", e.source)
            return found
        state, _ = loop.results(out)
    return None


def _while(e: Equation, xs: Sequence[NDArray], test: Test) -> Made | Given | None:
    loop: LoopParams = e.params["loop"]
    x, step, n = loop.split(xs), 0, loop.num_cond_consts
    while evaluate(loop.condition, x.cond_inputs)[0]:
        out = evaluate(loop.body, x.body_inputs)
        if any(is_bad(y, test) for y in out):
            found = locate(loop.body, x.body_inputs, test)
            if isinstance(found, Made):
                return found.inside(f"while, step {step}", e.source)
            return found and (found._replace(index=found.index + n) if found.index >= 0 else found)
        x, step = x._replace(carry=out), step + 1
    return None


def _cond(e: Equation, xs: Sequence[NDArray], place: int, test: Test) -> Made | Given | None:
    p = e.params
    index, operands = xs[0], xs[1:]
    for i in sorted(set(index.ravel().tolist())):
        found = locate(clamped_branch(p["branches"], i), operands, test, [place])
        if isinstance(found, Made):
            return found.inside(f"cond, branch {i} of {len(p['branches'])}", e.source)
        if found is not None:
            return found._replace(index=found.index + 1) if found.index >= 0 else found
    return None


_ENTERED: Final[dict[str, Callable[[Equation, Sequence[NDArray], int, Test], Made | Given | None]]] = {
    "scan": lambda e, xs, place, test: _scan(e, xs, test),
    "while": lambda e, xs, place, test: _while(e, xs, test),
    "cond": _cond,
}


def describe(x: NDArray, test: Test) -> str:
    """One line on an array: its type, its finite extremes, and where the first bad element is."""
    text = f"{dtypes.short_name(x.dtype)}[{','.join(map(str, x.shape))}]"
    if x.dtype not in dtypes.NUMERIC or not x.size:
        return text
    if not x.shape:
        return f"{text} = {x[()]}"
    if x.dtype in dtypes.INEXACT and x.dtype not in dtypes.COMPLEX:
        finite = x[np.isfinite(x)]
        if finite.size:
            text += f", min {_short(finite.min())}, max {_short(finite.max())}"
        if infinite := int(np.isinf(x).sum()):
            text += f", {infinite} infinite"
    elif x.dtype not in dtypes.INEXACT and x.dtype != dtypes.bool_:
        text += f", min {x.min()}, max {x.max()}"
    if is_bad(x, test):
        bad = test(x)
        text += f", {int(bad.sum())} of {x.size} bad, the first at {first(x, test)}"
    return text


def _short(x: Any) -> str:
    return f"{float(x):.6g}"


def first(x: NDArray, test: Test) -> tuple[int, ...]:
    """The index of the first bad element."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(test(x))), x.shape))
