"""Ops that hold programs: what they share, and the small analyses of held programs that their rules need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from nxjax.ops.base import NDArray, move_batch
from nxjax.ops.collectives import as_varying, pvary
from nxjax.trace.core import Array, Arrays, Dims, Op, current_trace
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Equation, Program, Var, run
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.transforms.jvp import jvp_flat

T = TypeVar("T")
R = TypeVar("R")
Mask = tuple[bool, ...]
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


def clamped_branch(branches: Sequence[Program], index: int) -> Program:
    """The branch that runs: the last one for an index out of range, as StableHLO has it."""
    return branches[index if 0 <= index < len(branches) else -1]


def select_by_mask(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The entries of ``values`` that ``mask`` marks."""
    return [x for x, m in zip(values, mask, strict=True) if m]


def split_by_mask(values: Sequence[Any], mask: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """The entries of ``values`` that ``mask`` marks, and the others."""
    return select_by_mask(values, mask), select_by_mask(values, [not m for m in mask])


def expand_by_mask(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The inverse of `select_by_mask`, with None where ``mask`` is False."""
    rest = iter(values)
    return [next(rest) if m else None for m in mask]


def merge_by_mask(yes: Sequence[Any], no: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """One list of both: the next of ``yes`` where ``mask`` is True, else the next of ``no``."""
    a, b = iter(yes), iter(no)
    return [next(a) if m else next(b) for m in mask]


def mask_or(a: Sequence[bool], b: Sequence[bool]) -> Mask:
    return tuple(x or y for x, y in zip(a, b, strict=True))


def mask_and(a: Sequence[bool], b: Sequence[bool]) -> Mask:
    return tuple(x and y for x, y in zip(a, b, strict=True))


def not_none_mask(values: Sequence[Any]) -> Mask:
    """Which entries are not None."""
    return tuple(x is not None for x in values)


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


def fixed_point(start: T, rule: Callable[[T], tuple[R, T]]) -> tuple[R, T]:
    """Call ``rule`` on ``start``, then on what it gives, until it gives back its argument.

    ``rule`` gives a result and the next argument. The last of both are returned.
    """
    while True:
        found, after = rule(start)
        if after == start:
            return found, start
        start = after


def dependent_results(program: Program, inputs: Sequence[bool]) -> Mask:
    """Which results depend on the marked inputs."""
    marked = {v for v, m in zip(program.inputs, inputs, strict=True) if m}
    for e in program.equations:
        if any(isinstance(a, Var) and a in marked for a in e.inputs):
            marked.update(e.outputs)
    return tuple(isinstance(a, Var) and a in marked for a in program.outputs)


def forwarded_inputs(program: Program) -> list[int | None]:
    """Per result the position of the input that it is, also through calls; None for what is computed or a const."""
    place = {v: i for i, v in enumerate(program.inputs)}
    for e in program.equations:
        found = e.op.called(*e.inputs, **e.params) if e.op.plain_call else None
        if found is not None:
            inner, given = found
            for v, i in zip(e.outputs, forwarded_inputs(inner), strict=True):
                source = None if i is None else given[i]
                if isinstance(source, Var) and source in place:
                    place[v] = place[source]
    return [place.get(a) if isinstance(a, Var) else None for a in program.outputs]


def select_inputs_and_results(program: Program, inputs: Sequence[Var], keep: Sequence[bool]) -> Program:
    """``program`` with its inputs in another order, or with more of them, and the results that ``keep`` marks only."""
    outputs = select_by_mask(program.outputs, keep)
    return Program(inputs, program.equations, outputs, program.constvars, program.values, program.name)


def hoist_all_consts(programs: Sequence[Program]) -> tuple[tuple[Program, ...], list[Array]]:
    """The programs with the consts of all of them as leading inputs, and the values of these."""
    consts = [x for p in programs for x in p.values]
    found: list[Program] = []
    before = 0
    for p in programs:
        own = len(p.values)
        program, _ = p.hoist_consts()
        if own < len(consts):
            # Those of others are not read.
            inputs = [Var(x.type) for x in consts]
            inputs[before : before + own] = p.constvars
            program = Program([*inputs, *p.inputs], p.equations, p.outputs, name=p.name)
        found.append(program)
        before += own
    return tuple(found), consts


def required_equations(equations: Sequence[Equation], wanted: set[Var], given: set[Var]) -> list[Equation]:
    """The equations that ``wanted`` takes when ``given`` are known. Grows ``wanted`` by every variable they read."""
    kept: list[Equation] = []
    for e in reversed(equations):
        if any(v in wanted and v not in given for v in e.outputs):
            kept.append(e)
            wanted.update(a for a in e.inputs if isinstance(a, Var))
    return kept[::-1]


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


@final
class Groups:
    """Cuts a flat argument list into consecutive groups."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._rest = list(values)

    def take(self, n: int) -> list[Any]:
        head, self._rest = self._rest[:n], self._rest[n:]
        return head

    def rest(self) -> list[Any]:
        return self._rest
