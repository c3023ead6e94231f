"""The op that `nx.bucketed` binds: a call at the buckets' sizes, with the true lengths as traced scalars.

It holds the *unmasked* programs of several lengths. Derivatives and batching transform those; padding is masked only
when the call is expanded or lowered, after everything else. So a derivative is masked like any other program, and what
lies in the padding, infinities included, cannot reach a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from nxjax.config.dataclass import dataclass
from nxjax.errors import LoweringError
from nxjax.ops.base import check_operands, require
from nxjax.trace import dtypes
from nxjax.trace.core import EVAL, Array, Arrays, Dims, Tangents, Tracer, UndefinedPrimal, current_trace
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.text import param_class
from nxjax.trace.types import ArrayType
from nxjax.transforms.bucketing import control, moving, quantized, rules, windows
from nxjax.transforms.bucketing.interpret import DIVERGED, described, interpret, is_operand
from nxjax.transforms.bucketing.sizes import Domain, Extent, Quotient, Range, Size, Solver
from nxjax.transforms.bucketing.values import Context, PaddedArray
from nxjax.transforms.call import jit_call
from nxjax.transforms.nested import NestedCall, batch_to_front, jvp_program
from nxjax.transforms.partial_eval import PartialTrace, partial_eval, partial_eval_call
from nxjax.transforms.subprograms import Mask, merge_by_mask, not_none_mask, select_by_mask, split_by_mask
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program

for _cls in (Range, Domain, Quotient, Size):
    param_class(_cls)

Programs = tuple[Program, ...]
# Named here because importing them is what registers their rules.
RULE_FILES: Final = (control, moving, quantized, rules, windows)


@final
@dataclass(frozen=True)
class Masked:
    """A program (lengths..., padded inputs...) -> padded results, and the true sizes of the results."""

    program: Program
    sizes: tuple[tuple[Extent, ...], ...]
    known: tuple[Size, ...]


def solver_of(domain: Domain, known: Sequence[Size]) -> Solver:
    solver = Solver(domain, domain.members())
    for size in known:
        solver.learn(size)
    return solver


def masked(programs: Programs, domain: Domain, known: tuple[Size, ...]) -> Masked:
    """The program that runs, made once and kept with the first of ``programs``."""

    def make() -> Masked:
        head, solver = programs[0], solver_of(domain, known)
        scalars = [ArrayType((), dtypes.int32) for _ in domain.ranges]
        store: list[Any] = []
        in_sizes = [_input_sizes(solver, types) for types in zip(*(p.in_types for p in programs), strict=True)]

        def flat(*xs: Array) -> Arrays:
            lengths = dict(zip(domain.names, xs, strict=False))
            args = [PaddedArray(x, s) for x, s in zip(xs[len(scalars) :], in_sizes, strict=True)]
            out = interpret(Context(solver, lengths), programs, args)
            store[:] = [tuple(v.sizes for v in out)]
            return [v.array for v in out]

        program = stage(flat, [*scalars, *head.in_types], f"bucketed({head.name})")
        program, captured = program.hoist_consts()
        assert not captured or not any(isinstance(x, Tracer) for x in captured)
        if captured:
            program = Program(
                program.inputs[len(captured) :], program.equations, program.outputs, program.inputs[: len(captured)],
                captured, program.name,
            )  # fmt: skip
        return Masked(program, store[0], tuple(solver.known))

    return programs[0].derive(("masked", domain, known), make)


def _input_sizes(solver: Solver, types: Sequence[ArrayType]) -> tuple[Extent, ...]:
    found = [solver.find([t.shape[d] for t in types]) for d in range(types[0].ndim)]
    if any(s is None for s in found):
        raise LoweringError("bucketed: an operand's size depends on a length in an unknown way", got=types)
    return tuple(s for s in found if s is not None)


def open_constants(programs: Sequence[Program], domain: Domain) -> tuple[Programs, list[Array]]:
    """The programs with their captured arrays as leading inputs where that can be, and those of the first."""
    if len({len(p.constvars) for p in programs}) > 1:
        names = described(Context(solver_of(domain, ()), {}))
        raise LoweringError(
            "bucketed: the function captures other arrays at one length than at another",
            got=", ".join(f"{len(p.constvars)} at {m}" for p, m in zip(programs, names, strict=True)),
        )
    # Numbers that depend on a length stay where they can be compared.
    operands = [is_operand(column) for column in zip(*(p.values for p in programs), strict=True)]
    found = tuple(_opened(p, operands) for p in programs)
    return found, select_by_mask(programs[0].values, operands)


def _opened(program: Program, operands: Sequence[bool]) -> Program:
    if not operands:
        return program
    kept = [not o for o in operands]
    inputs = (*select_by_mask(program.constvars, operands), *program.inputs)
    return program.derive(
        ("bucketed operands", tuple(operands)),
        lambda: Program(
            inputs,
            program.equations,
            program.outputs,
            select_by_mask(program.constvars, kept),
            select_by_mask(program.values, kept),
            program.name,
        ),
    )


def _in_step(programs: Programs, domain: Domain, known: tuple[Size, ...]) -> bool:
    """False for derivatives that take other steps at other lengths, such as that of a running product.

    Then the masked function itself is differentiated. That is right too, with one exception: where a derivative is
    infinite in the padding, the gradient becomes NaN. A function with its own derivative rule must go this way.
    """
    try:
        masked(programs, domain, known)
    except LoweringError as error:
        # Others are of no concern unless it is run: a linear half often never is, only its transpose.
        return error.what != DIVERGED
    return True


_LENGTH: Final = ArrayType((), dtypes.int32)


def _has_rules(program: Program) -> bool:
    """True when a derivative rule of the user's takes part, at any depth."""
    return any(e.op.users_rule or any(map(_has_rules, e.programs())) for e in program.equations)


@final
class BucketedCall(NestedCall):
    """Call of ``programs[0]``, of which the others are tracings at shorter lengths.

    Operands: one int32 scalar per dimension of ``domain``, then arrays at the buckets' sizes. Results are at the
    buckets' sizes too; what lies behind the true sizes is arbitrary. ``known``: sizes met before, see `Solver`.
    """

    name = "bucketed"
    call_for_transforms = True
    runs_on_padding = True

    def __call__(self, *args: Array, **params: Any) -> Any:
        if current_trace() is not EVAL:
            return super().__call__(*args, **params)
        # The masked program is kept, and its executable with it.
        program, captured = masked(**params).program.hoist_consts()
        return jit_call(*captured, *args, program=program, name=self.name)

    def called(
        self, *args: Any, programs: Programs, domain: Domain, known: tuple[Size, ...]
    ) -> tuple[Program, Sequence[Any]]:
        return masked(programs, domain, known).program, args

    def infer(
        self, *types: ArrayType, programs: Programs, domain: Domain, known: tuple[Size, ...]
    ) -> tuple[ArrayType, ...]:
        names = domain.names
        require(self, len(set(names)) == len(names), "two dimensions of one name", names)
        wanted = len(domain.members())
        require(self, len(programs) == wanted, "programs", len(programs), f"{wanted}, one per length to trace at")
        first = programs[0]
        lengths, rest = types[: len(names)], types[len(names) :]
        check_operands(self, rest, first)
        scalars = len(lengths) == len(names) and all(map(_LENGTH.typematch, lengths))
        require(self, scalars, "lengths", lengths, f"{_LENGTH} for each dimension")
        for other in programs[1:]:
            for a, b in ((first.in_types, other.in_types), (first.out_types, other.out_types)):
                alike = [(t.ndim, t.dtype) for t in a] == [(t.ndim, t.dtype) for t in b]
                require(self, alike, "programs differ in more than sizes", b, a)
        return first.out_types

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, programs: Programs, domain: Domain, known: tuple[Size, ...]
    ) -> tuple[Any, Any]:
        k = len(domain.ranges)
        varying = not_none_mask(tangents[k:])
        pairs = [jvp_program(p, varying) for p in programs]
        pushed, consts = open_constants([p for p, _ in pairs], domain)
        if not _has_rules(programs[0]) and not _in_step(pushed, domain, known):
            program, captured = masked(programs, domain, known).program.hoist_consts()
            primals, tangents = [*captured, *primals], [*(None for _ in captured), *tangents]
            return jit_call.jvp(primals, tangents, program=program, name=self.name)
        given = [*primals[:k], *consts, *primals[k:], *(t for t in tangents if t is not None)]
        out = self(*given, programs=pushed, domain=domain, known=known)
        n = len(programs[0].outputs)
        rest = iter(out[n:])
        return out[:n], tuple(next(rest) if v else None for v in pairs[0][1])

    def partial_eval(
        self,
        trace: PartialTrace,
        args: Arrays,
        known_args: Mask,
        *,
        programs: Programs,
        domain: Domain,
        known: tuple[Size, ...],
    ) -> tuple[Array, ...]:
        k = len(domain.ranges)
        lengths = args[:k]
        inputs, late = split_by_mask(args[k:], known_args[k:])
        halves = [partial_eval(p, known_args[k:]) for p in programs]
        first = halves[0]
        values, consts = open_constants([h.known for h in halves], domain)
        rest, captured = open_constants([h.unknown for h in halves], domain)
        own = _has_rules(programs[0])
        in_step = own or _in_step(values, domain, known)
        # The unknown half meets sizes that only the other half can explain.
        learned = masked(values, domain, known).known if in_step else ()
        if not own and not (in_step and _in_step(rest, domain, learned)):
            program, consts = masked(programs, domain, known).program.hoist_consts()
            params: dict[str, Any] = {"program": program, "name": self.name}
            return partial_eval_call(jit_call, trace, [*consts, *args], (*(True,) * len(consts), *known_args), params)
        out = trace.process_known(
            self, [*lengths, *consts, *inputs], {"programs": values, "domain": domain, "known": known}
        )
        if not first.is_cut:
            return tuple(out)
        given = [*lengths, *captured, *first.residuals(inputs, out), *late]
        found = trace.process_unknown(self, given, {"programs": rest, "domain": domain, "known": learned})
        return tuple(merge_by_mask(out, found, first.known_out))

    def transpose(
        self, cts: Tangents, *args: Any, programs: Programs, domain: Domain, known: tuple[Size, ...]
    ) -> Tangents:
        k = len(domain.ranges)
        linear = tuple(isinstance(x, UndefinedPrimal) for x in args)
        nonzero = not_none_mask(cts)
        back, consts = open_constants([transpose_program(p, linear[k:], nonzero) for p in programs], domain)
        given = [x for x, l in zip(args[k:], linear[k:], strict=True) if not l]
        operands = [*args[:k], *consts, *given, *(ct for ct in cts if ct is not None)]
        found = iter(self(*operands, programs=back, domain=domain, known=known))
        return [next(found) if l else None for l in linear]

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        programs: Programs,
        domain: Domain,
        known: tuple[Size, ...],
    ) -> tuple[Any, Any]:
        k = len(domain.ranges)
        if any(d is not None for d in dims[:k]):
            # Every element has its own lengths: batch the program that reads them.
            program, out = batch_program(
                masked(programs, domain, known).program, size, not_none_mask(dims), name=axis_name
            )
            program, consts = program.hoist_consts()
            ys = jit_call(*consts, *batch_to_front(args, dims, size), program=program, name="vmap(bucketed)")
            return ys, tuple(0 if b else None for b in out)
        pairs = [batch_program(p, size, not_none_mask(dims[k:]), name=axis_name) for p in programs]
        mapped, consts = open_constants([p for p, _ in pairs], domain)
        given = [*args[:k], *consts, *batch_to_front(args[k:], dims[k:], size)]
        ys = self(*given, programs=mapped, domain=domain, known=known)
        return ys, tuple(0 if b else None for b in pairs[0][1])


bucketed_call = BucketedCall()
