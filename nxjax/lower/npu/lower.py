"""Program -> NpuGraph: rules, then layout, then what nodes merge with.

Holds no rule of an op (`rules`), knows no format and no vendor. Everything that cannot be lowered is said at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np

from nxjax.errors import ParameterError, ProgramError, Source, UnsupportedOpsError
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Unsupported, check_dtype, known_consts, value_of
from nxjax.lower.npu.custom import rules_for
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.recurrent.loops import kept
from nxjax.lower.npu.rules.table import RULES
from nxjax.lower.npu.simplify import simplified
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.placement import YES, Verdict
from nxjax.ops.quant_grid import ROUNDINGS, Rounding
from nxjax.trace.array import wrap
from nxjax.trace.program import Equation, Program, Var
from nxjax.transforms.inline import inlined
from nxjax.transforms.slice_updates import use_slice_updates

# Scans of at most so many steps are written out; longer ones are loops, which NPUs do not have.
UNROLL: Final = 64
# Formats whose nodes hold graphs, for choices and loops by data; "" is that of no file.
NESTED: Final = frozenset(("", "tflite", "onnx", "openvino", "coreml"))


@final
@dataclass(frozen=True)
class RefusedEquation:
    """One equation that has no place in a graph.

    ``number`` is its place in the `prepared` program, -1 of an input; ``mistake`` as of `Unsupported`.
    """

    op: str
    types: str
    reason: str
    suggestion: str
    source: Source | None
    scope: str
    number: int = -1
    mistake: bool = False

    def __str__(self) -> str:
        where = f"\n      at {self.source}: {self.source.text}" if self.source else ""
        instead = f"\n      instead: {self.suggestion}" if self.suggestion else ""
        return f"{self.op} {self.types}: {self.reason}{where}{instead}"


def lower(
    program: Program,
    name: str = "",
    rounding: Rounding = "double",
    *,
    io: Literal["float", "integer"] = "float",
    unroll: int = UNROLL,
    format: str = "",
    recurrent: frozenset[str] = frozenset(),
) -> NpuGraph:
    """The graph of ``program``: channels last, activations fused, names for every tensor.

    Args:
        program: float or quantized. Weights have to be constants of it (see `bind`).
        name: of the graph; the program's own if empty.
        rounding: of a program that has no quantized op; else the program's own is taken.
        io: "integer" makes inputs that are only quantized integer inputs, and results that only come off a grid
            integer results; "float" keeps the program's types.
        unroll: scans of at most so many steps are written out.
        format: the file format that the graph is for, whose kernels of the program's own ops are used (`nx.kernel`).
        recurrent: which layers have nodes of their own, of "lstm", "gru" and "rnn"; a loop that is another is written
            out, or a loop.

    Raises:
        UnsupportedOpsError: equations without a rule, all of them; ``error.rows`` has them one by one.
        ProgramError: quantized ops with different roundings.

    >>> print(lower(nx.make_jaxpr(lambda x: nx.nn.relu(x * 2 + 1))(np.zeros((2, 3), np.float32)), "f"))
    graph f
      in   input_0: f32[2,3]
      mul_0: f32[2,3] = mul(input_0, mul_0/y) activation=None
      add_0: f32[2,3] = add(mul_0, add_0/y) activation=relu
      out  add_0
    """
    if rounding not in ROUNDINGS or io not in ("float", "integer"):
        raise ParameterError("lower: rounding or io", got=(rounding, io), expected=f"{ROUNDINGS}, 'float' or 'integer'")
    graph, refused = _raw(program, name or program.name or "graph", rounding, unroll, format, recurrent)
    if refused:
        raise _error(refused)
    found = simplified(graph, io, format)
    found.notes[:] = graph.notes
    return found


def refusals(
    program: Program, *, unroll: int = UNROLL, format: str = "", recurrent: frozenset[str] = frozenset()
) -> list[RefusedEquation]:
    """The equations of ``program`` that `lower` would refuse, in program order."""
    return _raw(program, "", "double", unroll, format, recurrent)[1]


def lowerable(equation: Equation, constants: Collection[Var] = ()) -> Verdict:
    """Whether one equation has a place in a graph, and why not.

    ``constants`` are operands that will be known; literals always are. Values decide nothing here: ones stand in.
    """
    inputs = [a for a in dict.fromkeys(equation.inputs) if isinstance(a, Var)]
    bound = [v for v in inputs if v in constants]
    ones = [wrap(np.ones(v.type.shape, v.type.dtype)) for v in bound]
    program = Program([v for v in inputs if v not in bound], [equation], equation.outputs, bound, ones)
    found = refusals(program)
    return Verdict(False, found[0].reason, found[0].suggestion) if found else YES


def prepared(program: Program, unroll: int = UNROLL, recurrent: frozenset[str] = frozenset()) -> Program:
    """``program`` as it is lowered: flat, short scans written out but for layers, without what nothing reads."""
    return dead_code_eliminated(use_slice_updates(inlined(program, unroll, keep=kept(recurrent))))


def _raw(
    program: Program,
    name: str,
    rounding: Rounding,
    unroll: int,
    format: str = "",
    recurrent: frozenset[str] = frozenset(),
) -> tuple[NpuGraph, list[RefusedEquation]]:
    """The graph as the rules make it, and the equations they refuse."""
    flat = prepared(program, unroll, recurrent)
    b = GraphBuilder(rules_for(format, RULES), unroll, format in NESTED, recurrent)
    refused: list[RefusedEquation] = []
    env: dict[Var, LogicalTensor] = known_consts(flat)
    inputs: list[Tensor] = []
    used = {a for e in flat.equations for a in e.inputs} | set(flat.outputs)
    for i, v in enumerate(flat.inputs):
        try:
            if v in used:
                check_dtype(v.type.dtype)
        except Unsupported as why:
            refused.append(RefusedEquation(f"input {i}", repr(v.type), why.reason, why.suggestion, None, ""))
        inputs.append(Tensor("", v.type.shape, v.type.dtype))
        env[v] = LogicalTensor(v.type.shape, inputs[-1])
    for number, e in enumerate(flat.equations):
        b.source, b.scope = e.source, e.scope
        try:
            if any(0 in v.type.shape for v in e.outputs):
                raise Unsupported("tensors without elements do not exist on an NPU")
            xs = [value_of(a, env) for a in e.inputs]
            found: Sequence[LogicalTensor] = b.apply(e.op, xs, e.params, [v.type for v in e.outputs])
        except Unsupported as why:
            types = ", ".join(repr(a.type) for a in e.inputs) + " -> " + ", ".join(repr(v.type) for v in e.outputs)
            said = (why.reason, why.suggestion, e.source, e.scope, number, why.mistake)
            refused.append(RefusedEquation(e.op.name, types, *said))
            # Stand-ins, so that what follows is looked at too.
            found = [LogicalTensor(v.type.shape, Tensor("", v.type.shape, v.type.dtype)) for v in e.outputs]
        env.update(zip(e.outputs, found, strict=True))
    outputs: list[Tensor] = []
    if not refused:
        b.source, b.scope = None, ""
        outputs = [b.tensor(b.real(b.full(value_of(a, env)))) for a in flat.outputs]
    if len(b.roundings) > 1:
        raise ProgramError(
            "lower: quantized ops round in different ways",
            got=", ".join(sorted(b.roundings)),
            expected="one rounding, since a chip has one",
            fix="quantize the whole function with one rounding",
        )
    found_rounding: Rounding = next(iter(b.roundings)) if b.roundings else rounding
    return NpuGraph(name, inputs, outputs, b.nodes, found_rounding, list(b.notes)), refused


def _error(rows: Sequence[RefusedEquation]) -> UnsupportedOpsError:
    many = f"{len(rows)} equations" if len(rows) > 1 else "an equation"
    listed = "".join(f"\n    - {row}" for row in rows)
    error = UnsupportedOpsError(
        f"lower: {many} cannot run on an NPU{listed}",
        fix="write what the rows say instead, or keep these parts outside of the compiled function",
        source=next((row.source for row in rows if row.source is not None), None),
    )
    error.rows = tuple(rows)
    return error
